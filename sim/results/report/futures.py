"""A fork beside the run that it is one of: two futures on one past, and what each client has of its own."""

import numpy as np
import plotly.graph_objects as go

from sim.results import text
from sim.results.metrics import Series
from sim.results.population import Panel
from sim.results.report.blocks import Cell, Table, number, points, seconds, share
from sim.results.report.style import BLUE, EDGE, FAINT, ORANGE, blank, line
from sim.results.view import RunView, evenly

MOST_POINTS = 600  # of a line


def two_futures(view: RunView) -> go.Figure | None:
    """The mean over clients of what they are judged by: the past, what came of it here and in the parent."""
    if view.measure is None or view.parent is None or view.fork_s is None:
        return None
    measure, panel = view.measure
    there, fork_s = view.parent, view.fork_s
    unit_s, unit = text.scale_of_time(max(panel.times[-1], there.times[-1]))
    past = _mean(panel, panel.times <= fork_s)
    last = slice(max(0, len(past.times) - 1), None)
    shown = "%{y:.2%}" if measure.is_share else "%{y:.4~g}"
    figure = blank(320)
    for name, colour, dash, series in (
        ("until then", FAINT, "solid", past),
        ("this run", BLUE, "solid", _joined(past, last, _mean(panel, panel.times > fork_s))),
        ("its parent", ORANGE, "dash", _joined(past, last, _mean(there, there.times > fork_s))),
    ):
        if series.times.size:
            drawn = Series(series.times / unit_s, series.values)
            figure.add_trace(
                line(drawn, name, colour, f"{name} <b>{shown}</b>, %{{x:.4~g}} {unit}", dash=dash)
            )
    figure.add_vline(fork_s / unit_s, line={"color": EDGE, "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text=f"virtual time ({unit})")
    figure.update_yaxes(title_text=measure.label)
    if measure.is_share:
        figure.update_yaxes(tickformat=".0%")
    return figure


def differences(view: RunView) -> Table | None:
    """Each client in both futures, when both last measured it; those first that are worst off here."""
    if view.measure is None or view.parent is None or view.fork_s is None:
        return None
    measure, panel = view.measure
    shown = share if measure.is_share else number
    rows: list[tuple[float, list[str | Cell]]] = []
    for client, name in enumerate(view.clients):
        here, there = panel.of(client), view.parent.of(client)
        common = np.intersect1d(here.times[here.times > view.fork_s], there.times)
        if common.size:
            ours, theirs = (float(each.values[each.times == common[-1]][0]) for each in (here, there))
            difference = ours - theirs
            better = difference if measure.higher_is_better else -difference
            told = points(difference) if measure.is_share else number(difference)
            rows.append((better, [name, seconds(float(common[-1])), shown(theirs), shown(ours), told]))
    if not rows:
        return None
    heads = ["client", "time", "its parent", "this run", "difference"]
    ordered = [row for _, row in sorted(rows, key=lambda item: item[0])]
    return Table(heads, ordered, "clients", "those first that are worst off here")


def _mean(panel: Panel, when: np.ndarray) -> Series:
    measured = when & ~np.isnan(panel.values).all(axis=1)
    times, values = panel.times[measured], np.nanmean(panel.values[measured], axis=1)
    chosen = evenly(len(times), MOST_POINTS)
    return Series(times[chosen], values[chosen])


def _joined(past: Series, last: slice, future: Series) -> Series:
    return Series(
        *(np.concatenate([before[last], after]) for before, after in zip(past, future, strict=True))
    )
