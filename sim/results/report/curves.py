"""The report's curves. Each builder gives a figure, or None where the run has no data for it."""

from functools import partial

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from sim.results import text
from sim.results.metrics import ALONE, Series, value_at, worst_decile
from sim.results.population import ARRIVALS, Panel
from sim.results.report.style import BLUE, EDGE, FAINT, GREEN, ORANGE, blank, colour, line
from sim.results.view import Measure, RunView, evenly

MOST_POINTS = 600  # of a line
MOST_STEPS = 2_000  # of the number of clients, in which each arrival is one
MOST_MOVE_LINES = 40
MOST_SNAPSHOTS = 120
MOST_SNAPSHOT_PAIRS = 20_000_000  # read for one picture, all snapshots together

_UP, _DOWN = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}"
_DASHES = ("solid", "dash", "dot")  # of curves beyond the third
_PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


def progress_over_time(view: RunView) -> go.Figure | None:
    """What clients are judged by, over virtual time: mean, band of one standard deviation, worst 10 %."""
    if view.measure is None:
        return None
    measure, panel = view.measure
    unit_s = _time_axis(figure := blank(390), view, panel.times)
    _draw_progress(figure, measure, panel, panel.times / unit_s, [text.duration(t) for t in panel.times])
    _draw_alone(figure, view, measure, unit_s)
    if len(view.moves) <= MOST_MOVE_LINES:
        _draw_moves(figure, view, unit_s)
    return figure


def progress_over_bytes(view: RunView) -> go.Figure | None:
    """The same over the bytes that all clients had sent; None if nothing was sent."""
    if view.measure is None or not (view.bytes_sent.values > 0).any():
        return None
    measure, panel = view.measure
    sent = np.array([value_at(view.bytes_sent, time_s) for time_s in panel.times])
    factor, unit = text.scale_of_size(sent[-1])
    figure = blank(390)
    _draw_progress(figure, measure, panel, sent / factor, [f"{text.size(count)} sent" for count in sent])
    figure.update_xaxes(title_text=f"sent by all clients ({unit})", rangemode="tozero")
    return figure


def models_over_time(view: RunView) -> go.Figure | None:
    """The mean over clients of each of their models, where they have several by name."""
    names = list(view.get("models") or ())
    if view.measure is None or not names:
        return None
    measure = view.measure[0]
    figure, hues = blank(300), (BLUE, ORANGE, GREEN)
    for place, name in enumerate(names):
        panel = view.panel(f"{measure.name}_of_{name}")
        if panel is None:
            continue
        unit_s = _time_axis(figure, view, panel.times)
        hover = f"{name}: mean <b>{_shown(measure)}</b><br>at %{{customdata}}"
        series = Series(panel.times / unit_s, np.nanmean(panel.values, axis=1))
        hints = [text.duration(time_s) for time_s in panel.times]
        curve = line(series, name, hues[place % len(hues)], hover, hints=hints)
        figure.add_trace(curve.update(line_dash=_DASHES[place // len(hues) % len(_DASHES)]))
    figure.update_yaxes(title_text=measure.label)
    if measure.is_share:
        figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def weights_over_time(view: RunView) -> go.Figure | None:
    """Mean learned weight inside and across the true clusters, among the clients that are up."""
    clusters = view.clusters
    affordable = MOST_SNAPSHOT_PAIRS // max(1, len(view.clients)) ** 2
    times = view.snapshot_times(min(MOST_SNAPSHOTS, max(2, affordable)))
    if clusters is None or len(times) < 2:
        return None
    means = np.array([_mean_weights(view, clusters, time_s) for time_s in times])
    unit_s = _time_axis(figure := blank(300), view, times)
    hints = [text.duration(time_s) for time_s in times]
    for column, name, hue in ((0, "same cluster", BLUE), (1, "different clusters", ORANGE)):
        hover = f"{name.capitalize()}: mean weight <b>%{{y:.3f}}</b><br>at %{{customdata}}"
        figure.add_trace(line(Series(times / unit_s, means[:, column]), name, hue, hover, hints=hints))
    figure.update_yaxes(title_text="mean weight of a pair", rangemode="tozero")
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


def staleness(view: RunView) -> go.Figure | None:
    """Age of the peers' models when they were used: mean and 90th percentile over clients."""
    panel = view.panel("staleness")
    if panel is None:
        return None
    chosen = evenly(len(panel.times), MOST_POINTS)
    times, values = panel.times[chosen], panel.values[chosen]
    unit_s = _time_axis(figure := blank(300), view, times)
    lines = (
        ("mean", np.nanmean(values, axis=1), BLUE),
        ("90th percentile", np.nanpercentile(values, 90, axis=1), ORANGE),
    )
    for name, ages, hue in lines:
        hints = [[text.duration(a), text.duration(t)] for a, t in zip(ages.tolist(), times, strict=True)]
        hover = f"{name.capitalize()} <b>%{{customdata[0]}}</b><br>at %{{customdata[1]}}"
        figure.add_trace(line(Series(times / unit_s, ages), name, hue, hover, hints=hints))
    figure.update_yaxes(title_text="age when used (s)", rangemode="tozero")
    return figure


def clients_up(view: RunView) -> go.Figure | None:
    """How many clients were up, over virtual time; None if nobody came or went."""
    if not view.moves:
        return None
    spans = [span for spans in view.presence for span in spans]
    starts, ends = (np.sort([span[end] for span in spans]) for end in (0, 1))
    times = np.unique(np.concatenate([[0.0], starts, ends[ends < view.end_s], [view.end_s]]))
    up = np.searchsorted(starts, times, "right") - np.searchsorted(ends[ends < view.end_s], times, "right")
    chosen = evenly(len(times), MOST_STEPS)
    unit_s = _time_axis(figure := blank(220), view, times)
    hints = [text.duration(time_s) for time_s in times[chosen]]
    hover = "<b>%{y}</b> clients up<br>at %{customdata}"
    curve = line(Series(times[chosen] / unit_s, up[chosen].astype(float)), "up", BLUE, hover, hints=hints)
    figure.add_trace(curve.update(line_shape="hv", showlegend=False))
    figure.update_yaxes(title_text="clients up", rangemode="tozero")
    return figure


def _time_axis(figure: go.Figure, view: RunView, times: NDArray[np.float64]) -> float:
    """Makes the x axis virtual time, from 0 to the run's end, and returns its unit in seconds."""
    end_s = max(view.end_s, float(times[-1]))
    unit_s, unit = text.scale_of_time(end_s)
    figure.update_xaxes(title_text=f"virtual time ({unit})", range=[0, (end_s or 1.0) / unit_s])
    return unit_s


def _draw_progress(
    figure: go.Figure, measure: Measure, panel: Panel, x: NDArray[np.float64], positions: list[str]
) -> None:
    chosen = evenly(len(x), MOST_POINTS)
    x, values = x[chosen], panel.values[chosen]
    mean, std = np.nanmean(values, axis=1), np.nanstd(values, axis=1)
    worst = [worst_decile(row[~np.isnan(row)], higher_is_better=measure.higher_is_better) for row in values]
    readable = text.share if measure.is_share else text.number
    hints = [
        [readable(s), int(n), positions[i]]
        for s, n, i in zip(std.tolist(), (~np.isnan(values)).sum(axis=1), chosen, strict=True)
    ]
    shown = _shown(measure)
    several = values.shape[1] > 1
    if several:
        _draw_band(figure, x, values, mean, std)
    hover = f"Mean <b>{shown}</b> {_PLUS_MINUS} %{{customdata[0]}}<br>"
    hover += "%{customdata[1]} clients, %{customdata[2]}"
    figure.add_trace(line(Series(x, mean), "mean", BLUE, hover, hints=hints))
    if several:
        hover = f"Worst 10% <b>{shown}</b><br>%{{customdata[2]}}"
        figure.add_trace(line(Series(x, np.array(worst)), "worst 10%", ORANGE, hover, hints=hints))
    figure.update_yaxes(title_text=measure.label)
    if measure.is_share:
        figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    elif np.nanmin(values) > 0:
        decades = np.log10(np.nanmax(values) / np.nanmin(values))
        figure.update_yaxes(type="log", exponentformat="power", dtick=1 if decades > 2 else None)


def _draw_band(
    figure: go.Figure,
    x: NDArray[np.float64],
    values: NDArray[np.float64],
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
) -> None:
    # Never beyond what any client reached: shares stay within 0 and 1, logarithmic axes above 0.
    low = np.maximum(mean - std, np.nanmin(values, axis=1))
    high = np.minimum(mean + std, np.nanmax(values, axis=1))
    edge = partial(go.Scatter, x=x, mode="lines", line={"width": 0}, hoverinfo="skip", legendgroup="band")
    figure.add_trace(edge(y=low, showlegend=False))
    name = f"{_PLUS_MINUS} std. dev."
    figure.add_trace(edge(y=high, fill="tonexty", fillcolor=colour("band"), name=name))


def _draw_alone(figure: go.Figure, view: RunView, measure: Measure, unit_s: float) -> None:
    """What training alone would have led to, as a level to compare the end with: it has no course in time."""
    alone = view.last(measure.name + ALONE)
    if alone is None or np.isnan(alone).all():
        return
    times, level = np.array([0.0, view.end_s]) / unit_s, float(np.nanmean(alone))
    hover = f"Mean after as many steps alone <b>{_shown(measure)}</b>"
    figure.add_trace(line(Series(times, np.full(2, level)), "alone, at the end", FAINT, hover, dash="dot"))


def _draw_moves(figure: go.Figure, view: RunView, unit_s: float) -> None:
    """A line for each arrival, with a triangle that points up, and for each departure, pointing down."""
    for move in view.moves:
        arrives = move.event in ARRIVALS
        figure.add_vline(
            move.time_s / unit_s,
            line={"color": EDGE, "width": 1, "dash": "dot"},
            annotation={
                "text": _UP if arrives else _DOWN,
                "hovertext": f"{view.clients[move.client]}: {move.event} at {text.duration(move.time_s)}",
                "font": {"color": GREEN if arrives else ORANGE, "size": 13},
                "x": move.time_s / unit_s,
                "xanchor": "center",
                "y": 0,
                "yanchor": "bottom",
                "showarrow": False,
            },
        )


def _shown(measure: Measure) -> str:
    """How plotly is to write a value."""
    return "%{y:.1%}" if measure.is_share else "%{y:.4~g}"
