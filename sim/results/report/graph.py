"""The learned graph as a drawing: clients in their true clusters, and lines for the weights."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.report.figure import Figure, Trace
from sim.results.report.style import EDGE, FAINT, HUES, SYMBOLS, blank, colour, slider, strokes
from sim.results.view import RunView

MOST_NODES = 200
MOST_LINES = 1_500  # at one time, the heaviest
_MOST_LINES_IN_ALL = 60_000  # bounds the size of the report
_MOST_TIMES = 60
_MOST_LABELS = 60
SMALL_PX = 13
_MOST_IN_LEGEND = 12
_WIDTHS = (1.0, 1.6, 2.4, 3.4)  # of lines up to 1/4, 2/4, 3/4 and all of the heaviest weight
_STRENGTHS = (0.25, 0.45, 0.7, 1.0)


def drawn_graph(view: RunView) -> Figure | None:
    """Who gives weight to whom, with a time slider; None without a graph, or with very many clients."""
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
    place = places(members)
    where = np.array([place[client] for client in range(count)])
    figure = blank(640)
    steps: list[list[int]] = []
    for weight in weights:
        first = len(figure.data)
        figure.add(*_lines(where, weight / heaviest, heaviest))
        steps.append(list(range(first, len(figure.data))))
    for number, group in enumerate(members):
        figure.add(_nodes(view, number, group, where))
    for step, time_s in zip(steps, times, strict=True):
        step.append(len(figure.data))
        figure.add(_absent(view, np.flatnonzero(~view.up_at(time_s)), where))
    for step in steps[:-1]:
        for trace in step:
            figure.data[trace]["visible"] = False
    frame(figure, where)
    figure.update(showlegend=view.clusters is not None and len(members) <= _MOST_IN_LEGEND)
    if len(times) > 1:
        figure.update(sliders=[slider(times, steps, "weights at ") | {"pad": {"t": 16, "b": 8}}])
    return figure


def true_groups(view: RunView) -> list[list[int]]:
    """The clients of each true cluster; all in one where nothing is known of clusters."""
    if view.clusters is None:
        return [list(range(len(view.clients)))]
    return [np.flatnonzero(view.clusters == cluster).tolist() for cluster in np.unique(view.clusters)]


def places(groups: Sequence[Sequence[int]]) -> dict[int, NDArray[np.float64]]:
    """Groups on a circle, the members of each on a smaller one."""
    radius = [0.0 if len(members) == 1 else 0.4 + 0.12 * len(members) for members in groups]
    around = 0.0 if len(groups) == 1 else (sum(radius) + len(groups)) / math.pi
    centres = on_circle(len(groups), max(around, 1.0))
    place = {}
    for number, members in enumerate(groups):
        centre = centres[number] if around else np.zeros(2)
        for client, beside in zip(members, on_circle(len(members), radius[number]), strict=True):
            place[client] = centre + beside
    return place


def on_circle(count: int, radius: float) -> NDArray[np.float64]:
    """So many points [count, 2] around the origin, as far from each other as they can be."""
    angles = np.arange(count) * 2 * np.pi / count
    return radius * np.column_stack([np.cos(angles), np.sin(angles)])


def frame(figure: Figure, where: NDArray[np.float64]) -> None:
    """Show all of what is `where` [N, 2], without axes, and as long as wide."""
    extent = 0.7 + float(np.abs(where).max())
    axis = {"visible": False, "range": [-extent, extent]}
    figure.update(xaxis=axis, yaxis=axis | {"scaleanchor": "x"}, margin={"l": 8, "r": 8, "b": 24})


def _mutual_weights(view: RunView, time_s: float) -> NDArray[np.float64]:
    """Mean [N, N] of the weights that two clients that are up give each other, above the diagonal only.

    0 where neither weight counts as an edge.
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


def _lines(where: NDArray[np.float64], share: NDArray[np.float64], heaviest: float) -> list[Trace]:
    """The lines of one time in their four widths; share [N, N]: of the heaviest weight."""
    one, other = np.nonzero(share)
    found = share[one, other]
    # Of equals a mixture: those of the first clients would look like a finding.
    kept = np.lexsort(((one * 7919 + other * 104_729) % 65_537, -found))[:MOST_LINES]
    one, other, width = one[kept], other[kept], np.ceil(4 * found[kept]).astype(int) - 1
    return [
        strokes(
            where[one[width == number]],
            where[other[width == number]],
            *look,
            f"weight up to {text.number((number + 1) / 4 * heaviest)}",
        )
        | {"showlegend": False}
        for number, look in enumerate(zip(_WIDTHS, _STRENGTHS, strict=True))
    ]


def _nodes(view: RunView, number: int, group: list[int], where: NDArray[np.float64]) -> Trace:
    small = len(view.clients) > _MOST_LABELS
    cluster = None if view.clusters is None else f"cluster {view.clusters[group[0]]}"
    return {
        "type": "scatter",
        "x": where[group, 0].round(4),
        "y": where[group, 1].round(4),
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
    """What a client has reached in the end, for its tooltip."""
    value = float(view.at_the_end[client])
    if view.measure is None or math.isnan(value):
        return ""
    measure = view.measure[0]
    return f"<br>{measure.label} {measure.text(value)}"


def _numbers(view: RunView, clients: Iterable[int]) -> list[str]:
    """The texts in the clients' marks: their numbers."""
    return [view.clients[client].removeprefix("client-") for client in clients]


def _absent(view: RunView, absent: NDArray[np.int64], where: NDArray[np.float64]) -> Trace:
    """Covers those that are not up."""
    small = len(view.clients) > _MOST_LABELS
    ring = {"color": EDGE, "width": 2}
    return {
        "type": "scatter",
        "x": where[absent, 0].round(4),
        "y": where[absent, 1].round(4),
        "mode": "markers" if small else "markers+text",
        "texttemplate": _numbers(view, absent),  # no text: in the numbers as CSV each client is once
        "textposition": "middle center",
        "textfont": {"color": FAINT, "size": 12},
        "name": "not up",
        "marker": {"size": SMALL_PX if small else 26, "color": colour("page"), "line": ring},
        "hoverinfo": "skip",
        "showlegend": False,
    }
