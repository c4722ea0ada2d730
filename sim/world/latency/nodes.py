"""Latencies that depend on sender and receiver: each actor has a node, and a matrix holds the latencies."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.settings.base import Settings
from sim.kernel.random import RandomStream
from sim.world.distributions import Distribution
from sim.world.participants import Participants
from sim.world.periods import place_in_period

LATENCY_MAX_S = 86_400.0  # a day, in measured files


class PairLatency(Protocol):
    """Latency of messages, by sender and receiver. has_randomness: True if `sample` takes random numbers."""

    @property
    def has_randomness(self) -> bool: ...

    def sample(self, pair: tuple[str, str], time_s: float, draws: RandomStream) -> float:
        """Return the latency in seconds of a message of `pair` that departs at `time_s`. Raises UserError."""


class NoRandomNumbers:
    """Random stream of a latency without randomness. Every use raises TypeError."""

    def __getattr__(self, name: str) -> NoReturn:
        problem = "a latency takes random numbers, but its has_randomness is False"
        raise TypeError(f"{problem}: see PairLatency in sim/world/latency/nodes.py")


LatencyModel = Distribution | PairLatency
"""Model of the latency of messages."""


@dataclass(frozen=True, eq=False)  # arrays have no truth value when compared
class NodeLatency:
    """One-way latency between the nodes of sender and receiver, times a jitter drawn for each message.

    seconds: (slices, nodes, nodes), from row to column. The diagonal applies to two actors on one node.
    node_of: each actor's node.
    slice_s: duration of each slice; after the last slice, the first follows. None: the first slice, forever.
    jitter: standard deviation of the factor's logarithm (the median is 1); 0 for no jitter.
    positions: latitude and longitude of each actor in degrees, if known.
    """

    seconds: NDArray[np.float64]
    node_of: Mapping[str, int]
    slice_s: float | None = None
    jitter: float = 0.0
    positions: Mapping[str, tuple[float, float]] | None = None

    @property
    def has_randomness(self) -> bool:
        return self.jitter > 0

    def sample(self, pair: tuple[str, str], time_s: float, draws: RandomStream) -> float:
        """Return a message's latency in seconds at departure time `time_s`. Jitter takes one of `draws`."""
        number = place_in_period(time_s, self.slice_s)[0] if self.slice_s is not None else 0
        seconds = self.seconds.item(number % len(self.seconds), self.node_of[pair[0]], self.node_of[pair[1]])
        return seconds * math.exp(self.jitter * draws.normal()) if self.jitter else seconds


class LatencyByNode(Settings):
    """Kind of latency that depends on sender and receiver."""

    @abstractmethod
    def build(self, key: str, participants: Participants) -> PairLatency:
        """Return the model for these participants. key: its key in the scenario. Raises UserError."""
