"""Connections of one process to the other processes of its run, in a separate thread."""

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
class FrameHeader:
    """Header of a message: its number in the sending process, and the times of sending and arrival."""

    number: int
    sent_s: float
    due_s: float


class WireCallbacks:
    """Callbacks for incoming messages and connections. A `Wire` calls them in the wire's thread."""

    def message(self, process: str, stamp: FrameHeader, content: Buffer) -> None:
        """Handle an incoming message."""

    def control(self, process: str, content: object) -> None:
        """Handle an incoming control message."""

    def read(self, numbers: list[int]) -> None:
        """Handle the arrival of the messages with these numbers at the other process."""

    def lost(self, number: int, dropped: bool, why: str) -> None:
        """Handle the loss of the message with this number."""

    def connected(self, process: str, up: bool) -> None:
        """Handle a new, or a lost, connection to a process."""


class _Frames(TcpEndpoint):
    """Endpoint for frames with a stamp, which reports the outcome of each frame."""

    events: WireCallbacks

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._numbers: dict[str, deque[int]] = {}  # of the messages in transfer to each process; 0: control

    def send(self, process: str, kind: bytes, stamp: FrameHeader, pieces: list[Buffer]) -> None:
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
                self.events.message(link.peer, FrameHeader(number, sent_s, due_s), content)
            else:
                raise ValueError(f"no frame of kind {kind!r}")
        except (ValueError, struct.error) as error:
            self.counts.refused += 1
            self.counts.count_reason(f"refused: {type(error).__name__}")


class Wire:
    """Connections of a process. Methods work from any thread; `events` are called in the wire's thread.

    process: the name of this process. addresses: the addresses of all processes. See `TcpEndpoint` for the
    other arguments.
    """

    def __init__(
        self,
        process: str,
        addresses: Mapping[str, Address],
        secret: bytes,
        events: WireCallbacks,
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

    def message(self, process: str, stamp: FrameHeader, pieces: list[Buffer]) -> None:
        """Send a message to another process."""
        self._loop.call_soon_threadsafe(self.frames.send, process, _MESSAGE, stamp, pieces)

    def tell(self, process: str, content: object) -> None:
        """Send a control message to another process."""
        pieces: list[Buffer] = [CONTROL.encode(content)]
        self._loop.call_soon_threadsafe(self.frames.send, process, _CONTROL, FrameHeader(0, 0.0, 0.0), pieces)

    def tell_all(self, content: object, but: str = "") -> None:
        """Send a control message to all other processes, except `but`."""
        for process in self._others:
            if process != but:
                self.tell(process, content)

    def connected(self, to: Iterable[str], timeout_s: float) -> None:
        """Wait for the connections to other processes. Raises TimeoutError with the missing ones."""
        others = [process for process in to if process in self._others]
        waiting = self.frames.connected(timeout_s, others)
        asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    def close(self) -> None:
        """Send pending frames, for at most a second, and close all connections."""
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
    """Return an event loop, of uvloop if it is installed."""
    make: Callable[[], asyncio.AbstractEventLoop]
    try:
        from uvloop import new_event_loop as make
    except ImportError:
        make = asyncio.new_event_loop
    return make()
