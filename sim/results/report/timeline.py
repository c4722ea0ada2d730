"""Timeline of the report: activity of each client's device, arrivals and departures."""

from base64 import b64encode

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.population import ARRIVALS, DEPARTURES
from sim.results.report.figure import Figure
from sim.results.report.style import ARRIVAL, DEPARTURE, EDGE, GREEN, ORANGE, blank_figure, colour
from sim.results.view import RunView

MOST_CLIENTS = 200
MOST_OF_MANY = 100  # clients with the worst results, shown if there are more than MOST_CLIENTS
_MOST_CELLS = 60_000
_MOST_BINS = 300

Spans = list[NDArray[np.float64]]
"""Intervals [K, 2] (start_s, end_s) of each shown client, ascending."""


def clients_shown(view: RunView) -> list[int]:
    """Return all clients in order; if more than MOST_CLIENTS, the MOST_OF_MANY worst ones, worst first."""
    count = len(view.clients)
    return list(range(count)) if count <= MOST_CLIENTS else view.worst_first[:MOST_OF_MANY]


def timeline(view: RunView) -> Figure | None:
    """Draw a row per client: training, waiting or down, with arrivals and departures marked."""
    shown = clients_shown(view)
    busy, down = [view.intervals(state, shown) for state in ("busy", "down")]
    if not shown or view.end_s <= 0 or busy is None or down is None:
        return None
    bins = min(_MOST_BINS, _MOST_CELLS // len(shown))
    edges = np.linspace(0, view.end_s, bins + 1)
    shares = _shares(busy, down, edges)
    training_share, _, down_share = shares
    unit_s, unit = text.scale_of_time(view.end_s)
    row_px = 24 if len(shown) <= 24 else 14 if len(shown) <= 60 else 6
    names = [view.clients[client] for client in shown]
    figure = blank_figure(130 + row_px * len(shown))
    hover = (
        f"%{{y}} at %{{x:.4~g}} {unit}<br>in an interval of {text.duration(view.end_s / bins)}: "
        "training <b>%{customdata[0]:.1%}</b>, "
        "waiting %{customdata[1]:.1%}, down %{customdata[2]:.1%}<extra></extra>"
    )
    figure.add(
        {
            "type": "heatmap",
            # A gap shows the background, which has the color of "down"; gaps have tooltips too.
            "z": np.where(down_share > 0.5, np.nan, training_share).round(3).astype(np.float32),
            "x": (edges[:-1] + edges[1:]) / 2 / unit_s,
            "y": names,
            "customdata": np.stack(shares, axis=-1).round(4).astype(np.float32),
            "zmin": 0,
            "zmax": 1,
            "colorscale": [[0, colour("waiting")], [1, colour("training")]],
            "showscale": False,
            "ygap": row_px // 5,
            "hoverongaps": True,
            "hovertemplate": hover,
        }
    )
    figure.update(meta={"unit_s": unit_s, "bins": bins} | _spans(busy, down))
    _mark_moves(figure, view, shown, unit_s)
    _set_legend_and_axes(figure, names, row_px, view.end_s / unit_s, unit)
    return figure


def covered(spans: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds of each bin [B] of `edges` [B+1] covered by disjoint, ascending `spans` [K, 2]."""
    if len(spans) == 0:
        return np.zeros(len(edges) - 1)
    totals = np.concatenate([[0.0], np.cumsum(spans[:, 1] - spans[:, 0])])
    at_knots = np.column_stack([totals[:-1], totals[1:]]).ravel()
    return np.diff(np.interp(edges, spans.ravel(), at_knots))


def _shares(busy: Spans, down: Spans, edges: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the shares [C, B] of each bin in which each client was training, waiting and down."""
    width_s = edges[1] - edges[0]
    training, absent = (
        np.array([covered(spans, edges) for spans in of_each]).clip(0, width_s) / width_s
        for of_each in (busy, down)
    )
    return [training, (1 - training - absent).clip(0, 1), absent]


def _spans(busy: Spans, down: Spans) -> dict[str, list[str]]:
    """Return each row's spans of both states, from which the page's script computes cells after a zoom.

    Each row is start, end, start, end, ... in seconds, as little-endian 64-bit floats in base64.
    """
    return {
        state: [b64encode(spans.astype("<f8").tobytes()).decode() for spans in of_each]
        for state, of_each in (("busy", busy), ("down", down))
    }


def _mark_moves(figure: Figure, view: RunView, shown: list[int], unit_s: float) -> None:
    kinds = (("arrives", ARRIVALS, GREEN, ARRIVAL), ("departs", DEPARTURES, ORANGE, DEPARTURE))
    rows = set(shown)
    for name, events, fill, symbol in kinds:
        moves = [move for move in view.moves if move.event in events and move.client in rows]
        if not moves:
            continue
        figure.add(
            {
                "type": "scatter",
                "x": [move.time_s / unit_s for move in moves],
                "y": [view.clients[move.client] for move in moves],
                "text": [f"{view.clients[m.client]}: {m.event} at {text.duration(m.time_s)}" for m in moves],
                "mode": "markers",
                "name": name,
                "marker": {
                    "symbol": symbol,
                    "size": 12,
                    "color": fill,
                    "line": {"color": colour("page"), "width": 1.5},  # separates it from the cells
                },
                "hovertemplate": "<b>%{text}</b><extra></extra>",
                "cliponaxis": False,
            }
        )


def _set_legend_and_axes(figure: Figure, names: list[str], row_px: int, end: float, unit: str) -> None:
    for name in ("training", "waiting", "down"):
        mark = {"symbol": "square", "size": 12, "color": colour(name), "line": {"color": EDGE, "width": 1}}
        key = {"type": "scatter", "x": [None], "y": [names[0]], "mode": "markers", "name": name}
        figure.add(key | {"marker": mark})
    every = -(-16 // row_px)  # a label is 16 pixels high
    figure.update(
        xaxis={"title": {"text": f"virtual time ({unit})"}, "range": [0, end], "showgrid": False},
        yaxis={
            "range": [len(names) - 0.5, -0.5],  # the first client on top
            "showgrid": False,
            "showline": False,
            "ticks": "",
            "tickmode": "array",
            "tickvals": names[::every],
        },
        legend={"y": 1, "itemclick": False, "itemdoubleclick": False},
        plot_bgcolor=colour("down"),
    )
