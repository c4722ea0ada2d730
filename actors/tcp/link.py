"""One connection between two endpoints: the common part, the calling end and the called end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from actors.codec import Codec
from actors.scan import Buffer, DecodeError
from actors.tcp.frames import FrameError, FrameReader, with_length_header
from actors.tcp.handshake import (
    VERSION,
    Challenge,
    Introduction,
    Stranger,
    Welcome,
    new_nonce,
    proof,
    require_certificate_of,
    require_challenge,
    require_introduction,
    require_proof,
    require_welcome,
)
from actors.tcp.limits import Limits

_HANDSHAKE = Codec(Challenge, Introduction, Welcome)
_BUFFER_BYTES = 2**20  # limit of the event loop's write buffer before `pause_writing`
_COUNT_BYTES = 8


class TcpLink(asyncio.Protocol):
    """One end of a connection. `on_end` is called once, with the reason why the connection ended."""

    def __init__(self, limits: Limits, on_end: Callable[[TcpLink, str], None]) -> None:
        self.limits = limits
        self.is_open = False
        """True if both ends are authenticated."""
        self.peer = ""
        """Endpoint at the other end, once it is authenticated."""
        self._on_end = on_end
        self._why = "closed by the other end"
        self._frames = FrameReader(limits.handshake_bytes)
        self._loop = asyncio.get_running_loop()
        # Times of the last bytes, and of the first bytes of an unfinished frame.
        self._received_s = self._started_s = self._loop.time()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._received_s = self._loop.time()
        try:
            frames = self._frames.feed(data)
            for frame in frames:
                self.frame_received(frame)
        except (FrameError, DecodeError, Stranger) as error:
            self.cut(str(error))
            return
        if frames or not self._frames.held_bytes:
            self._started_s = self._received_s
        self.frames_received()

    def frame_received(self, frame: Buffer) -> None:
        """Handle a whole frame. Raises DecodeError, or Stranger before the link is open."""
        raise NotImplementedError

    def frames_received(self) -> None:
        """React after all received frames are handled."""

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._on_end(self, self._why if error is None else f"{self._why}: {error}")

    def beat(self) -> None:
        """Send a heartbeat."""
        raise NotImplementedError

    def look(self, now_s: float) -> None:
        """Cut a connection that is silent or too slow, or not authenticated in time."""
        limits, since_s = self.limits, now_s - self._started_s
        if not self.is_open:
            if since_s > limits.handshake_s:
                self.cut("did not authenticate in time")
        elif now_s - self._received_s > limits.silence_s:
            self.cut(f"silent for {limits.silence_s:g} s")
        elif since_s > limits.silence_s and self._frames.held_bytes < limits.least_rate * since_s:
            self.cut(f"sends less than {limits.least_rate:g} bytes/s of a frame")

    @property
    def is_closing(self) -> bool:
        """True if the connection is not made yet, or is closing."""
        return self._transport is None or self._transport.is_closing()

    def forgive(self, seconds: float) -> None:
        """Extend the deadlines: this process was suspended, which must not count as silence of its peers."""
        self._received_s += seconds
        self._started_s += seconds

    def write(self, buffers: list[Buffer]) -> None:
        """Write buffers, concatenated; callers join small ones."""
        for buffer in buffers:
            self._transport.write(buffer)

    def unwritten_bytes(self) -> int:
        """Return the number of bytes in the event loop's write buffer."""
        return int(self._transport.get_write_buffer_size())

    def cut(self, why: str) -> None:
        """End the connection at once."""
        self._why = why
        self._transport.abort()

    def _send(self, message: object) -> None:
        self.write([b"".join(with_length_header([_HANDSHAKE.encode(message)]))])

    def _opened(self, peer: str) -> None:
        self.peer, self.is_open = peer, True
        self._frames.largest = self.limits.frame_bytes


class AcceptedLink(TcpLink):
    """End of a connection at the called endpoint: reads frames, and reports how many frames it has read.

    on_connect(link): called when the link is connected, and encrypted if required. admit(link, caller):
    returns the number of the caller's previous link and the number of frames read from that link; raises
    Stranger for an endpoint that is not allowed to call. on_frame: called with each frame.
    """

    def __init__(
        self,
        limits: Limits,
        on_connect: Callable[[AcceptedLink], None],
        on_end: Callable[[TcpLink, str], None],
        endpoint: str,
        secret: bytes,
        admit: Callable[[AcceptedLink, str], tuple[int, int]],
        on_frame: Callable[[AcceptedLink, Buffer], None],
    ) -> None:
        super().__init__(limits, on_end)
        self.number = 0
        """Number of this link among all links that the caller has opened to this endpoint."""
        self.received = 0
        """Number of frames read."""
        self._endpoint = endpoint
        self._secret = secret
        self._on_connect = on_connect
        self._admit = admit
        self._on_frame = on_frame
        self._nonce = new_nonce()
        self._reported = -1  # the last count reported

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._on_connect(self)
        self._send(Challenge(VERSION, self._nonce))

    def frame_received(self, frame: Buffer) -> None:
        if not self.is_open:
            self._introduced(require_introduction(_HANDSHAKE.decode(bytes(frame))))
        elif len(frame):  # an empty frame is a heartbeat
            self.received += 1
            self._on_frame(self, frame)

    def frames_received(self) -> None:
        if self.is_open and self.received != self._reported:
            self.beat()

    def beat(self) -> None:
        """Report the number of frames read, which is also a heartbeat."""
        self._reported = self.received
        self.write([b"".join(with_length_header([self.received.to_bytes(_COUNT_BYTES, "big")]))])

    def pause_writing(self) -> None:
        self.cut("does not read the messages sent to it")

    def _introduced(self, caller: Introduction) -> None:
        about = (caller.endpoint, self._endpoint, self._nonce + caller.nonce)
        require_proof(caller.proof, proof(self._secret, "caller", *about))
        if (certificate := self._transport.get_extra_info("peercert")) is not None:
            require_certificate_of(certificate, caller.endpoint)
        self.number = caller.link
        before = self._admit(self, caller.endpoint)
        self._send(Welcome(proof(self._secret, "called", *about), *before))
        self._opened(caller.endpoint)


class CallingLink(TcpLink):
    """End of a connection at the calling endpoint: writes frames, and learns how many frames were read.

    on_open(link, welcome): called once when both ends are authenticated. on_read(count): called with the
    total of frames read at the other end. on_room(): called when the link can write again.
    """

    def __init__(
        self,
        limits: Limits,
        on_end: Callable[[TcpLink, str], None],
        endpoint: str,
        called: str,
        number: int,
        secret: bytes,
        on_open: Callable[[CallingLink, Welcome], None],
        on_read: Callable[[int], None],
        on_room: Callable[[], None],
    ) -> None:
        super().__init__(limits, on_end)
        self.number = number
        self.is_full = False
        """True if the other end reads more slowly than this end writes."""
        self._endpoint, self._called = endpoint, called
        self._secret = secret
        self._on_open, self._on_read, self._on_room = on_open, on_read, on_room
        self._nonce = new_nonce()
        self._nonces = b""  # of both ends, once the other's has come

    def frame_received(self, frame: Buffer) -> None:
        if self.is_open:
            if len(frame) != _COUNT_BYTES:
                raise DecodeError("sent no count of frames")
            self._on_read(int.from_bytes(frame, "big"))
        elif not self._nonces:
            challenge = require_challenge(_HANDSHAKE.decode(bytes(frame)))
            self._nonces = challenge.nonce + self._nonce
            own = proof(self._secret, "caller", self._endpoint, self._called, self._nonces)
            self._send(Introduction(self._endpoint, self._nonce, self.number, own))
        else:
            welcome = require_welcome(_HANDSHAKE.decode(bytes(frame)))
            expected = proof(self._secret, "called", self._endpoint, self._called, self._nonces)
            require_proof(welcome.proof, expected)
            self._opened(self._called)
            self._on_open(self, welcome)

    def beat(self) -> None:
        """Send a heartbeat, an empty frame."""
        self.write([b"".join(with_length_header([]))])

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._on_room()
