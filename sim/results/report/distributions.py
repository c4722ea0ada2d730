"""How quantities are spread over clients and messages: time to an accuracy, latency, staleness."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.metrics import Series, bytes_to_target, time_to_target
from sim.results.report.blocks import Cell, Table, cell, reached
from sim.results.report.figure import Figure
from sim.results.report.style import HUES, blank, is_one_number, line, log_axis, time_axis
from sim.results.view import RunView

_MOST_LEVELS = 3  # of accuracy, beside the scenario's target
_MOST_TYPES = 5  # of messages
_POINTS = 200  # of a distribution
_LOG_FROM = 50.0  # a quantity that spans so many times its least is drawn on a logarithmic axis


def levels(view: RunView) -> list[float]:
    """Accuracies whose times are shown: the scenario's target, and the last tens that the mean reached.

    None where few clients are measured at a time: when the others reached them is not known.
    """
    if view.measure is None or view.evaluate_share < 1:
        return []
    measure = view.measure[0]
    if not (measure.is_share and measure.higher_is_better):
        return []
    most = math.floor(10 * float(np.nanmean(view.measure[1].values, axis=1).max()) + 1e-9)
    found = {tens / 10 for tens in range(max(1, most - _MOST_LEVELS + 1), most + 1)}
    target = view.get("target", measure.name)
    return sorted(found if target is None else found | {float(target)})


def first_times(view: RunView, level: float) -> NDArray[np.float64]:
    """When each client that was ever measured was first evaluated at a level [C], in seconds; inf: never."""
    assert view.measure is not None
    times, values = view.measure[1]
    reached = values[:, ~np.isnan(values).all(axis=0)] >= level  # what is not known is not reached
    return np.where(reached.any(axis=0), times[reached.argmax(axis=0)], np.inf)


def time_to_accuracy(view: RunView) -> Figure | None:
    """The share of the clients that have reached each level, over virtual time."""
    if not (stated := levels(view)):
        return None
    unit_s = time_axis(figure := blank(300), view.end_s)
    for number, level in enumerate(stated):
        reached = first_times(view, level)
        steps, counts = np.unique(reached[np.isfinite(reached)], return_counts=True)
        times = np.concatenate([[0.0], steps, [view.end_s]]) / unit_s
        shares = np.concatenate([[0], np.cumsum(counts), [counts.sum()]]) / len(reached)
        name = text.share(level)
        hover = f"{name}: <b>%{{y:.1%}}</b> of the clients by %{{customdata}}"
        hints = list(map(text.duration, times * unit_s))
        series, hue = Series(times, shares), HUES[number % len(HUES)]
        figure.add(line(series, name, hue, hover, hints=hints, shape="hv"))
    _share_axis(figure, "clients that reached it")
    return figure


def times_table(view: RunView) -> Table:
    """When the mean, half and nine in ten of the clients had reached a level, and what was sent by then."""
    assert view.measure is not None
    measure, panel = view.measure
    mean = Series(panel.times, np.nanmean(panel.values, axis=1))
    rows: list[list[str | Cell]] = []
    for level in levels(view):
        first = np.sort(first_times(view, level))
        of_clients = [float(first[math.ceil(share * len(first)) - 1]) for share in (0.5, 0.9)]
        sent = bytes_to_target(mean, view.bytes_sent, level)
        rows.append(
            [
                cell(level, text.share),
                reached(time_to_target(mean, level)),
                cell(sent, text.size),
                *[reached(time_s) for time_s in of_clients],
                cell(int(np.isinf(first).sum())),
            ]
        )
    heads = [measure.name, "mean", "sent by then", "half", "90 %", "never"]
    return Table(heads, rows, "levels")


def latencies(view: RunView) -> Figure | None:
    """How long messages were on their way, by type; None where no message that arrived was kept."""
    found = view.latencies_s
    if not found:
        return None
    often = sorted(found, key=lambda kind: (-len(found[kind]), kind))[:_MOST_TYPES]
    of = "messages" if view.one_message_in == 1 else f"messages, one in {view.one_message_in:,}"
    return _cumulative({text.message_type(kind): found[kind] for kind in often}, "on its way", of)


def staleness_spread(view: RunView) -> Figure | None:
    """How stale the models were that clients used: each client's mean from one evaluation to the next."""
    panel = view.panel("staleness")
    if panel is None:
        return None
    values = panel.values[~np.isnan(panel.values)]
    return _cumulative({"mean of a client between two evaluations": values}, "age when used", "means")


def _cumulative(found: Mapping[str, NDArray[np.float64]], title: str, of: str) -> Figure:
    """For each name the share of its values that are at most x, in seconds."""
    figure = blank(300)
    shares = np.linspace(0, 1, _POINTS)
    for number, (name, values) in enumerate(found.items()):
        at_most = np.quantile(values, shares)
        hints = [text.duration(seconds) for seconds in at_most.tolist()]
        hover = f"{name}: <b>%{{y:.1%}}</b> of {len(values):,} {of}<br>within %{{customdata}}"
        figure.add(line(Series(at_most, shares), name, HUES[number % len(HUES)], hover, hints=hints))
    least, most = (end(float(end(each)) for each in found.values()) for end in (min, max))
    if least > 0 and most > _LOG_FROM * least:
        figure.update(xaxis=log_axis(least, most))
    elif is_one_number(least, most):
        figure.update(xaxis={"range": [0, 2 * most]})
    figure.update(xaxis={"title": {"text": f"{title} (s)"}})
    of_all, _, _ = of.partition(",")
    _share_axis(figure, f"share of the {of_all}")
    return figure


def _share_axis(figure: Figure, title: str) -> None:
    figure.update(yaxis={"title": {"text": title}, "tickformat": ".0%", "range": [-0.02, 1.02]})
