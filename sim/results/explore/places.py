"""Places of the actors in the drawing of the graph, from -1 to 1."""

import math
from collections.abc import Iterable, Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

_CIRCLE_MOST = 24  # members of a group on a circle; more fill a disc
_ALONE_ON_CIRCLE_MOST = 60
_SPRINGS_MOST = 300  # nodes: bounds the computing time
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))


def places(
    groups: Sequence[Sequence[int]], servers: int, pairs: Iterable[tuple[int, int]]
) -> NDArray[np.float64]:
    """Return the places [clients + servers, 2] of clients in groups, followed by servers.

    pairs: clients that belong near each other; used if there is only one group, with too many members for a
    circle.
    """
    count = sum(map(len, groups))
    if len(groups) > 1:
        found = _place_groups(groups)
    elif count <= _ALONE_ON_CIRCLE_MOST:
        found = _circle(count)
    elif count <= _SPRINGS_MOST and (near := list(pairs)):
        found = _springs(count, near)
    else:
        found = _disc(count)
    middle_is_free = len(groups) > 1 or count <= _ALONE_ON_CIRCLE_MOST
    across = np.linspace(-0.4, 0.4, servers) if servers > 1 else np.zeros(servers)
    return np.vstack([found, np.column_stack([across, np.full(servers, 0.0 if middle_is_free else 1.12)])])


def _place_groups(groups: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    found = np.zeros((sum(map(len, groups)), 2))
    radius = min(0.36, 0.72 * math.sin(math.pi / len(groups)))
    for members, centre in zip(groups, (1 - radius) * _circle(len(groups)), strict=True):
        is_small = len(members) <= _CIRCLE_MOST
        shape = 0.7 * _circle(len(members)) if is_small else _disc(len(members))
        found[list(members)] = centre + radius * (shape if len(members) > 1 else 0)
    return found


def _circle(count: int) -> NDArray[np.float64]:
    angles = np.arange(count) * 2 * np.pi / max(1, count) - np.pi / 2
    return np.column_stack([np.cos(angles), np.sin(angles)])


def _disc(count: int) -> NDArray[np.float64]:
    """Return evenly spaced points in a disc, from the middle outwards."""
    number = np.arange(count)
    radius, angles = np.sqrt((number + 0.5) / max(1, count)), number * _GOLDEN_ANGLE
    return np.column_stack([radius * np.cos(angles), radius * np.sin(angles)])


def _springs(count: int, near: list[tuple[int, int]]) -> NDArray[np.float64]:
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(near)
    found = nx.spring_layout(graph, seed=1, k=2.5 / math.sqrt(count))
    points = np.array([found[each] for each in range(count)])
    points -= points.mean(axis=0)
    ordered = np.sort(np.hypot(*points.T))
    reach = ordered[int(0.98 * (count - 1))] or 1.0  # a few distant nodes do not shrink the others
    length = np.maximum(np.hypot(*points.T), 1e-9)[:, None]
    return points / length * np.minimum(length / reach, 1.0)
