"""Heat maps of the report: the learned graph, and the true clusters if they are known."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.results.report.figure import Figure, Trace
from sim.results.report.style import FAINT, TEMPLATE, colour, slider
from sim.results.view import RunView

MOST_GRAPH_ROWS = 120
MOST_GRAPH_CELLS = 240_000  # cells of all snapshots: bounds the size of the report
MOST_GRAPH_SNAPSHOTS = 60
MOST_OUTLINES = 40

_LEARNED, _TRUE = "", "2"  # the axes of each map
_ARROW = "\N{RIGHTWARDS ARROW}"
_DOTS = "\N{HORIZONTAL ELLIPSIS}"


class _Cells:
    """The cells of a client-by-client heat map.

    Clients are sorted by true cluster. Above MOST_GRAPH_ROWS clients, a row stands for several of them.
    """

    def __init__(self, view: RunView) -> None:
        count = len(view.clients)
        self.block = -(-count // MOST_GRAPH_ROWS)
        self.rows = -(-count // self.block)
        order = np.arange(count) if view.clusters is None else np.argsort(view.clusters, kind="stable")
        self.row = np.empty(count, dtype=np.int64)  # of each client
        self.row[order] = np.arange(count) // self.block
        groups = [
            [view.clients[client] for client in order[self.row[order] == row]] for row in range(self.rows)
        ]
        self.labels = [group[0] if len(group) == 1 else f"{group[0]} {_DOTS} {group[-1]}" for group in groups]

    def learned(self, view: RunView, time_s: float) -> NDArray[np.float32]:
        """Return the mean weight of each cell's pairs of different clients that are up; NaN without pairs."""
        source, target, weight = view.snapshot(time_s)
        up = view.up_at(time_s)
        counted = up[source] & up[target] & (source != target)
        cell = self.row[source[counted]] * self.rows + self.row[target[counted]]
        sums = np.bincount(cell, weights=weight[counted], minlength=self.rows**2)
        return self._mean(sums.reshape(self.rows, self.rows), np.bincount(self.row[up], minlength=self.rows))

    def true(self, clusters: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return, of each cell's pairs of different clients, the share of pairs within one cluster."""
        numbers = np.unique(clusters, return_inverse=True)[1]
        members = np.zeros((self.rows, numbers.max() + 1))
        np.add.at(members, (self.row, numbers), 1)
        counts = members.sum(axis=1)
        return self._mean(members @ members.T - np.diag(counts), counts)

    def _mean(self, sums: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float32]:
        pairs = np.outer(counts, counts) - np.diag(counts)
        means = np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=pairs > 0)
        largest = float(np.nanmax(np.abs(means), initial=0.0, where=~np.isnan(means)))
        decimals = max(3, 2 - math.floor(math.log10(largest))) if largest > 0 else 3
        return means.round(decimals).astype(np.float32)


def learned_graph(view: RunView) -> Figure | None:
    """Draw the learned weights with a time slider, and the true clusters if they are known."""
    if len(view.clients) < 2:
        return None
    cells = _Cells(view)
    most = max(2, min(MOST_GRAPH_SNAPSHOTS, MOST_GRAPH_CELLS // cells.rows**2))
    times = view.snapshot_times(most)
    if len(times) == 0:
        return None
    figure = Figure({"template": TEMPLATE})
    _set_axes(figure, cells, beside=view.clusters is not None)
    maps = [cells.learned(view, time_s) for time_s in times]
    largest = max(float(np.nanmax(z, initial=0.0)) for z in maps) or 1.0
    hover = f"%{{y}} {_ARROW} %{{x}}<br>"
    for z in maps:
        trace = _heat_map(cells, z, largest, f"{hover}weight <b>%{{z:.3~f}}</b>")
        figure.add(trace | {"visible": z is maps[-1]}, axes=_LEARNED)
    if view.clusters is not None:
        what = "same cluster" if cells.block == 1 else "share of pairs in one cluster"
        truth = _heat_map(cells, cells.true(view.clusters), 1.0, f"{hover}{what}: %{{z}}")
        figure.add(truth | {"showscale": False}, axes=_TRUE)
        _outline_clusters(figure, cells, view.clusters)
    steps = [[step] for step in range(len(times))]
    figure.update(
        margin={"l": 64, "r": 24, "t": 36, "b": 24},
        height=620,
        plot_bgcolor=colour("unknown"),
    )
    if len(steps) > 1:
        figure.update(sliders=[slider(times, steps, "learned weights at ")])
    return figure


def _heat_map(cells: _Cells, z: NDArray[np.float32], largest: float, hover: str) -> Trace:
    gap = 1 if cells.rows <= 60 else 0
    return {
        "type": "heatmap",
        "z": z,
        "x": cells.labels,
        "y": cells.labels,
        "zmin": 0,
        "zmax": largest,
        "colorscale": [
            [0.0, colour("no-weight")],
            [0.5, colour("half-weight")],
            [1.0, colour("full-weight")],
        ],
        "xgap": gap,
        "ygap": gap,
        "colorbar": {
            "title": {"text": "weight", "side": "right", "font": {"color": FAINT, "size": 13}},
            "thickness": 10,
            "len": 0.7,
            "outlinewidth": 0,
            "ticks": "",
        },
        "hovertemplate": hover + "<extra></extra>",
    }


def _outline_clusters(figure: Figure, cells: _Cells, clusters: NDArray[np.int64]) -> None:
    sizes = np.unique(clusters, return_counts=True)[1]
    if cells.block > 1 or len(sizes) > MOST_OUTLINES:
        return
    edges = np.concatenate([[0], np.cumsum(sizes)]) - 0.5
    for low, high in pairwise(edges.tolist()):
        for axes in (_LEARNED, _TRUE):
            across = {"x0": low, "x1": high, "xref": f"x{axes}"}
            down = {"y0": low, "y1": high, "yref": f"y{axes}"}
            look = {"type": "rect", "line": {"color": FAINT, "width": 1}}
            figure.mark("shapes", across | down | look)


def _set_axes(figure: Figure, cells: _Cells, *, beside: bool) -> None:
    """Set the axes of one map, or of two maps side by side, each with a title above."""
    every = 1 if cells.rows <= 24 else -(-cells.rows // 12)
    axis = {
        "constrain": "domain",
        "tickmode": "array",
        "tickvals": cells.labels[::every],
        "ticktext": [label.split()[0].removeprefix("client-") for label in cells.labels[::every]],
        "tickangle": 0,
        "ticks": "",
        "showgrid": False,
        "showline": False,
    }
    maps = [
        (_LEARNED, "learned weights", (0.0, 0.44 if beside else 1.0)),
        (_TRUE, "true clusters", (0.56, 1.0)),
    ]
    for axes, _, domain in maps[: 1 + beside]:
        across = {"anchor": f"y{axes}", "domain": list(domain), "title": {"text": "client j"}}
        down = {"anchor": f"x{axes}", "domain": [0.0, 1.0]}
        square = {"autorange": "reversed", "scaleanchor": f"x{axes}"}
        figure.update(**{f"xaxis{axes}": across | axis, f"yaxis{axes}": down | axis | square})
    figure.update(yaxis={"title": {"text": "client i"}})
    for _, title, domain in maps[: 1 + beside]:
        middle = {"x": sum(domain) / 2, "xanchor": "center", "xref": "paper"}
        above = {"y": 1.0, "yanchor": "bottom", "yref": "paper"}
        look = {"text": title, "showarrow": False, "font": {"size": 16}}
        figure.mark("annotations", middle | above | look)
