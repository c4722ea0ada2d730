"""The in-memory transport: order, turns and counts."""

import asyncio
from dataclasses import dataclass

import pytest

from actors.codec import size
from actors.message import Envelope
from actors.transport import InMemoryTransport


@dataclass(frozen=True)
class Note:
    content: object


def note(content: object, receiver: str = "b") -> Envelope:
    return Envelope("a", receiver, Note(content))


def counts(transport: InMemoryTransport) -> tuple[int, int, int, int]:
    assert transport.sent == transport.delivered + transport.dropped + transport.in_flight
    return transport.sent, transport.delivered, transport.dropped, transport.in_flight


@pytest.mark.asyncio
async def test_messages_arrive_in_order_in_the_next_turn() -> None:
    transport = InMemoryTransport()
    log: list[Envelope] = []
    transport.attach("b", log.append)
    transport.attach("c", log.append)
    sent = [note(1), note(2, "c"), note(3), note(4, "nobody")]
    for envelope in sent:
        transport.send(envelope)
    assert (log, counts(transport)) == ([], (4, 0, 0, 4))
    await asyncio.sleep(0)
    assert (log, counts(transport)) == (sent[:3], (4, 3, 1, 0))
    assert transport.bytes == sum(map(size, sent))


@pytest.mark.asyncio
async def test_what_is_sent_on_delivery_belongs_to_the_next_turn() -> None:
    transport = InMemoryTransport()
    log: list[object] = []

    def echo(envelope: Envelope) -> None:
        log.append((envelope.message, counts(transport)))
        transport.send(note("echo"))

    transport.attach("a", echo)
    transport.attach("b", log.append)
    transport.send(note(1, "a"))
    transport.send(note(2, "a"))
    await asyncio.sleep(0)
    assert log == [(Note(1), (2, 1, 0, 1)), (Note(2), (3, 2, 0, 1))]
    await asyncio.sleep(0)
    assert log[2:] == [note("echo"), note("echo")]
    assert counts(transport) == (4, 4, 0, 0)


@pytest.mark.asyncio
async def test_attach_and_detach() -> None:
    transport = InMemoryTransport()
    log: list[Envelope] = []
    transport.attach("b", log.append)
    with pytest.raises(ValueError, match="b is already attached"):
        transport.attach("b", log.append)
    transport.send(note(1))
    transport.detach("b")
    transport.detach("b")
    await asyncio.sleep(0)
    assert (log, counts(transport)) == ([], (1, 0, 1, 0))
    transport.attach("b", log.append)
    transport.send(note(2))
    await asyncio.sleep(0)
    assert log == [note(2)]
    transport.abort("b")
    transport.send(note(3))
    await asyncio.sleep(0)
    assert counts(transport) == (3, 1, 2, 0)


@pytest.mark.asyncio
async def test_what_cannot_be_encoded_is_not_sent() -> None:
    transport = InMemoryTransport()
    with pytest.raises(TypeError, match=r"Envelope\.message: Note\.content: set cannot be sent"):
        transport.send(note({1, 2}))
    assert counts(transport) == (0, 0, 0, 0)
    transport.send(note(1))
    await asyncio.sleep(0)
    assert counts(transport) == (1, 0, 1, 0)


@pytest.mark.asyncio
async def test_time_is_the_event_loops() -> None:
    transport = InMemoryTransport()
    before = transport.now()
    await transport.sleep(0.001)
    assert before + 0.001 <= transport.now() <= asyncio.get_running_loop().time()
