"""Simulated network of one process, with other actors in other processes."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from actors.codec import Codec
from actors.message import Envelope
from actors.scan import Buffer, DecodeError
from actors.tcp.limits import MAILBOX_BYTES
from actors.tcp.meaning import Meaningless, require_valid_envelope
from sim.live.control import Presence, TransferCut, TransferStarted
from sim.live.wire import FrameHeader, Wire
from sim.world.connection import Connection, Message, message_type_name
from sim.world.fair_sharing import Transfer
from sim.world.network import SimulatedNetwork
from sim.world.network_model import NetworkModel

if TYPE_CHECKING:
    from sim.live.loop import LiveLoop


NUMBERS_OF_A_LIFE = 2**40


def _refuse_delivery(envelope: Envelope) -> None:
    raise AssertionError(f"{envelope.receiver} belongs to another process")


class LiveNetwork(SimulatedNetwork):
    """Network that sends messages to actors of other processes over a wire, to arrive at simulated times.

    A message is sent, transferred and departs in its sender's process, and arrives in its receiver's. Every
    process tracks the transfers of all processes, so that all share links fairly: the process receives the
    starts of transfers, and computes the ends.

    process_by_actor: the process of every actor of the run. codec: codec of the actors' messages.
    """

    mailbox_bytes = MAILBOX_BYTES

    def __init__(self, loop: LiveLoop, seed: int, model: NetworkModel) -> None:
        super().__init__(loop, seed, model)
        self._travel = self._carry
        self._wire: Wire | None = None
        self._codec = Codec()
        self._process = ""
        self._process_by_actor: Mapping[str, str] = {}
        self._under_way: dict[int, Message] = {}  # to other processes, by number
        self._incoming: dict[tuple[str, str], Connection] = {}
        self._others_transfers: dict[tuple[str, int], Transfer] = {}
        self._starting: dict[tuple[str, int], asyncio.TimerHandle] = {}  # of others' transfers
        self.taken_bytes: Counter[str] = Counter()
        """Bytes of arrived or rejected messages, by process."""
        self.refused: dict[str, int] = {}
        """Numbers of rejected frames of other processes, by reason."""

    def join(
        self, wire: Wire, process: str, process_by_actor: Mapping[str, str], codec: Codec, lives: int = 0
    ) -> None:
        """Connect the network to the actors of other processes by a wire.

        lives: the number of earlier processes with this name, whose messages have other numbers.
        """
        self._wire, self._process, self._process_by_actor, self._codec = (
            wire,
            process,
            process_by_actor,
            codec,
        )
        self.numbers = itertools.count(lives * NUMBERS_OF_A_LIFE + 1)

    # -- Presence of actors

    @override
    def attach(self, name: str, deliver: Callable[[Envelope], None]) -> None:
        super().attach(name, deliver)
        self._tell_all(Presence((name,), True))

    @override
    def detach(self, name: str) -> None:
        super().detach(name)
        self._tell_all(Presence((name,), False))

    def noticed(self, process: str, presence: Presence) -> None:
        """Record that actors of another process are up, or down."""
        names = [name for name in presence.names if self._process_by_actor.get(name) == process]
        for name in names:
            if presence.up:
                self._deliver[name] = _refuse_delivery
                self._known[name] = None
            else:
                super().detach(name)

    def expect_up(self, names: Iterable[str]) -> None:
        """Record that these actors are up at the start, before their processes report it."""
        for name in names:
            if self._process_by_actor[name] != self._process:
                self.noticed(self._process_by_actor[name], Presence((name,), True))

    def present(self) -> tuple[str, ...]:
        """Return the actors of this process that are up."""
        return tuple([name for name in self._deliver if self._process_by_actor.get(name) == self._process])

    def _tell_all(self, content: object) -> None:
        if self._wire is not None:
            self._wire.tell_all(content, but="coordinator")

    # -- Messages for other processes

    def _carry(self, arrival_s: float, message: Message) -> None:
        receiver = message.envelope.receiver
        if self._process_by_actor.get(receiver, self._process) == self._process:
            self._loop.schedule(arrival_s, message)
        elif receiver in self._deliver:
            self._ship(arrival_s, message)
        else:  # it is down, but may be up at the arrival
            self._loop.call_at(arrival_s, self._ship_or_drop, arrival_s, message)

    def _ship_or_drop(self, arrival_s: float, message: Message) -> None:
        if message.envelope.receiver in self._deliver:
            self._ship(arrival_s, message)
        else:
            self._arrive(message)

    def _ship(self, arrival_s: float, message: Message) -> None:
        assert self._wire is not None
        try:
            content = self._codec.pieces(message.envelope)
        except TypeError as error:  # the codec does not know its class
            self._loop.call_exception_handler({"message": "a message cannot be sent", "exception": error})
            return
        self._under_way[message.number] = message
        stamp = FrameHeader(message.number, min(self._loop.now_s, arrival_s), arrival_s)
        self._wire.message(self._process_by_actor[message.envelope.receiver], stamp, content)

    def read(self, numbers: Iterable[int]) -> None:
        """Record that these messages reached the other process, which reports their outcomes."""
        for number in numbers:
            self._under_way.pop(number, None)

    def lost(self, number: int, dropped: bool, why: str) -> None:
        """Record that a message of this process did not reach the other process."""
        message = self._under_way.pop(number, None)
        if message is None:
            return
        if message.envelope.receiver not in self._deliver:
            dropped, why = True, "down"
        self._end(message, "dropped" if dropped else "lost", why)

    # -- Messages from other processes

    def received(self, process: str, stamp: FrameHeader, content: Buffer) -> None:
        """Check a message from another process, and schedule its arrival: when due, or now if late."""
        try:
            envelope = require_valid_envelope(self._codec.decode(content))
            if self._process_by_actor.get(envelope.sender) != process:
                raise Meaningless("the sender belongs to another process")
            if self._process_by_actor.get(envelope.receiver) != self._process:
                raise Meaningless("the receiver belongs to another process")
            if not (math.isfinite(stamp.due_s) and stamp.due_s >= stamp.sent_s):
                raise Meaningless("the time of arrival must be finite, and not before the time of sending")
        except (DecodeError, Meaningless) as error:
            self.refused[str(error)] = self.refused.get(str(error), 0) + 1
            self.taken_bytes[process] += len(content)
            return
        pair = (envelope.sender, envelope.receiver)
        connection = self._incoming.get(pair)
        if connection is None:
            model = self._model.model_of(pair)
            connection = self._incoming[pair] = Connection(pair, model, self._seed, self._arrive)
        kind = message_type_name(envelope)
        message = Message(connection, envelope, kind, len(content), -1, stamp.number)
        self._loop.schedule(stamp.due_s, message)

    @override
    def _arrive(self, message: Message) -> None:
        if message.pair_index < 0:
            self.taken_bytes[self._process_by_actor[message.envelope.sender]] += message.size_bytes
        super()._arrive(message)

    # -- Transfers, which every process tracks

    @override
    def _start_transfer(self, connection: Connection, message: Message) -> None:
        super()._start_transfer(connection, message)
        transfer = connection.transfer
        assert transfer is not None
        started = TransferStarted(transfer.number, self._loop.now_s, *connection.pair, transfer.bits_left)
        self._tell_all(started)

    @override
    def _break_off(self, transfer: Transfer, reason: str) -> None:
        if transfer not in self._connection_of:  # a transfer of another process, which reports its end
            self._shared.cancel(transfer)
            return
        self._tell_all(TransferCut(transfer.number))
        super()._break_off(transfer, reason)

    def transfer_started(self, process: str, started: TransferStarted) -> None:
        """Track a transfer that another process has started."""
        if (
            self._process_by_actor.get(started.sender) == process
            and started.receiver in self._process_by_actor
        ):
            key = (process, started.number)
            self._starting[key] = self._loop.call_at(started.at_s, self._track, process, started)

    def _track(self, process: str, started: TransferStarted) -> None:
        self._starting.pop((process, started.number), None)
        pair = (started.sender, started.receiver)
        path = self._path(Connection(pair, self._model.model_of(pair), self._seed, self._arrive))
        key = (process, started.number)

        def ended(transfer: Transfer) -> None:
            self._others_transfers.pop(key, None)

        self._others_transfers[key] = self._shared.start(max(1.0, started.bits), path, ended)

    def cancel_transfer(self, process: str, cut: TransferCut) -> None:
        """End a transfer that another process has canceled, or drop it before its start."""
        if (start := self._starting.pop((process, cut.number), None)) is not None:
            start.cancel()
        transfer = self._others_transfers.pop((process, cut.number), None)
        if transfer is not None and all(transfer in link.transfers for link in transfer.links):
            self._shared.cancel(transfer)

    def gone(self, process: str) -> None:
        """Record that a process is gone with all its actors."""
        self.noticed(process, Presence(tuple(self._process_by_actor), False))
        for key in [key for key in (*self._others_transfers, *self._starting) if key[0] == process]:
            self.cancel_transfer(process, TransferCut(key[1]))
