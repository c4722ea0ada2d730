"""Connection between two actors, and the messages on it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

from actors.codec import head_size
from actors.message import Envelope
from sim.kernel.random import RandomStream
from sim.kernel.timers import NEVER
from sim.world.fair_sharing import Link, Transfer
from sim.world.network_model import ConnectionModel


class Message:
    """Message in flight. After the transfer, this object is also the timer of the arrival.

    pair_index: number of messages that the pair sent before this one. number: number of this message among
    all messages of the network, from 1. kind: the name under which the message is counted. together: the
    pair's messages that arrive at the same time, in order; the order of their timers does not matter.
    """

    __slots__ = (
        "connection",
        "due",
        "envelope",
        "kind",
        "number",
        "pair_index",
        "size_bytes",
        "together",
    )

    def __init__(
        self,
        connection: Connection,
        envelope: Envelope,
        kind: str,
        size_bytes: int,
        pair_index: int,
        number: int,
    ) -> None:
        self.connection = connection
        self.envelope = envelope
        self.kind = kind
        self.size_bytes = size_bytes
        self.pair_index = pair_index
        self.number = number
        self.together: list[Message] | None = None
        self.due = NEVER

    def fire(self) -> None:
        """Arrive. If several messages arrive together, each timer delivers the first remaining message."""
        self.connection.arrived(self if self.together is None else self.together.pop(0))


def message_type_name(envelope: Envelope) -> str:
    """Return the name under which a message is counted: its class, "None" for an empty answer, "error" for a
    failed one."""
    if envelope.error is not None:
        return "error"
    return "None" if envelope.message is None else type(envelope.message).__name__


class RandomStreams:
    """Random streams of one connection, except for latencies; None for properties that are not random.

    duplicate_key: the key of the stream of the duplicates' latencies.
    """

    __slots__ = ("_all", "duplicate_key", "duplicates", "loss", "reorders")

    def __init__(self, pair: tuple[str, str], model: ConnectionModel, seed: int) -> None:
        self.loss = model.loss.on(seed, pair)
        self.duplicates = RandomStream(seed, "duplicate", *pair) if model.duplicate else None
        self.duplicate_key = model.latency_key(seed, "latency of copies", pair) if model.duplicate else None
        self.reorders = RandomStream(seed, "reorder", *pair) if model.reorder else None
        loss = None if self.loss is None else self.loss.draws
        every = (loss, self.duplicates, self.reorders)
        self._all = tuple([draws for draws in every if draws is not None])

    def seek(self, pair_index: int) -> None:
        """Set each stream to the position of this message of the pair.

        The random numbers of a message do not depend on the fates of earlier messages.
        """
        for draws in self._all:
            draws.position = pair_index


@dataclass(slots=True, eq=False, repr=False)
class Connection:
    """One-way connection of an ordered pair of names.

    arrived: called with each message at its arrival. sent: number of messages sent, the `pair_index` of the
    next one. path: the links that its transfers pass, set by the first transfer. queue: the first message is
    in transfer, the others wait for it. last: on a reliable connection, the last departed message, if it has
    not arrived; arrival_s: its arrival time.
    """

    pair: tuple[str, str]
    model: ConnectionModel
    seed: InitVar[int]
    arrived: Callable[[Message], None]
    sent: int = 0
    path: tuple[Link, ...] = ()
    queue: deque[Message] | None = None
    transfer: Transfer | None = None
    last: Message | None = None
    arrival_s: float = -math.inf
    head_bytes: int = field(init=False)
    latency_key: int | None = field(init=False)
    random_streams: RandomStreams | None = field(init=False)

    def __post_init__(self, seed: int) -> None:
        self.head_bytes = head_size(*self.pair)
        self.set_model(self.model, seed)

    def set_model(self, model: ConnectionModel, seed: int) -> None:
        """Use this model from now on."""
        self.model = model
        self.latency_key = model.latency_key(seed, "latency", self.pair)
        self.random_streams = RandomStreams(self.pair, model, seed) if model.has_randomness else None

    def is_idle(self) -> bool:
        """True if the connection has no state, so a new one could replace it."""
        return self.latency_key is self.random_streams is self.queue is self.last is None
