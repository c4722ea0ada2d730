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
from sim.world.links import LinkModel

if TYPE_CHECKING:
    from sim.world.network import SimulatedNetwork


class Message:
    """A message in flight. After its transfer it is the timer of its own arrival.

    kind: the name under which it is counted: its class, "None" for an empty answer, "error" for a failed one.
    """

    __slots__ = ("due", "envelope", "id", "kind", "network", "number", "size_bytes", "together", "wire")

    def __init__(
        self, network: SimulatedNetwork, wire: Wire, envelope: Envelope, size_bytes: int, number: int
    ) -> None:
        self.network = network
        self.wire = wire
        self.id = 0  # its number among all messages of the network, once it is sent
        self.envelope = envelope
        message = envelope.message
        if envelope.error is not None:
            self.kind = "error"
        else:
            self.kind = "None" if message is None else type(message).__name__
        self.size_bytes = size_bytes
        self.number = number  # how many the pair had sent before it
        self.together: list[Message] | None = None  # the pair's messages that arrive at one time, in order
        self.due = NEVER

    def fire(self) -> None:
        """Arrive. Of messages that arrive together, the first that is left arrives, whichever timer fires."""
        self.network._arrive(self if self.together is None else self.together.pop(0))


class Chances:
    """The random streams of one connection beside that of its latency; None for what is not random.

    copies: the key of the stream for the latencies of duplicates.
    """

    __slots__ = ("_all", "copies", "duplicates", "loss", "reorders")

    def __init__(self, pair: tuple[str, str], link: LinkModel, seed: int) -> None:
        self.loss = link.loss.on(seed, pair)
        self.duplicates = RandomStream(seed, "duplicate", *pair) if link.duplicate else None
        self.copies = link.latency_key(seed, "latency of copies", pair) if link.duplicate else None
        self.reorders = RandomStream(seed, "reorder", *pair) if link.reorder else None
        loss = None if self.loss is None else self.loss.draws
        every = (loss, self.duplicates, self.reorders)
        self._all = tuple([draws for draws in every if draws is not None])

    def seek(self, number: int) -> None:
        """Set each stream to the position of the pair's message with this number.

        So a message's random numbers do not depend on the fates of those before it.
        """
        for draws in self._all:
            draws.place = number


class Wire:
    """The one-way connection of an ordered pair of names."""

    __slots__ = (
        "arrival_s",
        "chances",
        "head_bytes",
        "last",
        "latency_key",
        "link",
        "pair",
        "path",
        "queue",
        "sent",
        "transfer",
    )

    def __init__(self, pair: tuple[str, str], link: LinkModel, seed: int) -> None:
        self.pair = pair
        self.link = link
        self.latency_key = link.latency_key(seed, "latency", pair)
        self.chances = Chances(pair, link, seed) if link.chancy else None
        self.head_bytes = head_size(*pair)
        self.sent = 0  # messages so far: the number of the next one
        self.path: tuple[Link, ...] = ()  # the links that its transfers pass, once there was one
        self.queue: deque[Message] | None = None  # the first one is in transfer, the others wait for it
        self.transfer: Transfer | None = None
        self.last: Message | None = None  # the last departed message of a reliable link
        self.arrival_s = -math.inf  # when that arrives

    def set_link(self, link: LinkModel, seed: int) -> None:
        """Follow another model from now on."""
        self.link = link
        self.latency_key = link.latency_key(seed, "latency", self.pair)
        self.chances = Chances(self.pair, link, seed) if link.chancy else None

    def is_idle(self) -> bool:
        """Whether it has no state, so that a new one would do as well."""
        return self.latency_key is self.chances is self.queue is self.last is None
