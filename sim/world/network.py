"""Simulated network: the arrival time of each message, or the reason for its loss.

A message passes through four steps:

1. *Sent.* If a network partition separates the pair, the message is lost at once.
2. *Transfer.* Each ordered pair of names (sender, receiver) has one connection, which transfers one message
   after the other. Connections share the uplinks of senders and the downlinks of receivers max-min fairly
   (sim.world.fair_sharing). A connection may also have a separate limit. Without limits a transfer takes
   no time.
3. *Departure.* When the last bit has left, `SimulatedNetwork.fate` decides the loss of the message, its
   latency and its duplication. The sender may now crash without effect on the message.
4. *Arrival.* The message is delivered if the receiver is up and no partition separates the pair.

Every message has exactly one outcome. It is delivered, lost (by the network) or dropped (because the sender
or the receiver is down, a queue is full, or the receiver refuses the content). Before that, it is in flight.
A duplicate is a separate message: it is sent at the departure of the original (the event says "duplicate"),
and its bytes count. Times are virtual seconds; sizes are encoded bytes.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from actors.codec import size, size_behind_head
from actors.message import Envelope, UnknownPeer
from actors.transport import Transport
from actors.values import with_immutable_message
from sim.errors import UserError
from sim.kernel.random import RandomStream
from sim.kernel.task import Bell, sleep
from sim.world.connection import Connection, Message, message_type_name
from sim.world.devices.slowness import Piece
from sim.world.fair_sharing import Link, SharedLinks, Transfer
from sim.world.network_model import NetworkModel
from sim.world.partitions import ScheduledPartitions

if TYPE_CHECKING:
    from sim.kernel.clock import VirtualLoop

# Called with (event, time_s, envelope, type name, size_bytes, reason, number). The event is "sent",
# "delivered", "lost" or "dropped". The reason states the cause of a loss or drop; for a sent duplicate it is
# "duplicate". The number identifies the message: numbers count from 1 in the order of sending.
Listener = Callable[[str, float, Envelope, str, int, str, int], None]


@dataclass(slots=True)
class Counts:
    """Messages so far, without messages to oneself. Always sent == delivered + lost + dropped + in_flight."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    dropped: int = 0
    duplicated: int = 0  # duplicates among the sent messages
    by_type: dict[str, list[int]] = field(default_factory=dict)  # type name -> [messages sent, their bytes]
    reasons: dict[str, int] = field(default_factory=dict)  # messages lost or dropped, by reason

    @property
    def in_flight(self) -> int:
        return self.sent - self.delivered - self.lost - self.dropped

    @property
    def bytes(self) -> int:
        """Bytes of all sent messages."""
        return sum([size_bytes for _, size_bytes in self.by_type.values()])


class SimulatedNetwork(Transport):
    """A transport in virtual time.

    seed: the seed of the run. Each pair of names has separate random streams, so the latencies and losses of
    a pair do not depend on the traffic of other pairs, or on the number of actors.
    listener: called at every event of a message.
    """

    def __init__(
        self, loop: VirtualLoop, seed: int, model: NetworkModel, listener: Listener | None = None
    ) -> None:
        self.counts = Counts()
        self.bytes_sent: dict[str, int] = defaultdict(int)
        """Bytes sent by each sender, without duplicates."""
        self.listener = listener
        self.now = loop.time  # type: ignore[method-assign]  # saves a call
        self.refuses: Callable[[object], bool] | None = None
        """Function that returns True if a receiver drops a message because of its contents; None: no
        message."""
        self.numbers: Iterator[int] = itertools.count(1)
        """Numbers of the next messages."""
        self._travel: Callable[[float, Message], None] = loop.schedule
        """Function that schedules the arrival of a departed message at a time in seconds."""
        self._loop = loop
        self._seed = seed
        self._model = model
        self._partitions = ScheduledPartitions(model.partitions) if model.partitions else None
        self._deliver: dict[str, Callable[[Envelope], None]] = {}
        self._known: dict[str, None] = {}  # all names attached so far
        self._expected: dict[str, None] | None = None  # all names of the run, if stated
        self._connections: dict[tuple[str, str], Connection] = {}
        self._latencies = RandomStream(seed, "latency")  # `fate` sets it to the pair's stream
        self._shared = SharedLinks(loop)
        self._uplinks: dict[str, Link] = {}
        self._downlinks: dict[str, Link] = {}
        self._limited = model.limited
        self._queued_bytes: dict[str, int] = {}  # at each sender's uplink, if its queue is limited
        self._connection_of: dict[Transfer, Connection] = {}

    def __repr__(self) -> str:
        return f"<SimulatedNetwork {len(self._deliver)} attached, {self.counts.in_flight} in flight>"

    @property
    def positions(self) -> Mapping[str, tuple[float, float]] | None:
        """Latitude and longitude of actors in degrees; None unless the default latency is by positions."""
        return getattr(self._model.default.latency, "positions", None)

    sleep = staticmethod(sleep)
    bell = Bell

    # -- Attached actors

    def attach(self, name: str, deliver: Callable[[Envelope], None]) -> None:
        """Make `name` reachable: arrivals call `deliver(envelope)`. Raises ValueError if attached already."""
        if name in self._deliver:
            raise ValueError(f"{name!r} is already attached")
        self._deliver[name] = deliver
        self._known[name] = None

    def detach(self, name: str) -> None:
        """Make `name` unreachable: drop the messages in transfer to this actor; its uploads continue."""
        if self._deliver.pop(name, None) is not None and name in self._downlinks:
            for transfer in list(self._downlinks[name].transfers):
                self._break_off(transfer, "down")

    def abort(self, name: str) -> None:
        """Crash `name`: detach it, and also end its uploads. Departed messages are not affected."""
        self.detach(name)
        if name in self._uplinks:
            for transfer in list(self._uplinks[name].transfers):
                self._break_off(transfer, "sender crashed")

    def set_bandwidths(self, name: str, uplink_bps: float | None, downlink_bps: float | None) -> None:
        """Set one actor's bandwidths in bits per second (None: unlimited), including running transfers."""
        self._limited = True
        for link, bps in zip(self._links(name, name), (uplink_bps, downlink_bps), strict=True):
            self._shared.set_capacity(link, _capacity_bps(bps))

    def change(self, model: NetworkModel) -> None:
        """Replace the model from now on, including for running transfers. Partitions stay as they are."""
        before, self._model = self._model, model
        for connection in self._connections.values():
            connection.set_model(model.model_of(connection.pair), self._seed)
        for name in {**before.bandwidths, **model.bandwidths}:
            both = model.bandwidths_of(name)
            if both != before.bandwidths_of(name) or name in before.schedules:
                self.set_bandwidths(name, *both)
        self.follow_schedules()

    def follow_schedules(self) -> None:
        """Change bandwidths over time, from now on, as the model states."""
        for name, both in self._model.schedules.items():
            for link, schedule in zip(self._links(name, name), both, strict=True):
                if schedule is not None:
                    self._follow(self._model, link, schedule())

    def _follow(self, model: NetworkModel, link: Link, pieces: Iterator[Piece]) -> None:
        """Set the current bandwidth now, and the next one at its end, unless the model has been replaced."""
        if model is not self._model:
            return
        end_s, bps = next(piece for piece in pieces if piece[0] > self._loop.now_s)
        if bps != link.capacity_bps:
            self._shared.set_capacity(link, bps)
        # Without bandwidth, transfers have no timer: the loop must not end before they continue.
        schedule = self._loop.call_at_observer if bps else self._loop.call_at
        if end_s < math.inf:
            schedule(end_s, self._follow, model, link, pieces)

    def expect(self, names: Iterable[str]) -> None:
        """Declare all names of the run. Sending to any other name then raises UnknownPeer."""
        self._expected = dict.fromkeys(names)

    def require_known(self, name: str) -> None:
        if self._expected is not None and name not in self._expected:
            raise UnknownPeer(name, list(self._expected))

    # -- The four steps of a message

    def send(self, envelope: Envelope) -> None:
        """Send a message and return immediately. Later changes to the message by the sender have no effect.

        Raises TypeError for a message that cannot be encoded, and UnknownPeer for a receiver that is not
        among the names given to `expect`, if it was called. An unreachable receiver is no error.
        """
        pair = (envelope.sender, envelope.receiver)
        connection = self._connections.get(pair)
        if connection is None:
            if pair[0] == pair[1]:
                size(envelope)  # raises for messages that cannot be encoded
                # A message to oneself bypasses the network and is not counted.
                self._loop.call_soon(self._deliver_to_self, with_immutable_message(envelope))
                return
            self.require_known(pair[1])
            connection = self._connections[pair] = Connection(
                pair, self._model.model_of(pair), self._seed, self._arrive
            )
        alterable: list[object] = []
        size_bytes = size_behind_head(envelope, connection.head_bytes, alterable)
        if alterable:
            envelope = with_immutable_message(envelope)
        pair_index = connection.sent
        connection.sent = pair_index + 1
        self.bytes_sent[pair[0]] += size_bytes
        message = self._sent(connection, envelope, size_bytes, pair_index)
        if self._partitions is not None and self._partitions.separate(*pair, self._loop.now_s):
            self._end(message, "lost", "partition")  # without a transfer
        elif self._limited:
            self._enqueue(connection, message)
        else:
            self._depart(connection, message)

    def fate(self, connection: Connection, pair_index: int) -> tuple[float, bool, float | None]:
        """Decide the fate of a message that departs now: message `pair_index` (from 0) of its pair.

        Returns the latency (seconds), whether the message is lost, and the latency of the duplicate, if any.
        `_arrive` decides later whether the message is delivered: by partitions and the receiver's state.
        """
        model, streams = connection.model, connection.random_streams
        now_s, draws = self._loop.now_s, self._latencies
        if connection.latency_key is not None:
            draws.key, draws.position = connection.latency_key, pair_index
        delay_s, lost, copy_delay_s = model.latency_s(connection.pair, now_s, draws), False, None
        if streams is None:
            return delay_s, lost, copy_delay_s
        streams.seek(pair_index)
        if streams.loss is not None:
            if model.reliable:
                delay_s += model.rto_s * streams.loss.repetitions(now_s, model.rto_s)
            else:
                lost = streams.loss.lost(now_s)
        if streams.reorders is not None and streams.reorders.uniform() < model.reorder:
            delay_s += model.reorder_s
        if streams.duplicates is not None and streams.duplicates.uniform() < model.duplicate:
            if streams.duplicate_key is not None:
                draws.key, draws.position = streams.duplicate_key, pair_index
            copy_delay_s = model.latency_s(connection.pair, now_s, draws)
        return delay_s, lost, copy_delay_s

    def _enqueue(self, connection: Connection, message: Message) -> None:
        """Start the transfer of a message, or queue it after the other messages of the same pair."""
        connection.path = connection.path or self._path(connection)
        if connection.queue is not None and len(connection.queue) > self._model.backlog:
            self._end(message, "dropped", "backlog")
        elif connection.queue is None and all(link.capacity_bps == math.inf for link in connection.path):
            self._depart(connection, message)
        elif self._model.uplink_queue_bytes is not None and not self._reserve(message):
            self._end(message, "dropped", "uplink queue")
        elif connection.queue is not None:
            connection.queue.append(message)
        else:
            connection.queue = deque((message,))
            self._start_transfer(connection, message)
            if connection.model.reliable and connection.pair[1] not in self._deliver:
                # The receiver is down. The sender notices after the latency, and then stops the transfer.
                # Only the latency is used here. Its draw advances no stream: if the receiver is up again in
                # time, the fate of the message is decided when it departs, with the same random numbers.
                try:
                    delay_s, _, _ = self.fate(connection, message.pair_index)
                except UserError as error:
                    self._end_run(error)
                    return
                self._loop.call_at(self._loop.now_s + delay_s, self._stop_if_down, connection)

    def _reserve(self, message: Message) -> bool:
        """Reserve room in the sender's uplink queue. False if the queue is not empty and lacks the room."""
        limit_bytes = self._model.uplink_queue_bytes
        assert limit_bytes is not None
        sender = message.envelope.sender
        queued_bytes = self._queued_bytes.get(sender, 0)
        if queued_bytes and queued_bytes + message.size_bytes > limit_bytes:
            return False
        self._queued_bytes[sender] = queued_bytes + message.size_bytes
        return True

    def _release(self, message: Message) -> None:
        if self._model.uplink_queue_bytes is not None:
            self._queued_bytes[message.envelope.sender] -= message.size_bytes

    def _start_transfer(self, connection: Connection, message: Message) -> None:
        transfer = self._shared.start(8 * message.size_bytes, connection.path, self._transferred)
        connection.transfer = transfer
        self._connection_of[transfer] = connection

    def _transferred(self, transfer: Transfer) -> None:
        connection = self._connection_of.pop(transfer)
        assert connection.queue is not None
        message = connection.queue.popleft()
        self._release(message)
        if connection.queue:
            self._start_transfer(connection, connection.queue[0])
        else:
            connection.queue = connection.transfer = None
        self._depart(connection, message)

    def _stop_if_down(self, connection: Connection) -> None:
        if connection.transfer is not None and connection.pair[1] not in self._deliver:
            self._break_off(connection.transfer, "down")

    def _break_off(self, transfer: Transfer, reason: str) -> None:
        """End a transfer; drop its message, and the messages that wait for this connection."""
        self._shared.cancel(transfer)
        connection = self._connection_of.pop(transfer)
        messages, connection.queue, connection.transfer = connection.queue, None, None
        for message in messages or ():
            self._release(message)
            self._end(message, "dropped", reason)

    def _depart(self, connection: Connection, message: Message) -> None:
        """Decide the fate of a message after the transfer of its last bit."""
        now_s = self._loop.now_s
        try:
            delay_s, lost, copy_delay_s = self.fate(connection, message.pair_index)
        except UserError as error:
            self._end_run(error)  # the message stays in flight
            return
        if lost:
            self._end(message, "lost", "loss")
            return
        arrival_s = now_s + delay_s
        if connection.model.reliable:
            last = connection.last
            if last is not None and arrival_s <= connection.arrival_s:  # it must not overtake
                arrival_s = connection.arrival_s
                last.together = message.together = last.together or [last]
                message.together.append(message)
            connection.last, connection.arrival_s = message, arrival_s
        self._travel(arrival_s, message)
        if copy_delay_s is not None:
            # The receiver of the original may alter the contents.
            content = with_immutable_message(message.envelope)
            copy = self._sent(connection, content, message.size_bytes, message.pair_index, "duplicate")
            self.counts.duplicated += 1
            self._travel(now_s + copy_delay_s, copy)

    def _end_run(self, error: UserError) -> None:
        """End the run because the user's latency function has failed."""
        self._loop.call_exception_handler({"message": "a latency is unknown", "exception": error})

    def _arrive(self, message: Message) -> None:
        if message.connection.last is message:
            message.connection.last = None
        envelope = message.envelope
        deliver = self._deliver.get(envelope.receiver)
        if self._partitions is not None and self._partitions.separate(
            envelope.sender, envelope.receiver, self._loop.now_s
        ):
            self._end(message, "lost", "partition")
        elif deliver is None:
            self._end(message, "dropped", "down" if envelope.receiver in self._known else "unknown")
        elif self.refuses is not None and self.refuses(envelope.message):
            self._end(message, "dropped", "not finite")
        else:
            self._end(message, "delivered", "")
            deliver(envelope)

    def _deliver_to_self(self, envelope: Envelope) -> None:
        deliver = self._deliver.get(envelope.receiver)
        if deliver is not None:
            deliver(envelope)

    # -- Bookkeeping

    def _sent(
        self,
        connection: Connection,
        envelope: Envelope,
        size_bytes: int,
        pair_index: int,
        reason: Literal["", "duplicate"] = "",
    ) -> Message:
        """Return a message that is sent now, and count it."""
        counts, kind = self.counts, message_type_name(envelope)
        counts.sent += 1
        number = next(self.numbers)
        of_type = counts.by_type.get(kind)
        if of_type is None:
            of_type = counts.by_type[kind] = [0, 0]
        of_type[0] += 1
        of_type[1] += size_bytes
        listener = self.listener  # faster than two attribute look-ups
        if listener is not None:
            listener("sent", self._loop.now_s, envelope, kind, size_bytes, reason, number)
        return Message(connection, envelope, kind, size_bytes, pair_index, number)

    def _end(self, message: Message, event: Literal["delivered", "lost", "dropped"], reason: str) -> None:
        counts = self.counts
        if event == "delivered":
            counts.delivered += 1
        else:
            if event == "lost":
                counts.lost += 1
            else:
                counts.dropped += 1
            counts.reasons[reason] = counts.reasons.get(reason, 0) + 1
        connection = message.connection
        # An idle connection without random streams has no state: it is dropped, and created again when
        # needed.
        if (
            connection.latency_key is None
            and connection.is_idle()
            and self._connections.get(connection.pair) is connection
        ):
            del self._connections[connection.pair]
        listener = self.listener
        if listener is not None:
            now_s, envelope, kind = self._loop.now_s, message.envelope, message.kind
            listener(event, now_s, envelope, kind, message.size_bytes, reason, message.number)

    def _path(self, connection: Connection) -> tuple[Link, ...]:
        """Return the links that a connection's transfers pass: uplink, downlink, and any separate limit."""
        bps = connection.model.bandwidth_bps
        between = () if bps is None else (Link(f"{connection.pair[0]} to {connection.pair[1]}", bps),)
        return (*self._links(*connection.pair), *between)

    def _links(self, sender: str, receiver: str) -> tuple[Link, Link]:
        """Return the sender's uplink and the receiver's downlink."""
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
