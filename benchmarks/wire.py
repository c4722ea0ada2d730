"""Messages between two processes over TCP, small and large, on asyncio's event loop and on uvloop."""

import asyncio
import multiprocessing
import socket
import statistics
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from actors.codec import Codec
from actors.message import Envelope
from actors.tcp.outgoing import Address
from actors.tcp.transport import TcpTransport
from benchmarks.measuring import Effort, Say, interleaved, median_ratio, per_second, table, times

SECRET = bytes(32)
AHEAD = 512  # maximum number of messages in transit
CONTENTS = {"1 kB": (1_000, 100_000), "100 kB": (100_000, 10_000), "10 MB": (10_000_000, 200)}
"""Bytes of a message, and number of messages in a full measurement."""


@dataclass(frozen=True)
class Block:
    """A message of random values."""

    numbers: Any


def endpoint_of(actor: str) -> str:
    """Return the endpoint of an actor, which has the name of the actor."""
    return actor


def addresses() -> dict[str, Address]:
    """Return two free ports of this machine."""
    with ExitStack() as stack:
        free = [stack.enter_context(closing(socket.socket())) for _ in range(2)]
        for each in free:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in free]
    return {name: Address("127.0.0.1", port) for name, port in zip(("a", "b"), ports, strict=True)}


def measure(effort: Effort, say: Say) -> str:
    """Return the section of the page."""
    loops = ["asyncio", *(["uvloop"] if find_spec("uvloop") else [])]
    rows = []
    for label, (size, count) in CONTENTS.items():
        count = max(20, round(count * effort.share))
        contenders = {name: partial(messages_per_second, name, size, count) for name in loops}
        rates = interleaved(contenders, effort.repetitions)
        beside = times(median_ratio(rates[loops[-1]], rates["asyncio"]))
        volume = statistics.median(rates[loops[-1]]) * size / 1e6
        rows.append([label, *[per_second(rates[name]) for name in loops], beside, f"{volume:,.0f} MB/s"])
        say(f"messages of {label}: {rows[-1]}")
    head = ["message", *[f"{name}, messages/s" for name in loops], f"{loops[-1]} to asyncio", "volume"]
    return (
        "## Messages between processes\n\n"
        f"One process sends and another receives on this machine, with at most {AHEAD} messages in transit. "
        "Each message is encoded, framed, decoded and read.\n\n" + table(head, rows)
    )


def messages_per_second(loop: str, size_bytes: int, count: int) -> float:
    """Return the rate at which messages of this size go from a new process to another."""
    where, context = addresses(), multiprocessing.get_context("spawn")
    told, tells = context.Pipe(duplex=False)
    receiver = context.Process(target=_run, args=(loop, partial(_receive, where, count), None))
    sender = context.Process(target=_run, args=(loop, partial(_send, where, size_bytes, count), tells))
    for process in (receiver, sender):
        process.start()
    try:
        return float(told.recv())
    finally:
        for process in (sender, receiver):
            process.join()


def _run(loop: str, main: Any, tells: Connection | None) -> None:
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        found = runner.run(main())
    if tells is not None:
        tells.send(found)


def _transport(name: str, where: dict[str, Address]) -> TcpTransport:
    return TcpTransport(name, where, endpoint_of, Codec(Block), SECRET)


async def _receive(where: dict[str, Address], count: int) -> None:
    done, left = asyncio.Event(), count

    def deliver(envelope: Envelope) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with _transport("b", where) as transport:
        transport.attach("b", deliver)
        await done.wait()
        await asyncio.sleep(0.5)  # report the number of read messages to the sender


async def _send(where: dict[str, Address], size_bytes: int, count: int) -> float:
    message = Block(np.zeros(size_bytes // 4, np.float32))
    envelope = Envelope("a", "b", message)
    ahead = max(2, min(AHEAD, 50_000_000 // size_bytes))
    async with _transport("a", where) as transport:
        await transport.connected(60.0)
        started = time.perf_counter()
        for number in range(count):
            transport.send(envelope)
            if number % 16 == 15:
                await asyncio.sleep(0)
            while transport.counts.in_flight >= ahead:
                await asyncio.sleep(0)
        while transport.counts.in_flight:
            await asyncio.sleep(0)
        took_s = time.perf_counter() - started
        assert transport.counts.delivered == count, transport.counts
        return count / took_s
