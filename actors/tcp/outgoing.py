"""Output to one other endpoint: a connection, which is restored whenever it is lost, and waiting frames."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from actors.scan import Buffer
from actors.tcp.frames import with_length_header
from actors.tcp.handshake import Welcome
from actors.tcp.limits import Limits
from actors.tcp.link import CallingLink, TcpLink

_PAUSES = random.Random()  # a separate generator: methods may have seeded the global one
_ENDS_KEPT = 10
_SMALL_BYTES = 2**14  # shorter pieces are joined before they are written


@dataclass(frozen=True)
class Address:
    """Address at which an endpoint listens."""

    host: str
    port: int


class Outgoing:
    """Frames for one endpoint, in order, each read there at most once.

    A frame that is given while there is no connection is lost at once, so that no endpoint gets outdated
    frames. on_fate(count, fate): called with the outcome, `fate`, of the `count` oldest frames without an
    outcome so far: "" if they were read, or the reason for their loss. on_link(up): called when there is a
    connection, and when it ends.
    """

    def __init__(
        self,
        limits: Limits,
        endpoint: str,
        called: str,
        address: Address,
        secret: bytes,
        tls: ssl.SSLContext | None,
        on_fate: Callable[[int, str], None],
        on_link: Callable[[bool], None],
    ) -> None:
        self.link: CallingLink | None = None
        """Connection while it is open."""
        self.latest: CallingLink | None = None
        """Most recent connection, open or not."""
        self.ends: deque[str] = deque(maxlen=_ENDS_KEPT)
        """Reasons why the last connections ended, or could not be made."""
        self._limits = limits
        self._endpoint, self._called, self._address = endpoint, called, address
        self._secret, self._tls = secret, tls
        self._on_fate = on_fate
        self._on_link = on_link
        self._number = 0  # of the latest link
        self._open_number = 0  # of the latest link that was open
        self._written = self._read = 0  # frames of that link
        self._waiting: deque[list[Buffer]] = deque()
        self._waiting_bytes = 0
        self._flushing: asyncio.Handle | None = None
        self._ended = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._stay_connected(), name=f"to {called}")

    # --- writing --------------------------------------------------------------------------------------------

    def send(self, pieces: list[Buffer]) -> str:
        """Accept a frame; return "" if it will be sent, or the reason why it is lost or dropped."""
        if self.link is None:
            return "not connected"
        frame = with_length_header(pieces)
        length = sum(map(len, frame))
        if self._waiting_bytes + self.link.unwritten_bytes() + length > self._limits.backlog_bytes:
            return "backlog"
        self._waiting.append(frame)
        self._waiting_bytes += length
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)
        return ""

    def _flush(self) -> None:
        """Write waiting frames while the other end reads them; small pieces are joined."""
        self._flushing = None
        link, waiting = self.link, self._waiting
        while waiting and link is not None and not link.is_full:
            joined = bytearray()
            while waiting and len(joined) < _SMALL_BYTES:
                self._written += 1
                for piece in waiting.popleft():
                    self._waiting_bytes -= len(piece)
                    if len(piece) < _SMALL_BYTES:
                        joined += piece
                    else:
                        link.write([bytes(joined), piece])
                        joined.clear()
            link.write([bytes(joined)])

    def _room(self) -> None:
        if self._flushing is None:
            self._flush()

    # --- fate of written frames -----------------------------------------------------------------------------

    def _was_read(self, count: int) -> None:
        """Record that `count` frames of the link were read at the other end."""
        if not self._read <= count <= self._written:
            assert self.link is not None
            self.link.cut(f"reports {count} frames as read, of {self._written} that were sent")
            return
        self._on_fate(count - self._read, "")
        self._read = count

    def _opened(self, link: CallingLink, welcome: Welcome) -> None:
        """Use a new open link; its welcome reports how many frames of the previous link were read."""
        known = welcome.received if welcome.link == self._open_number else self._read
        self._settle(max(self._read, min(known, self._written)))
        self._open_number, self._written, self._read = link.number, 0, 0
        self.link = link
        self._on_link(True)

    def _settle(self, count: int) -> None:
        """Record that `count` frames of the last link were read, and that the other frames are lost."""
        self._on_fate(count - self._read, "")
        self._on_fate(self._written - count, "cut off")
        self._read = self._written

    def _lost(self, link: TcpLink, why: str) -> None:
        self.ends.append(why)
        if self.link is link:
            self.link = None
            lost = len(self._waiting)  # how many of the written frames were read is not known yet
            self._waiting.clear()
            self._waiting_bytes = 0
            self._written += lost
            self._on_link(False)
        self._ended.set()

    # --- connecting -----------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        """Connect repeatedly; pauses double while the other end is unreachable."""
        pause_s = self._limits.retry_s
        while True:
            self._ended.clear()
            if await self._connect():
                await self._ended.wait()
            if self._open_number == self._number:
                pause_s = self._limits.retry_s
            await asyncio.sleep(pause_s * _PAUSES.uniform(0.5, 1.0))  # random, to spread the attempts
            pause_s = min(2 * pause_s, self._limits.retry_max_s)

    async def _connect(self) -> bool:
        self._number += 1
        loop = asyncio.get_running_loop()
        name = None if self._tls is None else self._called
        where = (self._address.host, self._address.port)
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                await loop.create_connection(self._link, *where, ssl=self._tls, server_hostname=name)
        except (OSError, TimeoutError) as error:
            self.ends.append(f"cannot be reached: {error or 'no answer'}")
            return False
        return True

    def _link(self) -> CallingLink:
        self.latest = link = CallingLink(
            self._limits, self._lost, self._endpoint, self._called, self._number, self._secret,
            on_open=self._opened, on_read=self._was_read, on_room=self._room,
        )  # fmt: skip
        return link

    async def close(self, linger_s: float) -> None:
        """End the connection when all frames were read, or after `linger_s`; unconfirmed frames are lost."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        loop = asyncio.get_running_loop()
        until_s = loop.time() + linger_s
        while self.link is not None and (self._waiting or self._read < self._written):
            if loop.time() >= until_s:
                break
            await asyncio.sleep(0.01)
        if self.link is not None:
            self._ended.clear()
            self.link.cut("closed")
            await self._ended.wait()
        self._settle(self._read)
