"""One connection between two actors, and a message on it; what becomes of it is up to the network."""

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
    """A message on its way; behind the transfer it is itself the timer of its arrival.

    `kind` is what it is filed under: its class; "None" for an empty answer, "error" for a failed one.
    """

    __slots__ = ("due", "envelope", "id", "kind", "line", "network", "number", "size_bytes", "wire")

    def __init__(
        self, network: SimulatedNetwork, wire: Wire, envelope: Envelope, size_bytes: int, number: int
    ) -> None:
        self.network = network
        self.wire = wire
        self.id = 0  # of all messages of the network, once it is sent
        self.envelope = envelope
        message = envelope.message
        if envelope.error is not None:
            self.kind = "error"
        else:
            self.kind = "None" if message is None else type(message).__name__
        self.size_bytes = size_bytes
        self.number = number  # of those sent between the pair before it
        self.line: list[Message] | None = None  # of those of its pair that arrive in one instant, in order
        self.due = NEVER

    def fire(self) -> None:
        """Arrive; of several in one instant the first of the line, in whatever order the loop calls them."""
        self.network._arrive(self if self.line is None else self.line.pop(0))


class Chances:
    """What is random about one connection, beside its latency: each has its own stream, or is None.

    copies: the key of the latencies of copies.
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

    def turn_to(self, number: int) -> None:
        """Have each stream's number for the pair's message of this number next.

        So a message keeps its own whatever became of those before it, and whenever its fate is decided.
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
        "queue",
        "sent",
        "transfer",
        "way",
    )

    def __init__(self, pair: tuple[str, str], link: LinkModel, seed: int) -> None:
        self.pair = pair
        self.link = link
        self.latency_key = link.latency_key(seed, "latency", pair)
        self.chances = Chances(pair, link, seed) if link.chancy else None
        self.head_bytes = head_size(*pair)
        self.sent = 0  # messages so far: the number of the next one
        self.way: tuple[Link, ...] = ()  # what its transfers pass, once there was one
        self.queue: deque[Message] | None = None  # the first one is in transfer, the others wait for it
        self.transfer: Transfer | None = None
        self.last: Message | None = None  # of those on the wires of a reliable link, and when it arrives
        self.arrival_s = -math.inf

    def become(self, link: LinkModel, seed: int) -> None:
        """From now on it is like `link`."""
        self.link = link
        self.latency_key = link.latency_key(seed, "latency", self.pair)
        self.chances = Chances(self.pair, link, seed) if link.chancy else None

    def is_blank(self) -> bool:
        """Whether a new one would do as well."""
        return self.latency_key is self.chances is self.queue is self.last is None
