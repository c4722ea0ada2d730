"""Map of the clients and servers, with the messages between them."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sim.results.report.figure import Figure
from sim.results.report.graph import SMALL_PX, on_circle, true_groups
from sim.results.report.style import FAINT, HUES, blank_figure, colour, strokes
from sim.results.view import RunView

MOST_LINES = 300
_APART = 2.5  # degrees between a position and the actors drawn around it
_WIDTHS = (0.4, 0.8, 1.4, 2.2)
_MARGIN = 8.0  # degrees
_LANDMARKS = {  # degrees east and north
    "Buenos Aires": (-58.4, -34.6),
    "Cape Town": (18.4, -33.9),
    "Delhi": (77.2, 28.7),
    "Lagos": (3.4, 6.5),
    "London": (-0.1, 51.5),
    "Los Angeles": (-118.2, 34.1),
    "New York": (-74.0, 40.7),
    "Singapore": (103.8, 1.4),
    "Sydney": (151.2, -33.9),
    "Tokyo": (139.7, 35.7),
}


def network_map(view: RunView) -> Figure | None:
    """Draw a map without projection; None if no actor has a position."""
    positions: Mapping[str, list[float]] | None = view.get("places")
    if not positions:
        return None
    where = _separate_positions(positions)
    figure = blank_figure(520)
    _draw_lines(figure, view, where)
    _draw_actors(figure, view, where)
    points = np.array(list(where.values()))
    low, high = points.min(axis=0) - _MARGIN, points.max(axis=0) + _MARGIN
    _name_landmarks(figure, low, high)
    (west, south), (east, north) = low.tolist(), high.tolist()
    figure.update(
        xaxis={"title": {"text": "longitude (° east)"}, "range": [west, east], "constrain": "domain"},
        yaxis={"title": {"text": "latitude (° north)"}, "range": [south, north], "scaleanchor": "x"},
    )
    return figure


def _separate_positions(positions: Mapping[str, list[float]]) -> dict[str, NDArray[np.float64]]:
    """Return longitude and latitude of each actor; actors at one position are moved around it."""
    together: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for name, position in positions.items():
        together[tuple(position)].append(name)
    where: dict[str, NDArray[np.float64]] = {}
    for (latitude, longitude), names in together.items():
        around = on_circle(len(names), _APART if len(names) > 1 else 0.0)
        where |= dict(zip(names, np.array([longitude, latitude]) + around, strict=True))
    return where


def _draw_lines(figure: Figure, view: RunView, where: Mapping[str, NDArray[np.float64]]) -> None:
    found = [(pair, count) for pair, count in view.messages_between().items() if set(pair) <= set(where)]
    if not found:
        return
    most = found[0][1]
    by_width: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for pair, count in found[:MOST_LINES]:
        by_width[-(-4 * count // most) - 1].append(pair)
    for number in sorted(by_width):
        starts, ends = (np.array([where[pair[end]] for pair in by_width[number]]) for end in (0, 1))
        name = f"up to {(number + 1) * most // 4:,} messages"
        figure.add(strokes(starts, ends, _WIDTHS[number], 0.4, name))


def _draw_actors(figure: Figure, view: RunView, where: Mapping[str, NDArray[np.float64]]) -> None:
    groups = [[view.clients[client] for client in group] for group in true_groups(view)]
    others = [name for name in where if name not in view.clients]
    for number, group in enumerate([*groups, others]):
        names = [name for name in group if name in where]
        if not names:
            continue
        is_server = number == len(groups)
        figure.add(
            {
                "type": "scatter",
                "x": [round(float(where[name][0]), 3) for name in names],
                "y": [round(float(where[name][1]), 3) for name in names],
                "ids": names,
                "mode": "markers",
                "marker": {
                    "size": SMALL_PX,
                    "color": FAINT if is_server else HUES[number % len(HUES)],
                    "symbol": "square" if is_server else "circle",
                    "line": {"color": colour("page"), "width": 1},
                },
                "showlegend": False,
                "hovertemplate": "%{id}<extra></extra>",
            }
        )


def _name_landmarks(figure: Figure, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
    seen = {name: at for name, at in _LANDMARKS.items() if (low < at).all() and (at < high).all()}
    figure.add(
        {
            "type": "scatter",
            "x": [longitude for longitude, _ in seen.values()],
            "y": [latitude - 1.5 * _APART for _, latitude in seen.values()],
            "text": list(seen),
            "mode": "text",
            "textfont": {"color": FAINT, "size": 11},
            "textposition": "bottom center",
            "hoverinfo": "skip",
            "showlegend": False,
        }
    )
