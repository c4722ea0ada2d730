"""Transport over TCP: endpoints, which are processes on one or several machines, with actors in each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from actors.codec import Codec, size
from actors.message import Envelope, UnknownPeer
from actors.scan import Buffer, DecodeError
from actors.tcp.endpoint import TcpEndpoint, Tls
from actors.tcp.limits import MAILBOX_BYTES, Limits
from actors.tcp.link import AcceptedLink
from actors.tcp.meaning import Meaningless, require_valid_envelope
from actors.tcp.outgoing import Address
from actors.transport import Deliver, Transport
from actors.values import with_immutable_message


class TcpTransport(TcpEndpoint, Transport):
    """Transport of envelopes between the actors of this endpoint and actors of other endpoints.

    endpoint_of: returns the endpoint of an actor's name; None for an unknown name. The other arguments are as
    for `TcpEndpoint`.
    """

    mailbox_bytes = MAILBOX_BYTES

    def __init__(
        self,
        endpoint: str,
        addresses: Mapping[str, Address],
        endpoint_of: Callable[[str], str | None],
        codec: Codec,
        secret: bytes,
        *,
        tls: Tls | None = None,
        limits: Limits = Limits(),  # noqa: B008 - it cannot change
    ) -> None:
        super().__init__(endpoint, addresses, secret, tls=tls, limits=limits)
        self._endpoint_of = endpoint_of
        self._codec = codec
        self._attached: dict[str, Deliver] = {}

    def attach(self, name: str, deliver: Deliver) -> None:
        if name in self._attached:
            raise ValueError(f"{name} is already attached")
        if self._endpoint_of(name) != self.endpoint:
            raise ValueError(
                f"{name} belongs to endpoint {self._endpoint_of(name)}, but this is {self.endpoint}"
            )
        self._attached[name] = deliver

    def detach(self, name: str) -> None:
        self._attached.pop(name, None)

    def require_known(self, name: str) -> None:
        if self._endpoint_of(name) is None:
            raise UnknownPeer(name, list(self._attached))

    def send(self, envelope: Envelope) -> None:
        alterable: list[object] = []
        length = size(envelope, alterable)
        endpoint = self._endpoint_of(envelope.receiver)
        if endpoint is None:
            self.require_known(envelope.receiver)
        if alterable:
            envelope = with_immutable_message(envelope)
        if endpoint == self.endpoint:
            self._count(length)
            asyncio.get_running_loop().call_soon(self._deliver_locally, envelope)
        else:
            assert endpoint is not None
            self.send_frame(endpoint, self._codec.pieces(envelope), length)

    def _deliver_locally(self, envelope: Envelope) -> None:
        deliver = self._attached.get(envelope.receiver)
        self._count_fate(1, "" if deliver is not None else "down")
        if deliver is not None:
            deliver(envelope)

    def _received(self, link: AcceptedLink, frame: Buffer) -> None:
        counts = self.counts
        counts.received += 1
        try:
            envelope = require_valid_envelope(self._codec.decode(frame))
            if self._endpoint_of(envelope.sender) != link.peer:
                raise Meaningless("the sender belongs to another endpoint")
            if self._endpoint_of(envelope.receiver) != self.endpoint:
                raise Meaningless("the receiver belongs to another endpoint")
        except (DecodeError, Meaningless) as error:
            counts.refused += 1
            counts.count_reason(f"refused: {type(error).__name__}")
            return
        deliver = self._attached.get(envelope.receiver)
        if deliver is None:
            counts.unattached += 1
        else:
            deliver(envelope)
