"""Drawing of the learned graph: clients grouped by true cluster, and lines for the weights."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.report.figure import Figure, Trace
from sim.results.report.style import EDGE, FAINT, HUES, SYMBOLS, blank_figure, colour, slider, strokes
from sim.results.view import RunView

MOST_NODES = 200
MOST_LINES = 1_500  # largest weights drawn at one time
_MOST_LINES_IN_ALL = 60_000  # bounds the size of the report
_MOST_TIMES = 60
_MOST_LABELS = 60
SMALL_PX = 13
_MOST_IN_LEGEND = 12
_WIDTHS = (1.0, 1.6, 2.4, 3.4)  # of lines up to 1/4, 2/4, 3/4 and 4/4 of the largest weight
_STRENGTHS = (0.25, 0.45, 0.7, 1.0)


def drawn_graph(view: RunView) -> Figure | None:
    """Draw the learned graph with a time slider; None without a graph, or above MOST_NODES clients."""
    count = len(view.clients)
    if not 2 <= count <= MOST_NODES:
        return None
    at_most = min(count * (count - 1) // 2, MOST_LINES)
    times = view.snapshot_times(max(2, min(_MOST_TIMES, _MOST_LINES_IN_ALL // at_most)))
    if not len(times):
        return None
    weights = [_mutual_weights(view, time_s) for time_s in times]
    heaviest = max(float(weight.max(initial=0.0)) for weight in weights) or 1.0
    members = true_groups(view)
    by_client = positions(members)
    points = np.array([by_client[client] for client in range(count)])
    figure = blank_figure(640)
    steps: list[list[int]] = []
    for weight in weights:
        first = len(figure.data)
        figure.add(*_lines(points, weight / heaviest, heaviest))
        steps.append(list(range(first, len(figure.data))))
    for number, group in enumerate(members):
        figure.add(_nodes(view, number, group, points))
    for step, time_s in zip(steps, times, strict=True):
        step.append(len(figure.data))
        figure.add(_cover_absent_clients(view, np.flatnonzero(~view.up_at(time_s)), points))
    for step in steps[:-1]:
        for trace in step:
            figure.data[trace]["visible"] = False
    set_square_axes(figure, points)
    figure.update(showlegend=view.clusters is not None and len(members) <= _MOST_IN_LEGEND)
    if len(times) > 1:
        figure.update(sliders=[slider(times, steps, "weights at ") | {"pad": {"t": 16, "b": 8}}])
    return figure


def true_groups(view: RunView) -> list[list[int]]:
    """Return the clients of each true cluster, or one group of all clients if clusters are unknown."""
    if view.clusters is None:
        return [list(range(len(view.clients)))]
    return [np.flatnonzero(view.clusters == cluster).tolist() for cluster in np.unique(view.clusters)]


def positions(groups: Sequence[Sequence[int]]) -> dict[int, NDArray[np.float64]]:
    """Return each client's position [2]: groups on a circle, the members of a group on a smaller one."""
    radius = [0.0 if len(members) == 1 else 0.4 + 0.12 * len(members) for members in groups]
    around = 0.0 if len(groups) == 1 else (sum(radius) + len(groups)) / math.pi
    centres = on_circle(len(groups), max(around, 1.0))
    found = {}
    for number, members in enumerate(groups):
        centre = centres[number] if around else np.zeros(2)
        for client, offset in zip(members, on_circle(len(members), radius[number]), strict=True):
            found[client] = centre + offset
    return found


def on_circle(count: int, radius: float) -> NDArray[np.float64]:
    """Return `count` evenly spaced points [count, 2] on a circle around the origin."""
    angles = np.arange(count) * 2 * np.pi / count
    return radius * np.column_stack([np.cos(angles), np.sin(angles)])


def set_square_axes(figure: Figure, points: NDArray[np.float64]) -> None:
    """Set hidden, square axes around the points [N, 2]."""
    extent = 0.7 + float(np.abs(points).max())
    axis = {"visible": False, "range": [-extent, extent]}
    figure.update(xaxis=axis, yaxis=axis | {"scaleanchor": "x"}, margin={"l": 8, "r": 8, "b": 24})


def _mutual_weights(view: RunView, time_s: float) -> NDArray[np.float64]:
    """Return the mean weights [N, N] between pairs of clients that are up, above the diagonal only.

    A pair is 0 if neither of its weights is an edge.
    """
    count = len(view.clients)
    source, target, weight = view.snapshot(time_s)
    up = view.up_at(time_s)
    counted = up[source] & up[target]
    whole = np.zeros((count, count))
    whole[source[counted], target[counted]] = weight[counted]
    edges = whole > view.edge_threshold * (
        whole.max(axis=1, keepdims=True) if view.weights_are_shares else 1.0
    )
    return np.triu((whole + whole.T) * (edges | edges.T), 1) / 2


def _lines(points: NDArray[np.float64], share: NDArray[np.float64], heaviest: float) -> list[Trace]:
    """Return the lines of one time in four widths; share [N, N]: weights over the largest weight."""
    one, other = np.nonzero(share)
    found = share[one, other]
    # Mix pairs of equal weight: a cut by client numbers would look like a result.
    kept = np.lexsort(((one * 7919 + other * 104_729) % 65_537, -found))[:MOST_LINES]
    one, other, width = one[kept], other[kept], np.ceil(4 * found[kept]).astype(int) - 1
    return [
        strokes(
            points[one[width == number]],
            points[other[width == number]],
            *look,
            f"weight up to {text.number((number + 1) / 4 * heaviest)}",
        )
        | {"showlegend": False}
        for number, look in enumerate(zip(_WIDTHS, _STRENGTHS, strict=True))
    ]


def _nodes(view: RunView, number: int, group: list[int], points: NDArray[np.float64]) -> Trace:
    small = len(view.clients) > _MOST_LABELS
    cluster = None if view.clusters is None else f"cluster {view.clusters[group[0]]}"
    return {
        "type": "scatter",
        "x": points[group, 0].round(4),
        "y": points[group, 1].round(4),
        "ids": [view.clients[client] for client in group],
        "mode": "markers" if small else "markers+text",
        "name": cluster or "clients",
        "text": _numbers(view, group),
        "textposition": "middle center",
        "textfont": {"color": colour("page"), "size": 12},
        "marker": {
            "size": SMALL_PX if small else 26,
            "color": HUES[number % len(HUES)],
            "symbol": SYMBOLS[number // len(HUES) % len(SYMBOLS)],
            "line": {"color": colour("page"), "width": 1},
        },
        "customdata": [[view.clients[client], _outcome(view, client)] for client in group],
        "hovertemplate": f"<b>%{{customdata[0]}}</b>{f', {cluster}' if cluster else ''}"
        "%{customdata[1]}<extra></extra>",
    }


def _outcome(view: RunView, client: int) -> str:
    """Return a client's final result, for its tooltip."""
    value = float(view.at_the_end[client])
    if view.measure is None or math.isnan(value):
        return ""
    measure = view.measure[0]
    return f"<br>{measure.label} {measure.text(value)}"


def _numbers(view: RunView, clients: Iterable[int]) -> list[str]:
    """Return the numbers of clients, which label their marks."""
    return [view.clients[client].removeprefix("client-") for client in clients]


def _cover_absent_clients(view: RunView, absent: NDArray[np.int64], points: NDArray[np.float64]) -> Trace:
    """Cover the marks of clients that are not up."""
    small = len(view.clients) > _MOST_LABELS
    ring = {"color": EDGE, "width": 2}
    return {
        "type": "scatter",
        "x": points[absent, 0].round(4),
        "y": points[absent, 1].round(4),
        "mode": "markers" if small else "markers+text",
        "texttemplate": _numbers(view, absent),  # not `text`, so that the CSV lists each client once
        "textposition": "middle center",
        "textfont": {"color": FAINT, "size": 12},
        "name": "not up",
        "marker": {"size": SMALL_PX if small else 26, "color": colour("page"), "line": ring},
        "hoverinfo": "skip",
        "showlegend": False,
    }
