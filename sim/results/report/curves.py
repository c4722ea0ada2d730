"""Curves of the report. Each builder returns a figure, or None if the run has no data for it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.measures import ALONE, Measure, model_metric_name
from sim.results.metrics import Series, value_at, worst_decile
from sim.results.population import ARRIVALS, ClientPanelData
from sim.results.report.blocks import Cell, Table, difference_cell, number_cell
from sim.results.report.figure import Figure, Trace
from sim.results.report.style import (
    BLUE,
    EDGE,
    FAINT,
    GREEN,
    ORANGE,
    blank_figure,
    colour,
    line,
    log_axis,
    measure_axis,
    observed_axis,
    time_axis,
)
from sim.results.view import RunView, evenly_spaced_positions

MOST_POINTS = 600  # points of a line
MOST_STEPS = 2_000  # steps of the curve of the number of clients
MOST_MOVE_LINES = 40
_LOG_FROM = 10.0  # ratio of largest to least value from which the axis is logarithmic
MOST_SNAPSHOTS = 120
MOST_SNAPSHOT_PAIRS = 20_000_000  # pairs read for one picture, over all snapshots
UP, DOWN = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}"
_DASHES = ("solid", "dash", "dot")  # of curves beyond the third
_PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


def progress_over_time(view: RunView) -> Figure | None:
    """Draw the measure over virtual time: mean, band of one standard deviation, worst 10%."""
    if view.measure is None:
        return None
    measure, panel = view.measure
    figure = measure_curve(view, measure, panel, 390)
    unit_s = time_axis(figure, max(view.end_s, float(panel.times[-1])))
    alone = view.last(measure.name + ALONE)
    if alone is not None and not np.isnan(alone).all():  # a level for comparison
        level = Series(np.array([0.0, view.end_s]) / unit_s, np.full(2, np.nanmean(alone)))
        hover = f"Mean after the same number of steps alone <b>{measure.y}</b>"
        figure.add(line(level, "mean of clients trained alone (final)", FAINT, hover, dash="dot"))
    if len(view.moves) <= MOST_MOVE_LINES:
        _draw_moves(figure, view, unit_s)
    _draw_budget_ends(figure, view, unit_s)
    return figure


def progress_over_bytes(view: RunView) -> Figure | None:
    """Draw the measure over the bytes sent by all clients; None if nothing was sent."""
    if view.measure is None or not (view.bytes_sent.values > 0).any():
        return None
    measure, panel = view.measure
    sent = np.array([value_at(view.bytes_sent, time_s) for time_s in panel.times])
    factor, unit = text.scale_of_size(sent[-1])
    figure = blank_figure(390)
    _draw_progress(figure, measure, panel, sent / factor, [f"{text.size(count)} sent" for count in sent])
    figure.update(xaxis={"title": {"text": f"sent by all clients ({unit})"}, "rangemode": "tozero"})
    return figure


def measure_curve(view: RunView, measure: Measure, panel: ClientPanelData, height_px: int = 260) -> Figure:
    """Draw a measure of the clients' models over virtual time: mean, band and worst 10%."""
    unit_s = time_axis(figure := blank_figure(height_px), max(view.end_s, float(panel.times[-1])))
    _draw_progress(figure, measure, panel, panel.times / unit_s, list(map(text.duration, panel.times)))
    return figure


def observation_curve(view: RunView, name: str, who: str, panel: ClientPanelData) -> Figure:
    """Draw an observed quantity over virtual time: the mean, and the band from 10 to 90%."""
    chosen = evenly_spaced_positions(len(panel.times), MOST_POINTS)
    times, values = panel.times[chosen], panel.values[chosen]
    unit_s = time_axis(figure := blank_figure(260), max(view.end_s, float(times[-1])))
    if values.shape[1] > 1:
        low, high = np.nanpercentile(values, [10, 90], axis=1)
        _draw_band(figure, times / unit_s, low, high, f"10 to 90% of the {who}")
    counts = (~np.isnan(values)).sum(axis=1).tolist()
    hints = [[count, text.duration(time_s)] for count, time_s in zip(counts, times, strict=True)]
    hover = f"Mean <b>%{{y:.4~g}}</b><br>%{{customdata[0]}} {who}, %{{customdata[1]}}"
    mean = Series(times / unit_s, np.nanmean(values, axis=1))
    figure.add(line(mean, "mean", BLUE, hover, hints=hints))
    observed_axis(figure, name if who == "clients" else f"{name} ({who})", values)
    return figure


def _draw_band(
    figure: Figure, x: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64], name: str
) -> None:
    edge: Trace = {"type": "scatter", "x": x, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    edge["legendgroup"] = "band"
    figure.add(edge | {"y": low, "showlegend": False})
    figure.add(edge | {"y": high, "fill": "tonexty", "fillcolor": colour("band"), "name": name})


def models_over_time(view: RunView) -> Figure | None:
    """Draw the mean result of each named model over the clients; None if each client has only one model."""
    names = list(view.get("models") or ())
    if view.measure is None or not names:
        return None
    measure = view.measure[0]
    figure, hues = blank_figure(300), (BLUE, ORANGE, GREEN)
    for index, name in enumerate(names):
        panel = view.panel(model_metric_name(measure.name, name))
        if panel is not None:
            unit_s = time_axis(figure, max(view.end_s, float(panel.times[-1])))
            series = Series(panel.times / unit_s, np.nanmean(panel.values, axis=1))
            hover = f"{name}: mean <b>{measure.y}</b><br>at %{{customdata}}"
            hints, dash = list(map(text.duration, panel.times)), _DASHES[index // len(hues) % len(_DASHES)]
            figure.add(line(series, name, hues[index % len(hues)], hover, hints=hints, dash=dash))
    measure_axis(figure, measure)
    return figure


def weights_over_time(view: RunView) -> Figure | None:
    """Draw the mean learned weight within and across true clusters, among the clients that are up."""
    clusters = view.clusters
    affordable = MOST_SNAPSHOT_PAIRS // max(1, len(view.clients)) ** 2
    times = view.snapshot_times(min(MOST_SNAPSHOTS, max(2, affordable)))
    if clusters is None or len(times) < 2:
        return None
    means = np.array([_mean_weights(view, clusters, time_s) for time_s in times])
    unit_s = time_axis(figure := blank_figure(300), max(view.end_s, float(times[-1])))
    for column, name, hue in ((0, "same cluster", BLUE), (1, "different clusters", ORANGE)):
        hover = f"{name.capitalize()}: mean weight <b>%{{y:.3f}}</b><br>at %{{customdata}}"
        series = Series(times / unit_s, means[:, column])
        figure.add(line(series, name, hue, hover, hints=list(map(text.duration, times))))
    figure.update(yaxis={"title": {"text": "mean weight per pair"}, "rangemode": "tozero"})
    return figure


def _mean_weights(view: RunView, clusters: NDArray[np.int64], time_s: float) -> tuple[float, float]:
    source, target, weight = view.snapshot(time_s)
    up = view.up_at(time_s)
    counted = up[source] & up[target] & (source != target)
    same = clusters[source] == clusters[target]
    sizes = np.unique(clusters[up], return_counts=True)[1]
    pairs_inside = int((sizes * (sizes - 1)).sum())
    pairs_across = int(up.sum()) ** 2 - int((sizes**2).sum())
    return (
        float(weight[counted & same].sum() / pairs_inside) if pairs_inside else np.nan,
        float(weight[counted & ~same].sum() / pairs_across) if pairs_across else np.nan,
    )


def staleness(view: RunView) -> Figure | None:
    """Draw the age of the peers' models when used: mean and 90th percentile over clients."""
    panel = view.panel("staleness")
    if panel is None:
        return None
    chosen = evenly_spaced_positions(len(panel.times), MOST_POINTS)
    times, values = panel.times[chosen], panel.values[chosen]
    unit_s = time_axis(figure := blank_figure(300), max(view.end_s, float(times[-1])))
    for name, ages, hue in (
        ("mean", np.nanmean(values, axis=1), BLUE),
        ("90th percentile", np.nanpercentile(values, 90, axis=1), ORANGE),
    ):
        hints = [[text.duration(a), text.duration(t)] for a, t in zip(ages.tolist(), times, strict=True)]
        hover = f"{name.capitalize()} <b>%{{customdata[0]}}</b><br>at %{{customdata[1]}}"
        figure.add(line(Series(times / unit_s, ages), name, hue, hover, hints=hints))
    figure.update(yaxis={"title": {"text": "staleness (s)"}, "rangemode": "tozero"})
    return figure


def clients_up(view: RunView) -> Figure | None:
    """Draw the number of clients up over virtual time; None without arrivals and departures."""
    if not view.moves:
        return None
    starts, ends = (np.sort([span[end] for spans in view.presence for span in spans]) for end in (0, 1))
    ends = ends[ends < view.end_s]
    times = np.unique(np.concatenate([[0.0], starts, ends, [view.end_s]]))
    times = times[evenly_spaced_positions(len(times), MOST_STEPS)]
    up = np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")
    unit_s = time_axis(figure := blank_figure(220), view.end_s)
    hints, hover = list(map(text.duration, times)), "<b>%{y}</b> clients up<br>at %{customdata}"
    curve = line(Series(times / unit_s, up.astype(float)), "up", BLUE, hover, hints=hints, shape="hv")
    figure.add(curve | {"showlegend": False})
    figure.update(yaxis={"title": {"text": "clients up"}, "rangemode": "tozero"})
    return figure


def _draw_progress(
    figure: Figure, measure: Measure, panel: ClientPanelData, x: NDArray[np.float64], positions: list[str]
) -> None:
    """Draw mean, band and worst 10% of a panel over x; positions: tooltip texts of x."""
    chosen = evenly_spaced_positions(len(x), MOST_POINTS)
    x, values = x[chosen], panel.values[chosen]
    mean, std = np.nanmean(values, axis=1), np.nanstd(values, axis=1)
    counts = (~np.isnan(values)).sum(axis=1).tolist()
    hints = [[measure.text(s), n, positions[i]] for s, n, i in zip(std.tolist(), counts, chosen, strict=True)]
    several = values.shape[1] > 1
    if several:
        # Stay between the least and the largest value: shares stay within [0, 1], logarithmic axes above 0.
        low = np.maximum(mean - std, np.nanmin(values, axis=1))
        high = np.minimum(mean + std, np.nanmax(values, axis=1))
        _draw_band(figure, x, low, high, f"{_PLUS_MINUS} std. dev.")
    hover = f"Mean <b>{measure.y}</b> {_PLUS_MINUS} %{{customdata[0]}}<br>"
    hover += "%{customdata[1]} clients, %{customdata[2]}"
    figure.add(line(Series(x, mean), "mean", BLUE, hover, hints=hints))
    if several:
        higher = measure.higher_is_better
        worst = [worst_decile(row[~np.isnan(row)], higher_is_better=higher) for row in values]
        hover = f"Worst 10% <b>{measure.y}</b><br>%{{customdata[2]}}"
        figure.add(line(Series(x, np.array(worst)), "worst 10%", ORANGE, hover, hints=hints))
    measure_axis(figure, measure)
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    if not measure.is_share and least > 0 and most > _LOG_FROM * least:
        figure.update(yaxis=log_axis(least, most))


def _draw_moves(figure: Figure, view: RunView, unit_s: float) -> None:
    """Mark each arrival by a line with a triangle pointing up, each departure by one pointing down."""
    for move in view.moves:
        arrives = move.event in ARRIVALS
        sign = {
            "text": UP if arrives else DOWN,
            "hovertext": f"{view.clients[move.client]}: {move.event} at {text.duration(move.time_s)}",
            "font": {"color": GREEN if arrives else ORANGE, "size": 13},
            "xanchor": "center",
        }
        _mark(figure, move.time_s / unit_s, "dot", sign)


def _draw_budget_ends(figure: Figure, view: RunView, unit_s: float) -> None:
    """Mark the times at which the first and the last client exhausted their budgets by dashed lines."""
    if np.isnan(view.spent_s).all():
        return
    for which, client in (("first", np.nanargmin(view.spent_s)), ("last", np.nanargmax(view.spent_s))):
        at_s = float(view.spent_s[client])
        hint = f"{view.clients[client]}: budget exhausted at {text.duration(at_s)} (the {which} client)"
        sign = {
            "text": f"{which} budget exhausted",
            "hovertext": hint,
            "font": {"color": FAINT},
            "xanchor": "right",
        }
        _mark(figure, at_s / unit_s, "dash", sign)


def _mark(figure: Figure, x: float, dash: str, sign: dict[str, Any] | None = None) -> None:
    """Draw a vertical line, with a sign at the bottom."""
    ends = {"type": "line", "x0": x, "x1": x, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain"}
    look = {"color": EDGE, "width": 1, "dash": dash}
    figure.mark("shapes", ends | {"line": look})
    if sign is not None:
        foot = {"x": x, "xref": "x", "y": 0, "yref": "y domain", "yanchor": "bottom", "showarrow": False}
        figure.mark("annotations", sign | foot)


# --- a fork and its parent ----------------------------------------------------------------------------------


def fork_and_parent_curves(view: RunView) -> Figure | None:
    """Draw the mean of the measure until the fork, and then of the fork and of its parent."""
    if view.measure is None or view.parent is None or view.fork_s is None:
        return None
    (measure, panel), parent, fork_s = view.measure, view.parent, view.fork_s
    before = _mean(panel, panel.times <= fork_s)
    futures = [_mean(each, each.times > fork_s) for each in (panel, parent)]
    last = [each[-1:] for each in before]  # the common start of both curves
    fork, other = [Series(*map(np.concatenate, zip(last, each, strict=True))) for each in futures]
    unit_s = time_axis(figure := blank_figure(320), float(max(panel.times[-1], parent.times[-1])))
    for name, hue, dash, series in (
        ("before the fork", FAINT, "solid", before),
        ("this run", BLUE, "solid", fork),
        ("parent", ORANGE, "dash", other),
    ):
        if series.times.size:
            hints = list(map(text.duration, series.times))
            hover = f"{name} <b>{measure.y}</b>, %{{customdata}}"
            drawn = Series(series.times / unit_s, series.values)
            figure.add(line(drawn, name, hue, hover, hints=hints, dash=dash))
    _mark(figure, fork_s / unit_s, "dot")
    measure_axis(figure, measure)
    return figure


def fork_differences_table(view: RunView) -> Table | None:
    """Return a table of each client in both runs at their last common evaluation, largest loss first."""
    if view.measure is None or view.parent is None or view.fork_s is None:
        return None
    measure, panel = view.measure
    rows: list[tuple[float, list[str | Cell]]] = []
    for client, name in enumerate(view.clients):
        fork, parent = panel.of(client), view.parent.of(client)
        common = np.intersect1d(fork.times[fork.times > view.fork_s], parent.times)
        if common.size:
            value, of_parent = (value_at(each, common[-1]) for each in (fork, parent))
            better = value - of_parent if measure.higher_is_better else of_parent - value
            values = [
                number_cell(of_parent, measure.text),
                number_cell(value, measure.text),
                difference_cell(value - of_parent, measure),
            ]
            rows.append((better, [name, number_cell(float(common[-1]), text.duration), *values]))
    if not rows:
        return None
    difference = "difference (points)" if measure.is_share else "difference"
    heads = ["client", "time", "parent", "this run", difference]
    ordered = [row for _, row in sorted(rows, key=lambda item: item[0])]
    return Table(heads, ordered, "clients", "largest loss first")


def _mean(panel: ClientPanelData, when: NDArray[np.bool_]) -> Series:
    measured = np.flatnonzero(when & ~np.isnan(panel.values).all(axis=1))
    chosen = measured[evenly_spaced_positions(len(measured), MOST_POINTS)]
    return Series(panel.times[chosen], np.nanmean(panel.values[chosen], axis=1))
