"""Coalitions in the report: benefit graph, losses of the members, and formation over time."""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from sim.results import text
from sim.results.report.blocks import Cell, Table, number_cell
from sim.results.report.figure import Figure, Trace
from sim.results.report.graph import positions, set_square_axes
from sim.results.report.style import EDGE, HUES, INK, blank_figure, colour
from sim.results.view import RunView

MOST_CLIENTS = 60  # drawn
_ARROW_LEFT_OUT = 0.13  # gap between a node and an arrow, in units of the picture
LOSSES = {"alone": "loss alone", "full": "loss with all clients", "equilibrium": "loss in its coalition"}


class CoalitionMember(NamedTuple):
    """A client's coalition and losses at an evaluation."""

    time_s: float
    client: int
    coalition: int
    since_s: float
    alone: float
    full: float
    equilibrium: float


def final_memberships(view: RunView) -> dict[int, CoalitionMember]:
    """Return the last membership of each client that is up at the end."""
    up = view.up_at(view.end_s)
    found = [CoalitionMember(*row) for row in view.coalition_rows]
    return {each.client: each for each in found if up[each.client]}


def coalition_groups(found: dict[int, CoalitionMember]) -> list[list[int]]:
    """Return the members of each coalition, the largest coalition first."""
    by_coalition: dict[int, list[int]] = defaultdict(list)
    for client in sorted(found):
        by_coalition[found[client].coalition].append(client)
    return sorted(by_coalition.values(), key=lambda members: (-len(members), members))


def benefit_graph(view: RunView) -> Figure | None:
    """Draw the last benefit graph: arrows from helpers to the clients they help, colors for coalitions.

    None without coalitions, or above MOST_CLIENTS clients.
    """
    found = final_memberships(view)
    times = view.snapshot_times(2)
    if not found or not len(times) or len(found) > MOST_CLIENTS:
        return None
    coalitions = coalition_groups(found)
    position = positions(coalitions)
    snapshot = view.snapshot(times[-1])
    helped = zip(snapshot.target.tolist(), snapshot.source.tolist(), snapshot.weight.tolist(), strict=True)
    figure = blank_figure(560)
    for helper, client, weight in helped:
        if weight > 0 and helper in position and client in position:
            figure.mark("annotations", _arrow(position[helper], position[client]))
    for number, members in enumerate(coalitions):
        figure.add(_nodes(view, members, number, position, found))
    set_square_axes(figure, np.array(list(position.values())))
    figure.update(showlegend=True)
    return figure


def _arrow(start: np.ndarray, end: np.ndarray) -> dict[str, Any]:
    """Return an arrow from one node to another, with a gap at both."""
    way = (end - start) / (np.linalg.norm(end - start) or 1.0)
    tail, head = start + _ARROW_LEFT_OUT * way, end - _ARROW_LEFT_OUT * way
    ends = {"ax": tail[0], "ay": tail[1], "x": head[0], "y": head[1]}
    return {
        **{key: round(float(value), 4) for key, value in ends.items()},
        "axref": "x",
        "ayref": "y",
        "text": "",
        "showarrow": True,
        "arrowhead": 2,
        "arrowsize": 1.1,
        "arrowwidth": 1.3,
        "arrowcolor": EDGE,
    }


def _nodes(
    view: RunView,
    members: list[int],
    number: int,
    position: dict[int, np.ndarray],
    found: dict[int, CoalitionMember],
) -> Trace:
    alone = len(members) == 1
    labels = [view.clients[client] for client in members]
    hints = [
        f"{label}<br>"
        + "<br>".join(
            f"{shown}: {text.number(getattr(found[client], name))}" for name, shown in LOSSES.items()
        )
        for client, label in zip(members, labels, strict=True)
    ]
    return {
        "type": "scatter",
        "x": [round(float(position[client][0]), 4) for client in members],
        "y": [round(float(position[client][1]), 4) for client in members],
        "mode": "markers+text",
        "name": f"{labels[0]} alone" if alone else f"coalition of {len(members)}: {labels[0]}",
        "text": [label.removeprefix("client-") for label in labels],
        "textposition": "middle center",
        "textfont": {"color": INK if alone else colour("page"), "size": 12},
        "marker": {
            "size": 26,
            "color": colour("panel") if alone else HUES[number % len(HUES)],
            "line": {"color": EDGE, "width": 1},
        },
        "customdata": hints,
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def losses_table(view: RunView) -> Table:
    """Return a table of each client's losses: alone, with all clients, and in its coalition."""
    found = final_memberships(view)
    rows: list[list[str | Cell]] = []
    for members in coalition_groups(found):
        names = ", ".join(view.clients[client] for client in members)
        for client in members:
            known = found[client]
            rows.append(
                [view.clients[client], names, *[number_cell(getattr(known, name)) for name in LOSSES]]
            )
    heads = ["client", "coalition", *LOSSES.values()]
    return Table(heads, rows, "coalitions", "largest coalition first")


def changes_table(view: RunView) -> Table:
    """Return a table of the times at which coalitions were formed."""
    formed: dict[tuple[float, int], list[CoalitionMember]] = defaultdict(list)
    known: dict[int, float] = {}
    for found in (CoalitionMember(*row) for row in view.coalition_rows):
        if known.get(found.client) != found.since_s:
            formed[found.time_s, found.coalition].append(found)
        known[found.client] = found.since_s
    rows: list[list[str | Cell]] = []
    for group in formed.values():
        since_s = min(found.since_s for found in group)
        names = ", ".join(view.clients[found.client] for found in sorted(group, key=lambda f: f.client))
        rows.append([number_cell(since_s, text.duration), names])
    return Table(["since", "members"], rows, "changes", "in chronological order")
