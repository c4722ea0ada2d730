"""Distributions over clients and messages: time to an accuracy, latency, staleness."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.metrics import Series, bytes_to_target, time_to_target
from sim.results.report.blocks import Cell, Table, number_cell, time_reached_cell
from sim.results.report.figure import Figure
from sim.results.report.style import HUES, blank_figure, is_nearly_constant, line, log_axis, time_axis
from sim.results.view import RunView

_MOST_LEVELS = 3  # levels of accuracy besides the scenario's target
_MOST_TYPES = 5  # message types
_POINTS = 200  # points of a distribution
_MEANS = "client means (one for each client and evaluation)"
_LOG_FROM = 50.0  # ratio of largest to least value from which the axis is logarithmic


def levels(view: RunView) -> list[float]:
    """Return the levels whose times are reported: the target, and the last multiples of 10% reached.

    The clients' mean reached these multiples. Empty unless the measure is a share whose larger values are
    better, such as the accuracy. Also empty if evaluations measure only a part of the clients, since the
    times of the other clients are unknown.
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
    """Return the time (s) at which each of the C measured clients was first at a level or above, [C].

    The time is infinite for a client that never reached the level.
    """
    assert view.measure is not None
    times, values = view.measure[1]
    reached = values[:, ~np.isnan(values).all(axis=0)] >= level  # NaN counts as not reached
    return np.where(reached.any(axis=0), times[reached.argmax(axis=0)], np.inf)


def time_to_accuracy(view: RunView) -> Figure | None:
    """Draw the share of clients that have reached each level, over virtual time."""
    if not (stated := levels(view)):
        return None
    unit_s = time_axis(figure := blank_figure(300), view.end_s)
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
    _share_axis(figure, "clients that reached the level")
    return figure


def times_table(view: RunView) -> Table:
    """Return a table of the times and bytes until the mean, half and 90% of clients reached a level."""
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
                number_cell(level, text.share),
                time_reached_cell(time_to_target(mean, level)),
                number_cell(sent, text.size),
                *[time_reached_cell(time_s) for time_s in of_clients],
                number_cell(int(np.isinf(first).sum())),
            ]
        )
    heads = [measure.name, "mean", "bytes sent", "half", "90%", "never"]
    return Table(heads, rows, "levels")


def latencies(view: RunView) -> Figure | None:
    """Draw the latencies of messages by type; None if no delivered message was kept."""
    found = view.latencies_s
    if not found:
        return None
    often = sorted(found, key=lambda kind: (-len(found[kind]), kind))[:_MOST_TYPES]
    of = "messages" if view.one_message_in == 1 else f"sampled messages (one in {view.one_message_in:,})"
    return _cumulative({text.message_type(kind): found[kind] for kind in often}, "latency", of)


def staleness_spread(view: RunView) -> Figure | None:
    """Draw the staleness of the models used: each client's mean between two evaluations."""
    panel = view.panel("staleness")
    if panel is None:
        return None
    values = panel.values[~np.isnan(panel.values)]
    return _cumulative({"client's mean between two evaluations": values}, "staleness", _MEANS)


def _cumulative(found: Mapping[str, NDArray[np.float64]], title: str, of: str) -> Figure:
    """Draw the cumulative distribution of each name's values in seconds."""
    figure = blank_figure(300)
    shares = np.linspace(0, 1, _POINTS)
    for number, (name, values) in enumerate(found.items()):
        at_most = np.quantile(values, shares)
        hints = [text.duration(seconds) for seconds in at_most.tolist()]
        hover = f"{name}: <b>%{{y:.1%}}</b> of {len(values):,} {of}<br>within %{{customdata}}"
        figure.add(line(Series(at_most, shares), name, HUES[number % len(HUES)], hover, hints=hints))
    least, most = (end(float(end(each)) for each in found.values()) for end in (min, max))
    if least > 0 and most > _LOG_FROM * least:
        figure.update(xaxis=log_axis(least, most))
    elif is_nearly_constant(least, most):
        figure.update(xaxis={"range": [0, 2 * most]})
    figure.update(xaxis={"title": {"text": f"{title} (s)"}})
    of_all, _, _ = of.partition(" (")
    _share_axis(figure, f"share of {of_all}")
    return figure


def _share_axis(figure: Figure, title: str) -> None:
    figure.update(yaxis={"title": {"text": title}, "tickformat": ".0%", "range": [-0.02, 1.02]})
