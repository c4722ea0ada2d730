"""The simulated network: what becomes of each message, and when.

The way of a message from one actor to another:

1. *Sent.*  Across a cut it is lost at once.  What the connection is like is found in `NetworkModel`
   (sim.world.links).
2. *Transfer.*  Between each ordered pair of names there is one connection, whose messages pass one after the
   other.  The connections share the senders' uplinks and the receivers' downlinks max-min fairly
   (sim.world.fair_sharing), and may have a limit of their own.  Without any limit a transfer takes no time.
3. *Departure.*  When its last bit has left, `SimulatedNetwork.fate` decides by the state of the wires then
   whether the message is lost, how long they will hold it, and whether it is doubled.  From there on it is on
   its way, whatever becomes of its sender.
4. *Arrival.*  It is delivered if the receiver is up and not cut off from the sender.

Every message ends exactly once: delivered, lost (by the network) or dropped (for want of a living sender or
receiver, or of room).  Until then it is in flight.  A copy that the network makes of a datagram is a message
of its own: sent when the network makes it, behind the transfer (the event says "duplicate"), counted with its
bytes, and ended like any other.  Times are virtual seconds; sizes are encoded bytes.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from actors.codec import size, size_behind_head
from actors.message import Envelope, UnknownPeer
from actors.transport import Transport
from actors.values import sealed
from sim.errors import UserError
from sim.kernel.random import RandomStream
from sim.kernel.task import Bell, sleep
from sim.world.cuts import Partitions
from sim.world.fair_sharing import Link, SharedLinks, Transfer
from sim.world.links import NetworkModel
from sim.world.wire import Message, Wire

if TYPE_CHECKING:
    from sim.kernel.clock import VirtualLoop

# Called with (event, time_s, envelope, type name, size_bytes, reason, number); event is "sent", "delivered",
# "lost", "dropped".  The reason says why a message was lost or dropped, and "duplicate" for a copy that is
# sent; the number is the message's own, from 1 in the order of sending.
Observer = Callable[[str, float, Envelope, str, int, str, int], None]


@dataclass(slots=True)
class Counts:
    """Messages so far, those to oneself left out: sent == delivered + lost + dropped + in_flight, always."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    dropped: int = 0
    in_flight: int = 0
    duplicated: int = 0  # of those sent: the copies that the network made
    bytes: int = 0  # of all sent messages
    by_type: dict[str, list[int]] = field(default_factory=dict)  # type name -> [messages sent, their bytes]
    reasons: dict[str, int] = field(default_factory=dict)  # why messages were lost or dropped


class SimulatedNetwork(Transport):
    """A transport in virtual time.

    `seed` is the run's.  Each pair of names has its own streams of random numbers, so
    neither other actors' traffic nor the number of actors changes the latencies and losses between two.
    `observe` is told of every event at its time.
    """

    def __init__(
        self, loop: VirtualLoop, seed: int, model: NetworkModel, observe: Observer | None = None
    ) -> None:
        self.counts = Counts()
        self.bytes_sent: dict[str, int] = defaultdict(int)
        """Of each sender, without the copies that the network made."""
        self.observe = observe
        self.now = loop.time  # type: ignore[method-assign]  # one call less, each time that anybody asks
        self._loop = loop
        self._seed = seed
        self._model = model
        self._partitions = Partitions(model.partitions) if model.partitions else None
        self._deliver: dict[str, Callable[[Envelope], None]] = {}
        self._known: dict[str, None] = {}  # every name that was ever attached
        self._names: dict[str, None] | None = None  # every name that there will ever be, if that is known
        self._wires: dict[tuple[str, str], Wire] = {}
        self._latencies = RandomStream(seed, "latency")  # of all pairs: an object for each would be many
        self._shared = SharedLinks(loop)
        self._uplinks: dict[str, Link] = {}
        self._downlinks: dict[str, Link] = {}
        self._limited = model.limited
        self._at_uplink_bytes: dict[str, int] = {}  # of each sender, where that is limited
        self._busy: dict[Transfer, Wire] = {}

    def __repr__(self) -> str:
        return f"<SimulatedNetwork {len(self._deliver)} attached, {self.counts.in_flight} in flight>"

    @property
    def places(self) -> Mapping[str, tuple[float, float]] | None:
        """Each actor's latitude and longitude in degrees, where latencies are by places on the globe."""
        return getattr(self._model.link.latency, "places", None)

    sleep = staticmethod(sleep)
    bell = Bell

    # -- Who is there

    def attach(self, name: str, deliver: Callable[[Envelope], None]) -> None:
        """Make `name` reachable: each arrival calls `deliver(envelope)`.  ValueError if it was already."""
        if name in self._deliver:
            raise ValueError(f"{name!r} is attached already")
        self._deliver[name] = deliver
        self._known[name] = None

    def detach(self, name: str) -> None:
        """Make `name` unreachable: transfers to it end (dropped); what it sent itself goes on."""
        if self._deliver.pop(name, None) is not None and name in self._downlinks:
            for transfer in list(self._downlinks[name].transfers):
                self._break_off(transfer, "down")

    def abort(self, name: str) -> None:
        """Crash `name`: detach it and end its own transfers as well; what has left it already goes on."""
        self.detach(name)
        if name in self._uplinks:
            for transfer in list(self._uplinks[name].transfers):
                self._break_off(transfer, "sender crashed")

    def set_link(self, name: str, uplink_bps: float | None, downlink_bps: float | None) -> None:
        """Set one actor's bandwidths (bits per second, None for unlimited), also for what is in transfer."""
        self._limited = True
        for link, bps in zip(self._links(name, name), (uplink_bps, downlink_bps), strict=True):
            self._shared.set_capacity(link, _capacity_bps(bps))

    def change(self, model: NetworkModel) -> None:
        """Be another network from now on, also for what is in transfer; its partitions stay what they are."""
        before, self._model = self._model, model
        for wire in self._wires.values():
            wire.become(model.link_of(wire.pair), self._seed)
        for name, both in model.bandwidths.items():
            if both != before.bandwidths_of(name):
                self.set_link(name, *both)

    def expect(self, names: Iterable[str]) -> None:
        """These are all the names that there will ever be: whoever sends to another one is told so."""
        self._names = dict.fromkeys(names)

    def require_known(self, name: str) -> None:
        if self._names is not None and name not in self._names:
            raise UnknownPeer(name, list(self._names))

    # -- The way of a message

    def send(self, envelope: Envelope) -> None:
        """Put a message on its way and return at once; it arrives as it is now.

        Raises TypeError if it cannot be encoded, UnknownPeer if nobody ever has the receiver's name, and
        nothing for an unreachable receiver.
        """
        pair = (envelope.sender, envelope.receiver)
        if pair[0] == pair[1]:
            size(envelope)  # refuses what could not be sent to others either
            self._loop.call_soon(self._deliver_to_self, sealed(envelope))  # past the network, and not counted
            return
        wire = self._wires.get(pair)
        if wire is None:
            self.require_known(pair[1])
            wire = self._wires[pair] = Wire(pair, self._model.link_of(pair), self._seed)
        alterable: list[object] = []
        size_bytes = size_behind_head(envelope, wire.head_bytes, alterable)
        if alterable:
            envelope = sealed(envelope)
        message = Message(self, wire, envelope, size_bytes, wire.sent)
        wire.sent += 1
        self.bytes_sent[pair[0]] += size_bytes
        self._count_sent(message)
        if self._partitions is not None and self._partitions.cut(*pair, self._loop.now_s):
            self._end(message, "lost", "partition")  # no connection comes about: there is nothing to transfer
        elif self._limited:
            self._enqueue(wire, message)
        else:
            self._depart(wire, message)

    def fate(self, wire: Wire, number: int) -> tuple[float, bool, float | None]:
        """Decide what becomes of the pair's message of this number if it departs now.

        Returns how long the wires hold it (seconds), whether they lose it, and how long they hold a copy of
        it (None: there is none).  Only what nobody can know yet is left to `_arrive`: whether the receiver is
        up then, and the pair not cut.
        """
        link, chances, now_s, draws = wire.link, wire.chances, self._loop.now_s, self._latencies
        if wire.latency_key is not None:
            draws.key, draws.place = wire.latency_key, number
        delay_s, lost, copy_delay_s = link.latency_s(wire.pair, now_s, draws), False, None
        if chances is None:
            return delay_s, lost, copy_delay_s
        chances.turn_to(number)
        if chances.loss is not None:
            if link.reliable:
                delay_s += link.rto_s * chances.loss.repetitions(now_s, link.rto_s)
            else:
                lost = chances.loss.lost(now_s)
        if chances.reorders is not None and chances.reorders.uniform() < link.reorder:
            delay_s += link.reorder_s
        if chances.duplicates is not None and chances.duplicates.uniform() < link.duplicate:
            if chances.copies is not None:
                draws.key, draws.place = chances.copies, number
            copy_delay_s = link.latency_s(wire.pair, now_s, draws)
        return delay_s, lost, copy_delay_s

    def _enqueue(self, wire: Wire, message: Message) -> None:
        """Transfer a message, now or after those of the same pair that are still waiting."""
        wire.way = wire.way or self._way(wire)
        if wire.queue is not None and len(wire.queue) > self._model.backlog:
            self._end(message, "dropped", "backlog")
        elif wire.queue is None and all(link.capacity_bps == math.inf for link in wire.way):
            self._depart(wire, message)
        elif self._model.uplink_queue_bytes is not None and not self._find_room(message):
            self._end(message, "dropped", "uplink queue")
        elif wire.queue is not None:
            wire.queue.append(message)
        else:
            wire.queue = deque((message,))
            self._start_transfer(wire, message)
            if wire.link.reliable and wire.pair[1] not in self._deliver:
                # Nobody answers; the sender notices after the latency, and spends its uplink on others.
                try:
                    delay_s, _, _ = self.fate(wire, message.number)
                except UserError as error:
                    self._end_run(error)
                    return
                self._loop.call_at(self._loop.now_s + delay_s, self._refuse, wire)

    def _find_room(self, message: Message) -> bool:
        """Put a message into its sender's uplink queue, if it has room there or is alone."""
        limit_bytes = self._model.uplink_queue_bytes
        assert limit_bytes is not None
        sender = message.envelope.sender
        there_bytes = self._at_uplink_bytes.get(sender, 0)
        if there_bytes and there_bytes + message.size_bytes > limit_bytes:
            return False
        self._at_uplink_bytes[sender] = there_bytes + message.size_bytes
        return True

    def _leave_room(self, message: Message) -> None:
        if self._model.uplink_queue_bytes is not None:
            self._at_uplink_bytes[message.envelope.sender] -= message.size_bytes

    def _start_transfer(self, wire: Wire, message: Message) -> None:
        transfer = self._shared.start(8 * message.size_bytes, wire.way, self._transferred)
        wire.transfer = transfer
        self._busy[transfer] = wire

    def _transferred(self, transfer: Transfer) -> None:
        wire = self._busy.pop(transfer)
        assert wire.queue is not None
        message = wire.queue.popleft()
        self._leave_room(message)
        if wire.queue:
            self._start_transfer(wire, wire.queue[0])
        else:
            wire.queue = wire.transfer = None
        self._depart(wire, message)

    def _refuse(self, wire: Wire) -> None:
        if wire.transfer is not None and wire.pair[1] not in self._deliver:
            self._break_off(wire.transfer, "down")

    def _break_off(self, transfer: Transfer, reason: str) -> None:
        """End a transfer, and those that wait behind it on the same connection."""
        self._shared.cancel(transfer)
        wire = self._busy.pop(transfer)
        messages, wire.queue, wire.transfer = wire.queue, None, None
        for message in messages or ():
            self._leave_room(message)
            self._end(message, "dropped", reason)

    def _depart(self, wire: Wire, message: Message) -> None:
        """The last bit has left: from here on the message is with the wires."""
        now_s = self._loop.now_s
        try:
            delay_s, lost, copy_delay_s = self.fate(wire, message.number)
        except UserError as error:
            self._end_run(error)  # the message stays in flight
            return
        if lost:
            self._end(message, "lost", "loss")
            return
        arrival_s = now_s + delay_s
        if wire.link.reliable:
            last = wire.last
            if last is not None and arrival_s <= wire.arrival_s:  # it may not overtake
                arrival_s = wire.arrival_s
                last.line = message.line = last.line or [last]
                message.line.append(message)
            wire.last, wire.arrival_s = message, arrival_s
        self._loop.schedule(arrival_s, message)
        if copy_delay_s is not None:
            # Whoever gets the first one may alter what is in it.
            copy = Message(self, wire, sealed(message.envelope), message.size_bytes, message.number)
            self.counts.duplicated += 1
            self._count_sent(copy, "duplicate")
            self._loop.schedule(now_s + copy_delay_s, copy)

    def _end_run(self, error: UserError) -> None:
        """The user's own latency has failed, which is not the fault of the actor that happens to send."""
        self._loop.call_exception_handler({"message": "a latency cannot be known", "exception": error})

    def _arrive(self, message: Message) -> None:
        if message.wire.last is message:
            message.wire.last = None
        envelope = message.envelope
        deliver = self._deliver.get(envelope.receiver)
        if self._partitions is not None and self._partitions.cut(
            envelope.sender, envelope.receiver, self._loop.now_s
        ):
            self._end(message, "lost", "partition")
        elif deliver is None:
            self._end(message, "dropped", "down" if envelope.receiver in self._known else "unknown")
        else:
            self._end(message, "delivered", "")
            deliver(envelope)

    def _deliver_to_self(self, envelope: Envelope) -> None:
        deliver = self._deliver.get(envelope.receiver)
        if deliver is not None:
            deliver(envelope)

    # -- Bookkeeping

    def _count_sent(self, message: Message, reason: Literal["", "duplicate"] = "") -> None:
        counts = self.counts
        counts.sent += 1
        message.id = counts.sent
        counts.in_flight += 1
        kind, size_bytes = message.kind, message.size_bytes
        counts.bytes += size_bytes
        of_type = counts.by_type.get(kind)
        if of_type is None:
            of_type = counts.by_type[kind] = [0, 0]
        of_type[0] += 1
        of_type[1] += size_bytes
        observe = self.observe  # a line of its own: a call by the dot looks in the class first
        if observe is not None:
            observe("sent", self._loop.now_s, message.envelope, kind, size_bytes, reason, message.id)

    def _end(self, message: Message, event: Literal["delivered", "lost", "dropped"], reason: str) -> None:
        counts = self.counts
        counts.in_flight -= 1
        if event == "delivered":
            counts.delivered += 1
        else:
            if event == "lost":
                counts.lost += 1
            else:
                counts.dropped += 1
            counts.reasons[reason] = counts.reasons.get(reason, 0) + 1
        wire = message.wire
        # A long run would keep one for each pair that ever spoke. It may have been replaced already.
        if wire.latency_key is None and wire.is_blank() and self._wires.get(wire.pair) is wire:
            del self._wires[wire.pair]
        observe = self.observe
        if observe is not None:
            what = (message.envelope, message.kind, message.size_bytes, reason, message.id)
            observe(event, self._loop.now_s, *what)

    def _way(self, wire: Wire) -> tuple[Link, ...]:
        """What a connection's transfers pass: uplink, downlink, and a limit of its own if it has one."""
        bps = wire.link.bandwidth_bps
        between = () if bps is None else (Link(f"{wire.pair[0]} to {wire.pair[1]}", bps),)
        return (*self._links(*wire.pair), *between)

    def _links(self, sender: str, receiver: str) -> tuple[Link, Link]:
        """The uplink of the one and the downlink of the other."""
        uplink = self._uplinks.get(sender)
        if uplink is None:
            uplink = Link(f"uplink of {sender}", _capacity_bps(self._model.bandwidths_of(sender)[0]))
            self._uplinks[sender] = uplink
        downlink = self._downlinks.get(receiver)
        if downlink is None:
            downlink = Link(f"downlink of {receiver}", _capacity_bps(self._model.bandwidths_of(receiver)[1]))
            self._downlinks[receiver] = downlink
        return uplink, downlink


def _capacity_bps(bps: float | None) -> float:
    return math.inf if bps is None else bps
