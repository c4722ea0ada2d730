"""Latencies that depend on who talks to whom: measured matrices, and places on the globe.

All of them come down to one thing, `NodeLatency`: every actor sits at a node, and a matrix holds the one-way
latency between any two nodes.  Times are seconds, distances metres, angles degrees.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim.kernel.random import Draws, stream

EARTH_RADIUS_M = 6_371_008.8  # mean radius, IUGG
SPEED_OF_LIGHT_M_PER_S = 299_792_458.0
FIBRE_M_PER_S = SPEED_OF_LIGHT_M_PER_S * 2 / 3  # the refractive index of glass fibre is about 1.5

Place = tuple[float, float]  # latitude (north is positive), longitude (east is positive)


@dataclass(frozen=True, eq=False)  # arrays have no truth value when compared
class NodeLatency:
    """The one-way latency between the nodes of sender and receiver, times a jitter drawn for each message.

    seconds: (slices, nodes, nodes), from row to column; the diagonal holds for two actors on one node.
    node_of: each actor's node.
    slice_s: how long each slice holds; behind the last one the first comes again.
    jitter: standard deviation of the logarithm of the factor, whose median is 1; 0 for none.

    ValueError for latencies that are negative or not finite, and for actors without a row.
    """

    seconds: NDArray[np.float64]
    node_of: Mapping[str, int]
    slice_s: float = math.inf
    jitter: float = 0.0
    _slices: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = self.seconds.shape
        if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise ValueError(f"a matrix of (slices, nodes, nodes) is needed, this is {shape}")
        if not (np.isfinite(self.seconds) & (self.seconds >= 0)).all():
            raise ValueError("every latency must be finite and not negative")
        if any(not 0 <= node < shape[1] for node in self.node_of.values()):
            raise ValueError(f"every actor needs a node from 0 to {shape[1] - 1}")
        if not self.slice_s > 0:
            raise ValueError(f"slice_s must be positive, got {self.slice_s!r} s")
        if not 0 <= self.jitter < math.inf:
            raise ValueError(f"jitter must be finite and not negative, got {self.jitter!r}")
        object.__setattr__(self, "_slices", shape[0])

    def sample(self, pair: tuple[str, str], time_s: float, draws: Draws) -> float:
        """The latency of a message of `pair` that departs at `time_s`; the jitter takes one of `draws`."""
        number = int(time_s / self.slice_s) % self._slices if self._slices > 1 else 0
        seconds = self.seconds.item(number, self.node_of[pair[0]], self.node_of[pair[1]])
        return seconds * math.exp(self.jitter * draws.normal()) if self.jitter else seconds


def sampled_nodes(seed: int, clients: Sequence[str], servers: Sequence[str], nodes: int) -> dict[str, int]:
    """A node for each client, at random, and every node once before any comes again; servers from the end.

    A client's node depends on its number only, so that further clients and servers move nobody.  Nobody
    shares a node as long as clients and servers together are not more than the nodes.
    """
    orders: dict[int, NDArray[np.int64]] = {}

    def place(number: int) -> int:
        turn, position = divmod(number, nodes)
        if turn not in orders:
            orders[turn] = stream(seed, "latency nodes", turn).permutation(nodes)
        return int(orders[turn][position])

    chosen = {name: place(number) for number, name in enumerate(clients)}
    return chosen | {name: place(nodes - 1 - number % nodes) for number, name in enumerate(servers)}


def one_way_seconds(round_trips_s: NDArray[np.float64], slices_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """One-way latencies for `NodeLatency` from measured round trips, (slices, nodes, nodes): half of each.

    What is 0 was not measured, or is below the clock's resolution.  The median of what was measured between
    these two in any of `slices_s` takes its place; without any, and for two actors on one node, the smallest
    positive time of all: they are as near as the nearest two nodes.
    """
    seconds = round_trips_s / 2
    diagonal = np.arange(seconds.shape[1])
    seconds[:, diagonal, diagonal] = 0.0
    nearest_s = seconds[seconds > 0.0].min()
    for row, column in np.argwhere((seconds == 0.0).any(axis=0)):
        measured_s = slices_s[:, row, column]
        measured_s = measured_s[measured_s > 0.0]
        replacement_s = np.median(measured_s) / 2 if len(measured_s) and row != column else nearest_s
        of_pair = seconds[:, row, column]
        of_pair[of_pair == 0.0] = replacement_s
    return seconds


def great_circle_m(one: Place, other: Place) -> float:
    """The distance along the surface of a spherical Earth, by the haversine formula."""
    latitude, longitude = map(math.radians, one)
    other_latitude, other_longitude = map(math.radians, other)
    haversine = (
        math.sin((other_latitude - latitude) / 2) ** 2
        + math.cos(latitude) * math.cos(other_latitude) * math.sin((other_longitude - longitude) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(haversine)))


def fibre_seconds(places: Sequence[Place], floor_s: float, stretch: float) -> NDArray[np.float64]:
    """One-way latencies between places, (1, places, places), at the speed of light in glass fibre.

    The fibre is `stretch` times as long as the great circle; `floor_s` is added for the last mile and the
    routers on the way.
    """
    seconds = [
        [floor_s + stretch * great_circle_m(one, other) / FIBRE_M_PER_S for other in places] for one in places
    ]
    return np.array([seconds])
