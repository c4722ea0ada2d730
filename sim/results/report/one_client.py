"""One client at a time, the one that the reader chooses: its course, and what it waited for.

All clients' traces are in the pictures, each with its client's name as `meta`; the page's script shows those
of one, and those without a name.
"""

import numpy as np
import plotly.graph_objects as go

from sim.results import text
from sim.results.metrics import ALONE, Series
from sim.results.report.style import BLUE, EDGE, FAINT, blank, line, measure_axis, time_axis
from sim.results.report.timeline import clients_shown
from sim.results.view import RunView, evenly
from sim.results.waits import Waits, waits_of

_MOST_POINTS = 300
_MOST_PEERS = 8  # named of those waited for
_CLOCK = "a time limit or pause"


def course(view: RunView) -> go.Figure | None:
    """What each client is judged by over time, beside the mean of all and itself alone."""
    if view.measure is None or len(view.clients) < 2:
        return None
    measure, panel = view.measure
    chosen = evenly(len(panel.times), _MOST_POINTS)
    unit_s = time_axis(figure := blank(330), view.end_s)
    times, values = panel.times[chosen] / unit_s, panel.values[chosen]
    alone, shown, last = view.last(measure.name + ALONE), clients_shown(view), view.last(measure.name)
    assert last is not None
    mean = Series(times, np.nanmean(values, axis=1))
    figure.add_trace(line(mean, "mean of all", EDGE, f"mean of all <b>{measure.y}</b>"))
    for client in shown:
        name, reached = view.clients[client], None if np.isnan(last[client]) else float(last[client])
        options = {"meta": name, "visible": client == view.worst_first[0]}
        series = Series(times.astype(np.float32), values[:, client].astype(np.float32))
        label = f"{name}: {measure.text(reached)}"
        figure.add_trace(line(series, label, BLUE, f"{name} <b>{measure.y}</b>").update(**options))
        if alone is not None and not np.isnan(alone[client]):
            level = Series(times[[0, -1]], np.full(2, alone[client]))
            label = f"alone: {measure.text(float(alone[client]))}"
            figure.add_trace(line(level, label, FAINT, label, dash="dot").update(**options))
    measure_axis(figure, measure)
    return figure


def waited_for(view: RunView) -> go.Figure | None:
    """For whom each client's device waited, the longest first; None where nobody waited, or nobody knows."""
    shown = clients_shown(view)
    waits = waits_of(view, shown)
    if waits is None or len(view.clients) < 2 or not any(_rows(each) for each in waits):
        return None
    figure = blank(330)
    for client, each in zip(shown, waits, strict=True):
        rows = _rows(each) or [("nothing", 0.0, "")]
        labels = [f"{who}: {text.duration(seconds)}" for who, seconds, _ in rows]
        of_client = {
            "meta": view.clients[client],
            "visible": client == view.worst_first[0],
            "showlegend": False,
        }
        bars = go.Bar(
            x=[seconds for _, seconds, _ in rows],
            y=list(range(len(rows))),
            orientation="h",
            marker_color=[EDGE if who == _CLOCK else BLUE for who, _, _ in rows],
            width=0.34,
            offset=0.28,
            text=labels,
            hovertext=[kinds for _, _, kinds in rows],
            textposition="none",
            hovertemplate="%{text}<br>%{hovertext}<extra></extra>",
        )
        names = go.Scatter(
            x=[0] * len(rows),
            y=[place + 0.02 for place in range(len(rows))],
            mode="text",
            text=[f" {label}" for label in labels],
            textposition="middle right",
            hoverinfo="skip",
        )
        figure.add_traces([bars.update(of_client), names.update(of_client)])
    figure.update_xaxes(title_text="waited (s of virtual time)", rangemode="tozero")
    figure.update_yaxes(visible=False, range=[_MOST_PEERS + 2, -0.4])
    return figure


def _rows(waits: Waits) -> list[tuple[str, float, str]]:
    """Who was waited for, for how long and for which messages, the longest first; the rest in one."""
    senders = sorted(waits.by_sender.items(), key=lambda each: -each[1])
    rows = [(who, seconds, ", ".join(waits.kinds[who])) for who, seconds in senders[:_MOST_PEERS]]
    if rest := senders[_MOST_PEERS:]:
        rows.append((f"{len(rest)} others", sum(seconds for _, seconds in rest), ""))
    if waits.by_clock_s > 0:
        rows.append((_CLOCK, waits.by_clock_s, ""))
    return rows
