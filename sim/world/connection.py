"""One connection between two actors, and the messages on it."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from actors.codec import head_size
from actors.message import Envelope
from sim.kernel.random import RandomStream
from sim.kernel.task import NEVER
from sim.world.fair_sharing import Link, Transfer
from sim.world.network_model import ConnectionModel

if TYPE_CHECKING:
    from sim.world.network import SimulatedNetwork


class Message:
    """A message in flight. After its transfer it is the timer of its own arrival.

    kind: the name under which it is counted: its class, "None" for an empty answer, "error" for a failed one.
    """

    __slots__ = (
        "connection",
        "due",
        "envelope",
        "kind",
        "network",
        "number",
        "pair_index",
        "size_bytes",
        "together",
    )

    def __init__(
        self,
        network: SimulatedNetwork,
        connection: Connection,
        envelope: Envelope,
        size_bytes: int,
        pair_index: int,
    ) -> None:
        self.network = network
        self.connection = connection
        self.number = 0  # among all messages of the network, from 1; 0 until it is sent
        self.envelope = envelope
        message = envelope.message
        if envelope.error is not None:
            self.kind = "error"
        else:
            self.kind = "None" if message is None else type(message).__name__
        self.size_bytes = size_bytes
        self.pair_index = pair_index  # how many messages the pair had sent before it
        # The pair's messages that arrive at the same time, in order, whatever the order of their timers.
        self.together: list[Message] | None = None
        self.due = NEVER

    def fire(self) -> None:
        """Arrive. Of messages that arrive together, the first that is left arrives, whichever timer fires."""
        self.network._arrive(self if self.together is None else self.together.pop(0))


class RandomStreams:
    """The random streams of one connection beside that of its latency; None for what is not random.

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

        So a message's random numbers do not depend on the fates of those before it.
        """
        for draws in self._all:
            draws.position = pair_index


class Connection:
    """The one-way connection of an ordered pair of names."""

    __slots__ = (
        "arrival_s",
        "head_bytes",
        "last",
        "latency_key",
        "model",
        "pair",
        "path",
        "queue",
        "random_streams",
        "sent",
        "transfer",
    )

    def __init__(self, pair: tuple[str, str], model: ConnectionModel, seed: int) -> None:
        self.pair = pair
        self.model = model
        self.latency_key = model.latency_key(seed, "latency", pair)
        self.random_streams = RandomStreams(pair, model, seed) if model.has_randomness else None
        self.head_bytes = head_size(*pair)
        self.sent = 0  # messages so far: the `pair_index` of the next one
        self.path: tuple[Link, ...] = ()  # the links that its transfers pass, once there was one
        self.queue: deque[Message] | None = None  # the first one is in transfer, the others wait for it
        self.transfer: Transfer | None = None
        self.last: Message | None = (
            None  # the last departed message, if it has not arrived, on a reliable one
        )
        self.arrival_s = -math.inf  # when that arrives

    def set_model(self, model: ConnectionModel, seed: int) -> None:
        """Follow another model from now on."""
        self.model = model
        self.latency_key = model.latency_key(seed, "latency", self.pair)
        self.random_streams = RandomStreams(self.pair, model, seed) if model.has_randomness else None

    def is_idle(self) -> bool:
        """Whether it has no state, so that a new one would do as well."""
        return self.latency_key is self.random_streams is self.queue is self.last is None
