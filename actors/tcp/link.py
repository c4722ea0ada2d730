"""One connection between two endpoints: what both ends have in common, the calling end and the called one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from actors.codec import Codec
from actors.scan import Buffer, DecodeError
from actors.tcp.frames import FrameError, FrameReader, frame_of
from actors.tcp.handshake import (
    VERSION,
    Challenge,
    Introduction,
    Stranger,
    Welcome,
    new_nonce,
    proof,
    require_challenge,
    require_introduction,
    require_named,
    require_proof,
    require_welcome,
)
from actors.tcp.limits import Limits

_HANDSHAKE = Codec(Challenge, Introduction, Welcome)
_BUFFER_BYTES = 2**20  # what the event loop may hold of what was written before `pause_writing`
_COUNT_BYTES = 8


class TcpLink(asyncio.Protocol):
    """A connection, from either end. `on_end` is called once, with why it ended."""

    def __init__(self, limits: Limits, on_end: Callable[[TcpLink, str], None]) -> None:
        self.limits = limits
        self.is_open = False
        """Whether both ends have proved who they are."""
        self.peer = ""
        """The endpoint at the other end, once it has proved that."""
        self._on_end = on_end
        self._why = "closed by the other end"
        self._frames = FrameReader(limits.handshake_bytes)
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._began_s = (
            self._loop.time()
        )  # of the last bytes, and of what is to be whole soon
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        try:
            frames = self._frames.feed(data)
            for frame in frames:
                self.frame_received(frame)
        except (FrameError, DecodeError, Stranger) as error:
            self.cut(str(error))
            return
        if frames or not self._frames.held_bytes:
            self._began_s = self._heard_s
        self.frames_received()

    def frame_received(self, frame: Buffer) -> None:
        """A whole frame has come. Raises DecodeError, or Stranger before the link is open."""
        raise NotImplementedError

    def frames_received(self) -> None:
        """What had come was looked at."""

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._on_end(self, self._why if error is None else f"{self._why}: {error}")

    def beat(self) -> None:
        """Say that this end is there."""
        raise NotImplementedError

    def look(self, now_s: float) -> None:
        """Cut a connection on which too little comes."""
        limits, since_s = self.limits, now_s - self._began_s
        if not self.is_open:
            if since_s > limits.handshake_s:
                self.cut("did not prove in time who it is")
        elif now_s - self._heard_s > limits.silence_s:
            self.cut(f"silent for {limits.silence_s:g} s")
        elif since_s > limits.silence_s and self._frames.held_bytes < limits.least_rate * since_s:
            self.cut(f"sends less than {limits.least_rate:g} bytes/s of a frame")

    @property
    def is_closing(self) -> bool:
        """Whether it has not begun, or is at its end."""
        return self._transport is None or self._transport.is_closing()

    def forgive(self, seconds: float) -> None:
        """This process stood still for so long: nobody's silence."""
        self._heard_s += seconds
        self._began_s += seconds

    def write(self, buffers: list[Buffer]) -> None:
        """Write these, one behind the other; small ones are joined by whoever calls."""
        for buffer in buffers:
            self._transport.write(buffer)

    def unwritten_bytes(self) -> int:
        """What the event loop still holds of what was written."""
        return int(self._transport.get_write_buffer_size())

    def cut(self, why: str) -> None:
        """End the connection at once."""
        self._why = why
        self._transport.abort()

    def _say(self, message: object) -> None:
        self.write([b"".join(frame_of([_HANDSHAKE.encode(message)]))])

    def _opened(self, peer: str) -> None:
        self.peer, self.is_open = peer, True
        self._frames.largest = self.limits.frame_bytes


class AcceptedLink(TcpLink):
    """The end that was called: it reads frames, and says how many there were.

    on_begin(link): called when it is connected, and encrypted if it is to be. admit(link, caller): gives the
    number of the link that the caller had before, and of the frames that were read there; it raises Stranger
    for who may not call. on_frame: called with each frame that has come.
    """

    def __init__(
        self,
        limits: Limits,
        on_begin: Callable[[AcceptedLink], None],
        on_end: Callable[[TcpLink, str], None],
        endpoint: str,
        secret: bytes,
        admit: Callable[[AcceptedLink, str], tuple[int, int]],
        on_frame: Callable[[AcceptedLink, Buffer], None],
    ) -> None:
        super().__init__(limits, on_end)
        self.number = 0
        """Of this link among those that the caller has opened to this endpoint."""
        self.received = 0
        """Frames that were read."""
        self._endpoint = endpoint
        self._secret = secret
        self._on_begin = on_begin
        self._admit = admit
        self._on_frame = on_frame
        self._nonce = new_nonce()
        self._said = -1  # the count that was said last

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._on_begin(self)
        self._say(Challenge(VERSION, self._nonce))

    def frame_received(self, frame: Buffer) -> None:
        if not self.is_open:
            self._introduced(require_introduction(_HANDSHAKE.decode(bytes(frame))))
        elif len(frame):  # one without a content only says that the caller is there
            self.received += 1
            self._on_frame(self, frame)

    def frames_received(self) -> None:
        if self.is_open and self.received != self._said:
            self.beat()

    def beat(self) -> None:
        """Say how many frames were read, and so that this end is there."""
        self._said = self.received
        self.write([b"".join(frame_of([self.received.to_bytes(_COUNT_BYTES, "big")]))])

    def pause_writing(self) -> None:
        self.cut("does not read what it is told")

    def _introduced(self, caller: Introduction) -> None:
        about = (caller.endpoint, self._endpoint, self._nonce + caller.nonce)
        require_proof(caller.proof, proof(self._secret, "caller", *about))
        if (certificate := self._transport.get_extra_info("peercert")) is not None:
            require_named(certificate, caller.endpoint)
        self.number = caller.link
        before = self._admit(self, caller.endpoint)
        self._say(Welcome(proof(self._secret, "called", *about), *before))
        self._opened(caller.endpoint)


class CallingLink(TcpLink):
    """The end that has called: it writes frames, and is told how many of them were read.

    on_open(link, welcome): called once when both ends have proved who they are. on_read(count): called with
    how many frames were read at the other end so far. on_room(): called when more may be written again.
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
        """Whether the other end reads more slowly than this one writes."""
        self._endpoint, self._called = endpoint, called
        self._secret = secret
        self._on_open, self._on_read, self._on_room = on_open, on_read, on_room
        self._nonce = new_nonce()
        self._nonces = b""  # of both, once the other's has come

    def frame_received(self, frame: Buffer) -> None:
        if self.is_open:
            if len(frame) != _COUNT_BYTES:
                raise DecodeError("sent no count of frames")
            self._on_read(int.from_bytes(frame, "big"))
        elif not self._nonces:
            challenge = require_challenge(_HANDSHAKE.decode(bytes(frame)))
            self._nonces = challenge.nonce + self._nonce
            own = proof(self._secret, "caller", self._endpoint, self._called, self._nonces)
            self._say(Introduction(self._endpoint, self._nonce, self.number, own))
        else:
            welcome = require_welcome(_HANDSHAKE.decode(bytes(frame)))
            expected = proof(self._secret, "called", self._endpoint, self._called, self._nonces)
            require_proof(welcome.proof, expected)
            self._opened(self._called)
            self._on_open(self, welcome)

    def beat(self) -> None:
        """Say that this end is there."""
        self.write([b"".join(frame_of([]))])

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._on_room()
