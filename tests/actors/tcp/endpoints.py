"""Endpoints on this machine, for tests: free ports, and transports of one secret."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from actors.codec import Codec
from actors.message import Envelope
from actors.tcp.limits import Limits
from actors.tcp.outgoing import Address
from actors.tcp.transport import TcpTransport

SECRET = bytes(range(32))
LIMITS = Limits(beat_s=0.05, silence_s=20.0, retry_s=0.01, retry_max_s=0.05, handshake_s=20.0)
WAIT_S = 30.0  # of a test that would otherwise hang


@dataclass(frozen=True)
class Note:
    content: Any


CODEC = Codec(Note)


def note(content: Any, sender: str = "a.1", receiver: str = "b.1") -> Envelope:
    return Envelope(sender, receiver, Note(content))


def endpoint_of(actor: str) -> str | None:
    """Actors are called by their endpoint's name and a number, as "a.1"."""
    endpoint, _, number = actor.partition(".")
    return endpoint if number and endpoint in "abcdefgh" else None


def addresses(names: str) -> dict[str, Address]:
    """Ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        free = [stack.enter_context(closing(socket.socket())) for _ in names]
        for each in free:
            each.bind(("127.0.0.1", 0))
        return {
            name: Address("127.0.0.1", each.getsockname()[1]) for name, each in zip(names, free, strict=True)
        }


@asynccontextmanager
async def endpoints(names: str, limits: Limits = LIMITS, **more: Any) -> AsyncIterator[list[TcpTransport]]:
    """Transports of these endpoints, each connected to all others."""
    where = addresses(names)
    async with AsyncExitStack() as stack:
        made = [
            TcpTransport(name, where, endpoint_of, CODEC, SECRET, limits=limits, **more) for name in names
        ]
        for each in made:
            await stack.enter_async_context(each)
        for each in made:
            await each.connected(WAIT_S)
        yield made


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds. TimeoutError."""
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.005)


def accounted(transport: TcpTransport) -> bool:
    """Whether every message that was sent has one fate."""
    counts = transport.counts
    return counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
