"""Messages between endpoints: in order, whole, each accounted for, whatever becomes of connections."""

import asyncio
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from actors.actor import Actor
from actors.codec import size
from actors.message import Envelope, PeerUnavailable, UnknownPeer
from actors.supervisor import Supervisor
from actors.tcp.outgoing import Address
from actors.tcp.transport import TcpTransport
from tests.actors.tcp.endpoints import (
    CODEC,
    LIMITS,
    SECRET,
    Note,
    accounted,
    addresses,
    endpoint_of,
    endpoints,
    note,
    until,
)


@pytest.mark.asyncio
async def test_messages_arrive_in_order_and_are_counted() -> None:
    async with endpoints("ab") as (a, b):
        log: list[Envelope] = []
        b.attach("b.1", log.append)
        sent = [note(number) for number in range(1000)]
        for envelope in sent:
            a.send(envelope)
        await until(lambda: a.counts.in_flight == 0)
        assert log == sent
        assert (a.counts.sent, a.counts.delivered, b.counts.received) == (1000, 1000, 1000)
        assert a.counts.bytes == sum(map(size, sent))


@pytest.mark.asyncio
async def test_large_arrays_arrive_as_they_were_when_they_were_sent() -> None:
    async with endpoints("ab") as (a, b):
        log: list[Any] = []
        b.attach("b.1", lambda envelope: log.append(envelope.message.content))
        array = np.arange(500_000, dtype=np.float64)
        for _ in range(3):
            a.send(note((1, array)))
            a.send(note("small"))
            array += 1  # after it was sent
        await until(lambda: len(log) == 6)
        for number, (_, found) in enumerate(log[::2]):
            np.testing.assert_array_equal(found, np.arange(500_000) + number)
        assert log[1::2] == ["small"] * 3


@pytest.mark.asyncio
async def test_within_an_endpoint_and_to_nobody() -> None:
    async with endpoints("ab") as (a, b):
        log: list[Envelope] = []
        a.attach("a.2", log.append)
        a.send(note(1, "a.1", "a.2"))
        a.send(note(2, "a.1", "a.3"))
        assert (log, a.counts.in_flight) == ([], 2)
        await until(lambda: a.counts.in_flight == 0)
        assert log == [note(1, "a.1", "a.2")]
        assert (a.counts.delivered, a.counts.dropped, a.counts.reasons) == (1, 1, {"down": 1})
        a.send(note(3))
        await until(lambda: b.counts.unattached == 1)
        with pytest.raises(UnknownPeer):
            a.send(note(4, "a.1", "nobody"))
        with pytest.raises(TypeError, match="set cannot be sent"):
            a.send(note({1}))
        assert a.counts.sent == 3
        with pytest.raises(ValueError, match=r"b.1 belongs to endpoint b, but this is a"):
            a.attach("b.1", log.append)


class Counter(Actor):
    """Answers with twice the number, and adds up what it is told."""

    total = 0

    async def on_message(self, message: object, sender: str) -> object:
        assert isinstance(message, Note)
        self.total += message.content
        return Note(2 * message.content)


@pytest.mark.asyncio
async def test_actors_ask_across_endpoints() -> None:
    async with endpoints("ab") as (a, b):
        asker, answerer = Counter("a.1", a), Counter("b.1", b)
        supervisors = [Supervisor(each) for each in (a, b)]
        for supervisor, actor in zip(supervisors, (asker, answerer), strict=True):
            supervisor.start(lambda actor=actor: actor)
        await asyncio.sleep(0)
        answers = [await asker.ask("b.1", Note(number), timeout=10) for number in range(20)]
        assert answers == [Note(2 * number) for number in range(20)]
        await supervisors[1].stop("b.1")
        with pytest.raises(PeerUnavailable):
            await asker.ask("b.1", Note(1), timeout=0.2)
        await asyncio.gather(*[supervisor.drain() for supervisor in supervisors])


@pytest.mark.asyncio
async def test_a_connection_that_breaks_is_made_again_and_nothing_is_counted_twice() -> None:
    async with endpoints("ab") as (a, b):
        log: list[int] = []
        state = random.getstate()
        b.attach("b.1", lambda envelope: log.append(envelope.message.content))
        for number in range(300):
            a.send(note(number))
            if number % 50 == 20:
                await asyncio.sleep(0)
                for link in list(b._accepted):
                    link.cut("a test")
            if number % 10 == 0:
                await asyncio.sleep(0.005)
            assert accounted(a)
        await a.connected(10)
        await until(lambda: a.counts.in_flight == 0)
        assert a.counts.delivered == len(log) == b.counts.received
        assert log == sorted(set(log))
        assert a.counts.lost == 300 - len(log) > 0
        assert random.getstate() == state  # pauses between attempts are not drawn from what all share


@pytest.mark.asyncio
async def test_without_a_connection_messages_are_lost_at_once() -> None:
    where = addresses("ab")
    async with TcpTransport("a", where, endpoint_of, CODEC, SECRET, limits=LIMITS) as a:
        a.send(note(1))
        assert (a.counts.lost, a.counts.reasons) == (1, {"not connected": 1})
        with pytest.raises(TimeoutError, match=r"not connected to b \(cannot be reached: "):
            await a.connected(0.1)
        async with TcpTransport("b", where, endpoint_of, CODEC, SECRET, limits=LIMITS) as b:
            await a.connected(10)
            a.send(note(2))
            await until(lambda: b.counts.received == 1)
        a.send(note(3))
        await until(lambda: accounted(a) and a._outgoing["b"].link is None)
    assert a.counts.in_flight == 0 and a.counts.sent == 3


@pytest.mark.long
@pytest.mark.asyncio
async def test_who_stood_still_does_not_take_others_for_silent() -> None:
    async with endpoints("ab", replace(LIMITS, silence_s=0.3)) as (a, b):
        links = [*a._accepted, *b._accepted]
        time.sleep(1.0)
        await asyncio.sleep(0.2)
        assert [*a._accepted, *b._accepted] == links


@pytest.mark.asyncio
async def test_what_a_slow_reader_cannot_take_is_dropped_and_counted() -> None:
    limits = replace(LIMITS, backlog_bytes=4_000_000, silence_s=60.0)
    async with endpoints("ab", limits) as (a, b):
        [link] = [each for each in b._accepted if each.peer == "a"]
        link._transport.pause_reading()
        array = np.zeros(125_000)  # a megabyte
        most = 0
        for _ in range(150):
            a.send(note(array))
            outgoing = a._outgoing["b"]
            assert outgoing.link is not None
            most = max(most, outgoing._waiting_bytes + outgoing.link.unwritten_bytes())
            await asyncio.sleep(0)
        assert most <= 4_000_000 + 1_100_000
        assert a.counts.dropped == a.counts.reasons["backlog"] > 100
        link._transport.resume_reading()
        await until(lambda: a.counts.in_flight == 0)
        assert a.counts.delivered == 150 - a.counts.dropped == b.counts.received


def test_wrong_arguments() -> None:
    def made(host: str, secret: bytes) -> TcpTransport:
        return TcpTransport("a", {"a": Address(host, 1)}, endpoint_of, CODEC, secret)

    with pytest.raises(ValueError, match="must have at least 16 bytes"):
        made("localhost", b"short")
    with pytest.raises(ValueError, match=r"192.168.0.1 is another machine: encrypt connections"):
        made("192.168.0.1", SECRET)
    made("::1", SECRET)
