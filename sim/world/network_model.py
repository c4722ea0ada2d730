"""Model of a network: the properties of each kind of connection, and the connections of each kind.

Times are seconds, bandwidths bits per second (None for unlimited), sizes bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

from sim.kernel.random import RandomStream, pair_key
from sim.world.devices.slowness import Piece
from sim.world.distributions import Constant, Distribution
from sim.world.latency.nodes import LatencyModel, NoRandomNumbers
from sim.world.loss.models import NO_LOSS, PairLosses
from sim.world.partitions import ScheduledPartition

Schedule = Callable[[], Iterator[Piece]]
"""Returns the bandwidths of a link over time: pairs of the end of a period and its bandwidth."""


_NO_RANDOM_NUMBERS = NoRandomNumbers()


@dataclass(frozen=True, slots=True)
class ConnectionModel:
    """Properties of the connections of one kind.

    latency: seconds from the end of a message's transfer to its arrival, drawn for each message or by nodes.
    reliable: True if lost transmissions are repeated and each pair's messages stay in order, as with TCP. If
    False, a lost datagram is gone, and a datagram may overtake an earlier one.
    loss: loss of transmissions.
    rto_s: latency that each repetition adds. Repetitions take no bandwidth.
    duplicate: probability that a datagram that is not lost is duplicated. The duplicate is made after the
        transfer, is never lost, and has a separate latency.
    reorder, reorder_s: probability of an additional delay of a datagram, and this delay.
    bandwidth_bps: limit of each single connection, in addition to the limits of its ends.
    """

    latency: LatencyModel
    reliable: bool = True
    loss: PairLosses = NO_LOSS
    rto_s: float = 0.2
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_s: float = 0.0
    bandwidth_bps: float | None = None
    constant_s: float | None = field(init=False, repr=False)  # the latency, if it is constant
    has_randomness: bool = field(init=False, repr=False)  # True if anything but the latency is random
    by_node: bool = field(init=False, repr=False)  # True if latencies depend on sender and receiver
    _random_latency: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        latency = self.latency
        by_node = not isinstance(latency, Distribution)
        constant_s = latency.value if isinstance(latency, Constant) else None
        random = constant_s is None if isinstance(latency, Distribution) else latency.has_randomness
        object.__setattr__(self, "constant_s", constant_s)
        object.__setattr__(self, "has_randomness", any((self.loss.rate, self.duplicate, self.reorder)))
        object.__setattr__(self, "by_node", by_node)
        object.__setattr__(self, "_random_latency", random)

    def latency_key(self, seed: int, purpose: str, pair: tuple[str, str]) -> int | None:
        """Return the key of the random stream for a pair's latencies. None if they are not random."""
        return pair_key(seed, purpose, *pair) if self._random_latency else None

    def latency_s(self, pair: tuple[str, str], time_s: float, draws: RandomStream) -> float:
        """Return the latency of a message that departs at `time_s`, with `draws` of the pair's key."""
        if self.constant_s is not None:
            return self.constant_s
        if self.by_node:
            stream = draws if self._random_latency else _NO_RANDOM_NUMBERS
            return self.latency.sample(pair, time_s, stream)  # type: ignore[call-arg, arg-type]
        return self.latency.sample(draws)  # type: ignore[call-arg, arg-type]


@dataclass(frozen=True, slots=True)
class ConnectionClass:
    """Kind of connection, and the connections of this kind.

    model: the properties of these connections.
    group_of: the group of each name that belongs to a group. where: "inside" needs both ends in one group,
    "across" in two different groups, "touching" at least one end in any group.
    """

    model: ConnectionModel
    group_of: Mapping[str, int]
    where: Literal["inside", "across", "touching"]

    def holds(self, sender: str, receiver: str) -> bool:
        """Return True if the connection from `sender` to `receiver` is of this kind."""
        ours, theirs = self.group_of.get(sender), self.group_of.get(receiver)
        both = ours is not None and theirs is not None
        match self.where:
            case "touching":
                return ours is not None or theirs is not None
            case "inside":
                return both and ours == theirs
            case "across":
                return both and ours != theirs
            case _:
                assert_never(self.where)


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """Network as a whole.

    default: the model of every connection that belongs to no class.
    classes: kinds of connections; the first one that holds a connection applies.
    uplink_bps, downlink_bps: each actor's bandwidth.
    bandwidths: uplink and downlink of actors with other values.
    schedules: uplink and downlink over time, by actor; None for a bandwidth that does not change.
        `bandwidths` has the first values of these bandwidths.
    partitions: times at which some names are cut off from others. Messages that are sent or would arrive
        across a partition are lost.
    backlog: number of messages of one pair that may wait for a transfer. Further messages are dropped.
    uplink_queue_bytes: size of each actor's uplink queue, running transfers included. A message that does not
        fit is dropped, unless the queue is empty.
    """

    default: ConnectionModel
    classes: tuple[ConnectionClass, ...] = ()
    uplink_bps: float | None = None
    downlink_bps: float | None = None
    bandwidths: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    schedules: Mapping[str, tuple[Schedule | None, Schedule | None]] = field(default_factory=dict)
    partitions: tuple[ScheduledPartition, ...] = ()
    backlog: int = 10_000
    uplink_queue_bytes: int | None = None

    @property
    def limited(self) -> bool:
        """True if the bandwidth of any actor or connection is limited, so that transfers take time."""
        caps = [self.uplink_bps, self.downlink_bps, self.default.bandwidth_bps]
        caps += [kind.model.bandwidth_bps for kind in self.classes]
        caps += [bps for both in self.bandwidths.values() for bps in both]
        return any(bps is not None for bps in caps)

    def model_of(self, pair: tuple[str, str]) -> ConnectionModel:
        """Return the model of the connection of this pair, sender first."""
        for kind in self.classes:
            if kind.holds(*pair):
                return kind.model
        return self.default

    def bandwidths_of(self, name: str) -> tuple[float | None, float | None]:
        """Return one actor's uplink and downlink bandwidth."""
        return self.bandwidths.get(name, (self.uplink_bps, self.downlink_bps))
