"""The connections of one process to the others of its run, in a thread of their own."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from actors.scan import Buffer
from actors.tcp.endpoint import DROPS, TcpEndpoint, Tls
from actors.tcp.limits import Limits
from actors.tcp.link import AcceptedLink
from actors.tcp.outgoing import Address
from sim.live.control import CONTROL, decoded

_STAMP = struct.Struct("<cQdd")
STAMP_BYTES = _STAMP.size
_MESSAGE, _CONTROL = b"m", b"c"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a message carries beside its content: its number at its sender, when it was sent, and is due."""

    number: int
    sent_s: float
    due_s: float


class Events:
    """What a `Wire` calls, in its own thread."""

    def message(self, process: str, stamp: Stamp, content: Buffer) -> None:
        """A message has come."""

    def control(self, process: str, content: object) -> None:
        """Something else was told."""

    def read(self, numbers: list[int]) -> None:
        """The messages of these numbers have come to the other process."""

    def lost(self, number: int, dropped: bool, why: str) -> None:
        """The message of that number never arrives."""

    def connected(self, process: str, up: bool) -> None:
        """There is a connection to a process, or no more."""


class _Frames(TcpEndpoint):
    """Frames with a stamp, whose fates are told one by one."""

    events: Events

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._numbers: dict[str, deque[int]] = {}  # of the messages on their way to each process; 0: control

    def send(self, process: str, kind: bytes, stamp: Stamp, pieces: list[Buffer]) -> None:
        head = _STAMP.pack(kind, stamp.number, stamp.sent_s, stamp.due_s)
        length = len(head) + sum(map(len, pieces))
        why = self.send_frame(process, [head, *pieces], length)
        if not why:
            self._numbers.setdefault(process, deque()).append(stamp.number)
        elif stamp.number:
            self.events.lost(stamp.number, why in DROPS, why)

    @override
    def _settled(self, endpoint: str, count: int, fate: str) -> None:
        super()._settled(endpoint, count, fate)
        numbers = self._numbers.get(endpoint, deque())
        ended = [number for number in [numbers.popleft() for _ in range(count)] if number]
        if fate:
            for number in ended:
                self.events.lost(number, fate in DROPS, fate)
        elif ended:
            self.events.read(ended)

    @override
    def _linked(self, endpoint: str, up: bool) -> None:
        self.events.connected(endpoint, up)

    @override
    def _received(self, link: AcceptedLink, frame: Buffer) -> None:
        self.counts.received += 1
        try:
            kind, number, sent_s, due_s = _STAMP.unpack_from(frame)
            content = memoryview(frame)[STAMP_BYTES:]
            if kind == _CONTROL:
                self.events.control(link.peer, decoded(bytes(content)))
            elif kind == _MESSAGE:
                self.events.message(link.peer, Stamp(number, sent_s, due_s), content)
            else:
                raise ValueError(f"no frame of kind {kind!r}")
        except (ValueError, struct.error) as error:
            self.counts.refused += 1
            self.counts.count_reason(f"refused: {type(error).__name__}")


class Wire:
    """A process's connections. All methods may be called from any thread; `events` are called in its own.

    process: this one's name. addresses: of all processes. The rest is as of `TcpEndpoint`.
    """

    def __init__(
        self,
        process: str,
        addresses: Mapping[str, Address],
        secret: bytes,
        events: Events,
        *,
        tls: Tls | None = None,
        limits: Limits = Limits(),  # noqa: B008 - it cannot change
        listener: socket.socket | None = None,
    ) -> None:
        self.frames = _Frames(process, addresses, secret, tls=tls, limits=limits, listener=listener)
        self.frames.events = events
        self._others = [name for name in addresses if name != process]
        self._loop = _new_loop()
        self._opened: Future[None] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"wire of {process}", daemon=True)
        self._thread.start()
        self._opened.result()

    def message(self, process: str, stamp: Stamp, pieces: list[Buffer]) -> None:
        """Send a message to another process."""
        self._loop.call_soon_threadsafe(self.frames.send, process, _MESSAGE, stamp, pieces)

    def tell(self, process: str, content: object) -> None:
        """Tell another process something else."""
        pieces: list[Buffer] = [CONTROL.encode(content)]
        self._loop.call_soon_threadsafe(self.frames.send, process, _CONTROL, Stamp(0, 0.0, 0.0), pieces)

    def tell_all(self, content: object, but: str = "") -> None:
        """Tell all other processes the same, except one."""
        for process in self._others:
            if process != but:
                self.tell(process, content)

    def connected(self, to: Iterable[str], timeout_s: float) -> None:
        """Wait for the connections to other processes. TimeoutError, which names those that are missing."""
        others = [process for process in to if process in self._others]
        waiting = self.frames.connected(timeout_s, others)
        asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    def close(self) -> None:
        """Send what waits, for a second at most, and end all connections."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            self._loop.close()

    async def _live(self) -> None:
        async with self.frames:
            self._opened.set_result(None)
            await self._over.wait()


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is to be had."""
    make: Callable[[], asyncio.AbstractEventLoop]
    try:
        from uvloop import new_event_loop as make
    except ImportError:
        make = asyncio.new_event_loop
    return make()
