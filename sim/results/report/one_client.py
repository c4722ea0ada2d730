"""Pictures of one client, which the reader selects: its results over time, waits, weights and classes.

The pictures contain the traces of all clients, each with its client's name as `meta`. The page's script
shows the traces of the selected client, and traces without a name.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sim.results import text
from sim.results.measures import ALONE
from sim.results.metrics import Series
from sim.results.population import ClientPanelData
from sim.results.report.figure import Figure, Trace
from sim.results.report.style import (
    BLUE,
    EDGE,
    FAINT,
    ORANGE,
    blank_figure,
    line,
    measure_axis,
    observed_axis,
    time_axis,
)
from sim.results.report.timeline import clients_shown
from sim.results.view import RunView, evenly_spaced_positions
from sim.results.waits import Waits, find_waits

STALENESS = "staleness"
_AGE = "staleness (s)"
_MOST_POINTS = 300  # points of a line
_MOST_POINTS_IN_ALL = 30_000  # points of a picture: bounds the size of the report
_MOST_PEERS = 8  # peers named in a picture
_ROW_PX = 22.5  # height of a row of bars
_CLOCK = "a time limit or pause"


def client_measure_curves(view: RunView) -> Figure | None:
    """Draw the measure of each client over time, its result alone, and the mean of all clients."""
    if view.measure is None or len(view.clients) < 2:
        return None
    measure, panel = view.measure
    alone = view.last(measure.name + ALONE)
    figure, unit_s = _client_curves(view, panel, 330, measure.y, measure.text)
    levels = []
    for client in clients_shown(view):
        if alone is not None and not np.isnan(alone[client]):
            level = Series(panel.times[[0, -1]] / unit_s, np.full(2, alone[client]))
            label = f"alone: {measure.text(float(alone[client]))}"
            levels.append(line(level, label, FAINT, label, dash="dot") | _shown_if_selected(view, client))
    figure.add(*levels)
    measure_axis(figure, measure)
    return figure


def other_client_curves(view: RunView) -> list[Figure]:
    """Draw each client's other measures and observations, with the mean of all clients."""
    found: list[Figure] = []
    if len(view.clients) < 2:
        return found
    for measure, panel in view.others:
        figure, _ = _client_curves(view, panel, 240, measure.y, measure.text)
        measure_axis(figure, measure)
        found.append(figure)
    for name in view.observed:
        if (panel_of_name := view.panel(name)) is not None:
            figure, _ = _client_curves(view, panel_of_name, 240, "%{y:.4~g}", text.number)
            observed_axis(figure, _AGE if name == STALENESS else name, panel_of_name.values)
            found.append(figure)
    return found


def _client_curves(
    view: RunView, panel: ClientPanelData, height_px: int, y: str, readable: Callable[[float | None], str]
) -> tuple[Figure, float]:
    """Return a figure with lines for the mean and each client, and the unit of its time axis in seconds."""
    shown = clients_shown(view)
    most = max(20, min(_MOST_POINTS, _MOST_POINTS_IN_ALL // len(shown)))
    chosen = evenly_spaced_positions(len(panel.times), most)
    unit_s = time_axis(figure := blank_figure(height_px), max(view.end_s, float(panel.times[-1])))
    times, values = panel.times[chosen] / unit_s, panel.values[chosen]
    mean = Series(times, np.nanmean(values, axis=1))
    lines = [line(mean, "mean of all clients", EDGE, f"mean of all clients <b>{y}</b>")]
    for client in shown:
        name, reached = view.clients[client], panel.of(client).values[-1:].tolist()
        own, when = values[:, client], times
        if view.evaluate_share < 1:  # skip the evaluations that did not measure it
            course = panel.of(client)
            picked = evenly_spaced_positions(len(course.times), most)
            own, when = course.values[picked], course.times[picked] / unit_s
        series = Series(when.astype(np.float32), own.astype(np.float32))
        label = f"{name}: {readable(reached[0] if reached else None)}"
        lines.append(line(series, label, BLUE, f"{name} <b>{y}</b>") | _shown_if_selected(view, client))
        if reached and not np.isnan(spent_s := view.spent_s[[client]]):
            label = f"budget exhausted at {text.duration(float(spent_s[0]))}"
            at = Series(spent_s / unit_s, np.interp(spent_s, *panel.of(client)))
            lines.append(
                line(at, label, ORANGE, label) | _shown_if_selected(view, client) | {"marker": {"size": 10}}
            )
    figure.add(*lines)
    return figure, unit_s


def _shown_if_selected(view: RunView, client: int) -> Trace:
    """Return the attributes of a client's trace, which the page shows if that client is selected."""
    return {"meta": view.clients[client], "visible": client == view.worst_first[0]}


def waits_by_peer_figure(view: RunView) -> Figure | None:
    """Draw each device's waits by peer, the longest first; None without waits, or if they are unknown."""
    shown = clients_shown(view)
    waits = find_waits(view, shown)
    if waits is None or len(view.clients) < 2 or not any(_rows(each) for each in waits):
        return None
    bars = [
        [
            Bar(f"{cause}: {text.duration(s)}", s, kinds, EDGE if cause == _CLOCK else BLUE)
            for cause, s, kinds in rows
        ]
        for rows in map(_rows, waits)
    ]
    return _bars(view, shown, bars, "waiting time (s of virtual time)", "no waits")


def weights_by_peer_figure(view: RunView, *, others: bool = False) -> Figure | None:
    """Draw the largest weights that each client gives or, with `others`, receives; None without weights.

    The weights are those at the client's last evaluation. Orange: peers of other true clusters; blue: all
    other peers.
    """
    if not len(view.graph_times) or len(view.clients) < 2 or view.measure is None:
        return None
    snapshots, bars, clusters = {}, [], view.clusters
    for client in clients_shown(view):
        before = view.graph_times <= view.measure[1].of(client).times[-1:].max(initial=0.0)
        time_s = view.graph_times[max(0, int(before.sum()) - 1)]
        if time_s not in snapshots:
            snapshots[time_s] = view.snapshot(time_s)
        source, target, weight = snapshots[time_s]
        ends, peers = (target, source) if others else (source, target)
        mine = np.flatnonzero((weight > 0) & (source != target) & (ends == client))
        mine = mine[np.argsort(-weight[mine], kind="stable")][:_MOST_PEERS]
        rows = []
        for peer, given in zip(peers[mine].tolist(), weight[mine].tolist(), strict=True):
            same = clusters is None or clusters[peer] == clusters[client]
            of = "" if clusters is None else f"{'same' if same else 'other'} true cluster"
            rows.append(Bar(f"{view.clients[peer]}: {given:.3g}", given, of, BLUE if same else ORANGE))
        bars.append(rows)
    return _bars(view, clients_shown(view), bars, "weight at its last evaluation", "no weights")


def class_counts_figure(view: RunView) -> Figure | None:
    """Draw the training samples by class, of each client's ten most frequent classes; None if unknown."""
    counts = view.get("class_counts")
    if counts is None or len(view.clients) < 2:
        return None
    bars = []
    for client in clients_shown(view):
        most = np.argsort(-np.array(counts[client]), kind="stable")[: _MOST_PEERS + 2].tolist()
        classes = sorted(label for label in most if counts[client][label])
        bars.append(
            [Bar(f"class {label}: {counts[client][label]:,}", counts[client][label]) for label in classes]
        )
    return _bars(view, clients_shown(view), bars, "training samples", "no samples")


class Bar(NamedTuple):
    """A row of a picture of bars: its label, its length, and the second line of its tooltip."""

    label: str
    length: float
    hint: str = ""
    colour: str = BLUE


def _bars(
    view: RunView, shown: Sequence[int], bars: Sequence[Sequence[Bar]], title: str, nothing: str
) -> Figure:
    """Draw the bars of each client, one below the other."""
    most = max(1, *map(len, bars))
    figure = blank_figure(round(108 + _ROW_PX * (most + 0.4)))
    for client, found in zip(shown, bars, strict=True):
        rows = found or [Bar(nothing, 0.0)]
        drawn = {
            "type": "bar",
            "x": [row.length for row in rows],
            "y": list(range(len(rows))),
            "orientation": "h",
            "marker": {"color": [row.colour for row in rows]},
            "width": 0.34,
            "offset": 0.28,
            "text": [row.label for row in rows],
            "hovertext": [row.hint for row in rows],
            "textposition": "none",
            "hovertemplate": "%{text}<br>%{hovertext}<extra></extra>",
        }
        names = {
            "type": "scatter",
            "x": [0] * len(rows),
            "y": [row + 0.02 for row in range(len(rows))],
            "mode": "text",
            "text": [f" {row.label}" for row in rows],
            "textposition": "middle right",
            "hoverinfo": "skip",
        }
        options = {**_shown_if_selected(view, client), "showlegend": False}
        figure.add(drawn | options, names | options)
    axis = {"title": {"text": title}, "rangemode": "tozero"}
    figure.update(xaxis=axis, yaxis={"visible": False, "range": [most, -0.4]})
    return figure


def _rows(waits: Waits) -> list[tuple[str, float, str]]:
    """Return (cause, seconds, message types) of the waits, longest first; further peers in one row."""
    senders = sorted(waits.by_sender.items(), key=lambda each: -each[1])
    rows = [(peer, seconds, ", ".join(waits.kinds[peer])) for peer, seconds in senders[:_MOST_PEERS]]
    if more := senders[_MOST_PEERS:]:
        rows.append((f"{len(more)} other peers", sum(seconds for _, seconds in more), ""))
    if waits.by_clock_s > 0:
        rows.append((_CLOCK, waits.by_clock_s, ""))
    return rows
