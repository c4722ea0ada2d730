"""Endpoint: one process of a run over TCP, connected to all others, to which it sends frames of bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Self

from actors.scan import Buffer
from actors.tcp.handshake import Stranger
from actors.tcp.limits import Limits
from actors.tcp.link import AcceptedLink, TcpLink
from actors.tcp.outgoing import Address, Outgoing

_LINGER_S = 1.0
DROPS = ("backlog", "down", "too large")
"""Reasons why the sender itself drops a frame, as opposed to losses on the network."""


@dataclass(frozen=True)
class Tls:
    """Encryption in which both ends present a certificate that names their endpoint (as a DNS name).

    server, client: the contexts for connections to this endpoint and from it.
    """

    server: ssl.SSLContext
    client: ssl.SSLContext

    @classmethod
    def of(cls, authority: str, certificate: str, key: str) -> Tls:
        """Read PEM files: the common authority, and this endpoint's certificate and key. Raises OSError."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_verify_locations(authority)
            context.load_cert_chain(certificate, key)
            context.verify_mode = ssl.CERT_REQUIRED
        return cls(server, client)


@dataclass
class TcpCounts:
    """Counts of frames of one endpoint so far. Always sent == delivered + lost + dropped + in_flight.

    delivered: read at the other endpoint, or given to an actor of this one. lost: on a connection that broke,
    or while there was none. dropped: because the frame was too long, too many bytes were waiting, or the
    receiving actor of this endpoint is not attached. received: from other endpoints; of these, `refused` were
    no messages or had false senders or receivers, and `unattached` were for actors that are not attached.
    bytes: encoded size of all sent frames. reasons: counts of the reasons for lost, dropped or refused
    frames, and refused connections.
    """

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    dropped: int = 0
    in_flight: int = 0
    bytes: int = 0
    received: int = 0
    refused: int = 0
    unattached: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def count_reason(self, reason: str, count: int = 1) -> None:
        """Increase the count of a reason."""
        if count:
            self.reasons[reason] = self.reasons.get(reason, 0) + count


class TcpEndpoint(ABC):
    """Endpoint that is connected to all others of a run; subclasses define the content of frames.

    endpoint: name of this endpoint. addresses: the addresses of all endpoints. secret: the secret of the run,
    at least 16 bytes. tls: required unless all addresses are on this machine. listener: a socket that already
    listens at its address. Use an endpoint as `async with endpoint:`, which makes it listen, and connect to
    all others as soon as they listen.
    """

    def __init__(
        self,
        endpoint: str,
        addresses: Mapping[str, Address],
        secret: bytes,
        *,
        tls: Tls | None = None,
        limits: Limits = Limits(),  # noqa: B008 - it cannot change
        listener: socket.socket | None = None,
    ) -> None:
        if len(secret) < 16:
            raise ValueError(f"the secret of a run must have at least 16 bytes, not {len(secret)}")
        if tls is None and (open_to := [each.host for each in addresses.values() if not is_local(each.host)]):
            raise ValueError(f"{open_to[0]} is another machine: encrypt connections to it (set `tls`)")
        self.endpoint = endpoint
        self.counts = TcpCounts()
        self.limits = limits
        self._addresses = dict(addresses)
        self._secret = secret
        self._tls = tls
        self._listener = listener
        self._outgoing: dict[str, Outgoing] = {}
        self._accepted: dict[AcceptedLink, None] = {}  # in order of arrival
        self._strangers: dict[AcceptedLink, None] = {}  # those that are not yet authenticated
        self._read: dict[str, tuple[int, int]] = {}  # by endpoint: its last link to this one, and frames read
        self._server: asyncio.Server | None = None
        self._beating: asyncio.Task[None] | None = None

    @abstractmethod
    def _received(self, link: AcceptedLink, frame: Buffer) -> None:
        """Handle a frame from the endpoint `link.peer`, without waiting or raising."""

    # --- start and end --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        own = self._addresses[self.endpoint]
        tls = None if self._tls is None else self._tls.server
        patience_s = None if tls is None else self.limits.handshake_s
        if self._listener is None:
            self._server = await loop.create_server(
                self._accept, own.host, own.port, ssl=tls, ssl_handshake_timeout=patience_s
            )
        else:
            self._server = await loop.create_server(
                self._accept, sock=self._listener, ssl=tls, ssl_handshake_timeout=patience_s
            )
        for name, address in self._addresses.items():
            if name != self.endpoint:
                self._outgoing[name] = Outgoing(
                    self.limits, self.endpoint, name, address, self._secret,
                    None if self._tls is None else self._tls.client, partial(self._settled, name),
                    partial(self._linked, name),
                )  # fmt: skip
        self._beating = loop.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._beating is not None and self._server is not None
        await asyncio.gather(*[each.close(_LINGER_S) for each in self._outgoing.values()])
        self._beating.cancel()
        with suppress(asyncio.CancelledError):
            await self._beating
        self._server.close()
        for link in list(self._accepted):
            link.cut("closed")

    async def connected(self, timeout_s: float, to: Iterable[str] | None = None) -> None:
        """Wait until other endpoints (default: all) are connected. TimeoutError names the missing ones."""
        wanted = list(self._outgoing if to is None else to)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while missing := [name for name in wanted if not self.is_connected(name)]:
            if loop.time() >= until_s:
                ends = {name: self._outgoing[name].ends or ["no answer yet"] for name in missing}
                reasons = ", ".join(f"{name} ({why[-1]})" for name, why in ends.items())
                raise TimeoutError(f"not connected to {reasons}")
            await asyncio.sleep(0.01)

    def is_connected(self, endpoint: str) -> bool:
        """Return whether frames for another endpoint can be sent at once."""
        return self._outgoing[endpoint].link is not None

    @property
    def port(self) -> int:
        """Port on which this endpoint listens, even if its address leaves the port open (0)."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    # --- frames for others ----------------------------------------------------------------------------------

    def send_frame(self, endpoint: str, pieces: list[Buffer], length: int) -> str:
        """Send a frame of `length` bytes; return the reason for a loss or drop, or "" for none."""
        too_large = length > self.limits.frame_bytes
        why = "too large" if too_large else self._outgoing[endpoint].send(pieces)
        self._count(length)
        if why:
            self._count_fate(1, why)
        return why

    def _count(self, length: int) -> None:
        """Count a sent frame or message of `length` bytes."""
        self.counts.sent += 1
        self.counts.bytes += length
        self.counts.in_flight += 1

    def _settled(self, endpoint: str, count: int, fate: str) -> None:
        """Record the outcome of the `count` oldest frames sent to an endpoint; "" means read."""
        self._count_fate(count, fate)

    def _linked(self, endpoint: str, up: bool) -> None:  # noqa: B027 - few subclasses need it
        """React to a new connection to another endpoint, or to its end."""

    def _count_fate(self, count: int, fate: str) -> None:
        counts = self.counts
        counts.in_flight -= count
        if not fate:
            counts.delivered += count
            return
        if fate in DROPS:
            counts.dropped += count
        else:
            counts.lost += count
        counts.count_reason(fate, count)

    # --- connections of others ------------------------------------------------------------------------------

    def _accept(self) -> AcceptedLink:
        return AcceptedLink(
            self.limits, self._added, self._ended, self.endpoint, self._secret, self._admitted, self._received
        )

    def _added(self, link: AcceptedLink) -> None:
        self._accepted[link] = self._strangers[link] = None
        if len(self._strangers) > self.limits.strangers:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.cut("too many unauthenticated connections")

    def _admitted(self, link: AcceptedLink, caller: str) -> tuple[int, int]:
        if caller not in self._addresses or caller == self.endpoint:
            raise Stranger(f"{caller!r:.60} is not an endpoint of this run")
        for other in [each for each in self._accepted if each.peer == caller]:
            other.cut("replaced by a later connection")  # its end has not been noticed yet
            self._read[caller] = (other.number, other.received)
        self._strangers.pop(link, None)
        return self._read.get(caller, (0, 0))

    def _ended(self, link: TcpLink, why: str) -> None:
        assert isinstance(link, AcceptedLink)
        self._accepted.pop(link, None)
        self._strangers.pop(link, None)
        if not link.peer:
            self.counts.count_reason(f"a stranger {why}")
        elif link.number >= self._read.get(link.peer, (0, 0))[0]:
            self._read[link.peer] = (link.number, link.received)

    # --- supervision of connections -------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Check all connections periodically, and send a heartbeat on each."""
        loop, every_s = asyncio.get_running_loop(), self.limits.beat_s
        while True:
            before_s = loop.time()
            await asyncio.sleep(every_s)
            now_s = loop.time()
            stood_still_s = now_s - before_s - every_s
            calling = [each.latest for each in self._outgoing.values() if each.latest is not None]
            for link in (*self._accepted, *calling):
                if link.is_closing:
                    continue
                if stood_still_s > every_s:
                    link.forgive(stood_still_s)
                link.look(now_s)
                if link.is_open:
                    link.beat()


def is_local(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or "localhost"."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
