"""One client at a time, the one that the reader chooses: its course, and what it waited for.

All clients' traces are in the pictures, each with its client's name as `meta`; the page's script shows those
of one, and those without a name.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sim.results import text
from sim.results.metrics import ALONE, Series
from sim.results.population import Panel
from sim.results.report.figure import Figure, Trace
from sim.results.report.style import (
    BLUE,
    EDGE,
    FAINT,
    ORANGE,
    blank,
    line,
    measure_axis,
    observed_axis,
    time_axis,
)
from sim.results.report.timeline import clients_shown
from sim.results.view import RunView, evenly
from sim.results.waits import Waits, waits_of

STALENESS = "staleness"
_AGE = "age of the models used (s)"
_MOST_POINTS = 300  # of a line
_MOST_POINTS_IN_ALL = 30_000  # of a picture: bounds the size of the report
_MOST_PEERS = 8  # named of those waited for
_ROW_PX = 22.5  # of a picture of bars
_CLOCK = "a time limit or pause"


def course(view: RunView) -> Figure | None:
    """What each client is judged by over time, beside the mean of all and itself alone."""
    if view.measure is None or len(view.clients) < 2:
        return None
    measure, panel = view.measure
    alone = view.last(measure.name + ALONE)
    figure, unit_s = _courses(view, panel, 330, measure.y, measure.text)
    levels = []
    for client in clients_shown(view):
        if alone is not None and not np.isnan(alone[client]):
            level = Series(panel.times[[0, -1]] / unit_s, np.full(2, alone[client]))
            label = f"alone: {measure.text(float(alone[client]))}"
            levels.append(line(level, label, FAINT, label, dash="dot") | _of(view, client))
    figure.add(*levels)
    measure_axis(figure, measure)
    return figure


def other_courses(view: RunView) -> list[Figure]:
    """What else was measured of each client, and what its method observed, beside the mean of all."""
    found: list[Figure] = []
    if len(view.clients) < 2:
        return found
    for measure, panel in view.others:
        figure, _ = _courses(view, panel, 240, measure.y, measure.text)
        measure_axis(figure, measure)
        found.append(figure)
    for name in view.observed:
        if (panel_of_name := view.panel(name)) is not None:
            figure, _ = _courses(view, panel_of_name, 240, "%{y:.4~g}", text.number)
            observed_axis(figure, _AGE if name == STALENESS else name, panel_of_name.values)
            found.append(figure)
    return found


def _courses(
    view: RunView, panel: Panel, height_px: int, y: str, readable: Callable[[float | None], str]
) -> tuple[Figure, float]:
    """A line for the mean of all and one for each client; the unit of the time axis in seconds."""
    shown = clients_shown(view)
    most = max(20, min(_MOST_POINTS, _MOST_POINTS_IN_ALL // len(shown)))
    chosen = evenly(len(panel.times), most)
    unit_s = time_axis(figure := blank(height_px), max(view.end_s, float(panel.times[-1])))
    times, values = panel.times[chosen] / unit_s, panel.values[chosen]
    mean = Series(times, np.nanmean(values, axis=1))
    lines = [line(mean, "mean of all", EDGE, f"mean of all <b>{y}</b>")]
    for client in shown:
        name, reached = view.clients[client], panel.of(client).values[-1:].tolist()
        own, when = values[:, client], times
        if view.evaluate_share < 1:  # between two evaluations of its own there are others, which are no gaps
            course = panel.of(client)
            picked = evenly(len(course.times), most)
            own, when = course.values[picked], course.times[picked] / unit_s
        series = Series(when.astype(np.float32), own.astype(np.float32))
        label = f"{name}: {readable(reached[0] if reached else None)}"
        lines.append(line(series, label, BLUE, f"{name} <b>{y}</b>") | _of(view, client))
        if reached and not np.isnan(spent_s := view.spent_s[[client]]):
            label = f"budget spent: {text.duration(float(spent_s[0]))}"
            at = Series(spent_s / unit_s, np.interp(spent_s, *panel.of(client)))
            lines.append(line(at, label, ORANGE, label) | _of(view, client) | {"marker": {"size": 10}})
    figure.add(*lines)
    return figure, unit_s


def _of(view: RunView, client: int) -> Trace:
    """The attributes of a trace that belongs to a client: it is shown where that client is chosen."""
    return {"meta": view.clients[client], "visible": client == view.worst_first[0]}


def waited_for(view: RunView) -> Figure | None:
    """For whom each client's device waited, the longest first; None where nobody waited, or nobody knows."""
    shown = clients_shown(view)
    waits = waits_of(view, shown)
    if waits is None or len(view.clients) < 2 or not any(_rows(each) for each in waits):
        return None
    bars = [
        [
            Bar(f"{who}: {text.duration(s)}", s, kinds, EDGE if who == _CLOCK else BLUE)
            for who, s, kinds in rows
        ]
        for rows in map(_rows, waits)
    ]
    return _bars(view, shown, bars, "waited (s of virtual time)", "nothing")


def listens_to(view: RunView, *, others: bool = False) -> Figure | None:
    """To whom each client gives the largest weights, or who gives them to it; None without any.

    At the end, or when it was measured last. Blue: of its true cluster; orange: of another one.
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
            of = "" if clusters is None else f"of {'the same' if same else 'another'} cluster"
            rows.append(Bar(f"{view.clients[peer]}: {given:.3g}", given, of, BLUE if same else ORANGE))
        bars.append(rows)
    return _bars(view, clients_shown(view), bars, "weight, when it was up last", "nobody")


def classes_of(view: RunView) -> Figure | None:
    """How many training samples of each class each client has; None where that is not known."""
    counts = view.get("class_counts")
    if counts is None or len(view.clients) < 2:
        return None
    bars = []
    for client in clients_shown(view):
        most = np.argsort(-np.array(counts[client]), kind="stable")[: _MOST_PEERS + 2].tolist()
        there = sorted(label for label in most if counts[client][label])
        bars.append(
            [Bar(f"class {label}: {counts[client][label]:,}", counts[client][label]) for label in there]
        )
    return _bars(view, clients_shown(view), bars, "training samples", "none")


class Bar(NamedTuple):
    """A row of a picture of bars: what stands at it, how long it is, and what its tooltip adds."""

    label: str
    length: float
    hint: str = ""
    colour: str = BLUE


def _bars(
    view: RunView, shown: Sequence[int], bars: Sequence[Sequence[Bar]], title: str, nothing: str
) -> Figure:
    """The bars of each client, one below the other."""
    most = max(1, *map(len, bars))
    figure = blank(round(108 + _ROW_PX * (most + 0.4)))
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
            "y": [place + 0.02 for place in range(len(rows))],
            "mode": "text",
            "text": [f" {row.label}" for row in rows],
            "textposition": "middle right",
            "hoverinfo": "skip",
        }
        options = {**_of(view, client), "showlegend": False}
        figure.add(drawn | options, names | options)
    axis = {"title": {"text": title}, "rangemode": "tozero"}
    figure.update(xaxis=axis, yaxis={"visible": False, "range": [most, -0.4]})
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
