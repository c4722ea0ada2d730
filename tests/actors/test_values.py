"""What is sent is a value: its sender cannot alter it on its way, nor one receiver what another one gets."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.actor import Actor
from actors.codec import size
from actors.message import Envelope
from actors.supervisor import Supervisor
from actors.transport import InMemoryTransport, Transport
from actors.values import with_immutable_message
from sim.kernel.clock import VirtualLoop
from tests.world.networks import network_model


@dataclass(frozen=True)
class Box:
    content: Any


@dataclass(frozen=True, slots=True)
class Pair:
    first: Any
    second: Any


@dataclass(frozen=True)
class Derived:
    value: Any
    own: list[int] = field(init=False, default_factory=lambda: [1])


@dataclass(frozen=True)
class Slotted:
    __slots__ = ("content",)
    content: Any


class Handle:
    immutable = True
    shape, dtype = (2, 3), "float32"

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise AssertionError("somebody wanted the numbers")


class Table:
    """Has numbers, as data frames do, and gives away its own when it is asked for an array."""

    dtype = np.dtype("float64")

    def __init__(self) -> None:
        self.rows = np.zeros((2, 3))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.rows


class Cloned(Table):
    """No tensor of torch's, though it has something of that name."""

    def clone(self) -> Any:
        return self


def sent(message: object) -> object:
    """What arrives when `message` is sent."""
    return with_immutable_message(Envelope("a", "b", message)).message


def alter(value: Any) -> None:
    """Change everything in it that can be changed."""
    match value:
        case list():
            for item in value:
                alter(item)
            value.append("altered")
        case dict():
            for item in value.values():
                alter(item)
            value["altered"] = 1
        case np.ndarray() | torch.Tensor():
            value[...] = 99
        case tuple():
            for item in value:
                alter(item)
        case Box(content) | Slotted(content):
            alter(content)
        case Pair(first, second):
            alter(first)
            alter(second)
        case Derived():
            alter(value.value)
            alter(value.own)


def shown(value: Any) -> str:
    """Everything in it, as text."""
    if isinstance(value, Slotted):
        return f"Slotted({shown(value.content)})"
    return repr(value)


def mutable(content: Any) -> list[Any]:
    return [
        [content, 1],
        {"a": content},
        {(1, 2): (content,)},
        np.arange(3.0),
        torch.zeros(2, 2),
        Box([content]),
        Slotted([content]),
        Pair(1, {"x": np.zeros(2)}),
        (1, (2, [content])),
        Box(Pair(Box([1]), None)),
        Derived([content]),
        Derived(1),
    ]


@pytest.mark.parametrize("index", range(len(mutable([1]))))
def test_what_can_be_altered_arrives_as_it_was_sent(index: int) -> None:
    value, before = mutable([1])[index], shown(mutable([1])[index])
    arrived = sent(value)
    alter(value)
    assert shown(value) != before
    assert shown(arrived) == before
    assert type(arrived) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        0.5,
        "text",
        b"bytes",
        (1, ("a", 2.0)),
        Box(Handle()),
        Pair(1, Box(np.float32(2))),
        np.int64(3),
    ],
)
def test_what_is_a_value_already_travels_as_it_is(value: object) -> None:
    envelope = Envelope("a", "b", value)
    assert with_immutable_message(envelope) is envelope
    alterable: list[object] = []
    size(envelope, alterable)
    assert alterable == []  # so that a transport need not even ask


@pytest.mark.parametrize("cls", [Table, Cloned])
def test_whatever_gives_an_array_is_a_handle_only_if_it_says_so(cls: type[Table]) -> None:
    table = cls()
    envelope = Envelope("a", "b", Box(table))
    alterable: list[object] = []
    size_bytes = size(envelope, alterable)
    arrived = with_immutable_message(envelope)
    assert alterable == [table]
    table.rows += 1
    assert arrived.message.content.tolist() == [[0.0] * 3] * 2  # type: ignore[union-attr]
    assert size(arrived) == size_bytes


trees = st.recursive(
    st.integers(-(2**63), 2**63) | st.text(max_size=3) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Box, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=12,
)


@given(trees)
def test_any_message_keeps_its_contents_and_its_size(value: object) -> None:
    envelope = Envelope("a", "b", Box(value))
    before, size_bytes = shown(value), size(envelope)
    arrived = with_immutable_message(envelope)
    assert arrived == envelope
    alter(value)
    assert shown(arrived.message) == shown(Box(value)).replace(shown(value), before)
    assert size(arrived) == size_bytes


class Node(Actor):
    """Sends, alters what it sent, and writes down what it gets."""

    collected = (Pair,)

    def __init__(self, name: str, transport: Transport) -> None:
        super().__init__(name, transport)
        self.kept = [1]
        self.got: list[object] = []

    async def run(self) -> None:
        if self.name == "a":
            await self.act()

    async def act(self) -> None:
        told = np.zeros(2)
        self.tell("b", Box(told))
        told += 1
        asked = {"x": [1]}
        answer = asyncio.ensure_future(self.ask("b", Slotted(asked), timeout=5))
        await asyncio.sleep(0)
        asked["x"].append(2)
        self.got.append((await answer).content)

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Slotted(content):
                self.got.append(content)
                kept = Slotted(self.kept)
                asyncio.get_running_loop().call_soon(self.kept.append, 2)
                self.tell("a", Pair(self.kept, 0))
                return kept
            case Box(content):
                self.got.append(content.tolist())
        return None


class Simulated:
    def __init__(self, **model: Any) -> None:
        from sim.world.network import SimulatedNetwork

        self.loop = VirtualLoop()
        self.transport = SimulatedNetwork(self.loop, 1, network_model(**model))


@pytest.mark.parametrize("simulated", [False, True])
def test_tells_asks_and_answers_are_values_over_every_transport(simulated: bool) -> None:
    world = Simulated()
    transport: Transport = world.transport if simulated else InMemoryTransport()
    nodes = [Node(name, transport) for name in "ab"]
    supervisor = Supervisor(transport)

    async def main() -> None:
        for node in nodes:
            supervisor.start(node)
        await asyncio.sleep(10)
        collected = await nodes[0].collect(Pair, ["b"], timeout=1)
        assert collected["b"].first == [1]
        await supervisor.drain()

    world.loop.run_until_complete(main())
    world.loop.close()
    assert supervisor.failures == []
    assert nodes[0].got == [[1]]
    assert nodes[1].got == [[0.0, 0.0], {"x": [1]}]


def test_a_doubled_datagram_is_no_way_from_its_receiver_to_itself() -> None:
    world = Simulated(reliable=False, duplicate=1.0)
    arrived: list[list[int]] = []

    def deliver(envelope: Envelope) -> None:
        content = envelope.message.content  # type: ignore[union-attr]
        arrived.append(list(content))
        content.append(2)

    world.transport.attach("b", deliver)
    world.transport.send(Envelope("a", "b", Box([1])))
    world.loop.run_until(1.0)
    world.loop.close()
    assert arrived == [[1], [1]]


class Meanwhile(Handle):
    """Another thread has its turn whenever somebody asks for the size."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self.turn = turn

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        thread = threading.Thread(target=self.turn)
        thread.start()
        thread.join()
        return (1,)


@pytest.mark.parametrize("simulated", [False, True])
def test_transports_in_two_threads_know_nothing_of_each_other(simulated: bool) -> None:
    world = Simulated()
    transport: Transport = world.transport if simulated else InMemoryTransport()
    arrived: list[object] = []

    async def another_one_sends() -> None:
        InMemoryTransport().send(Envelope("a", "b", Box([2])))

    async def main() -> None:
        transport.attach("b", lambda envelope: arrived.append(envelope.message.first))  # type: ignore[union-attr]
        value = [1]
        transport.send(Envelope("a", "b", Pair(value, Meanwhile(lambda: asyncio.run(another_one_sends())))))
        value.append(2)
        await asyncio.sleep(1 if simulated else 0)

    world.loop.run_until_complete(main())
    world.loop.close()
    assert arrived == [[1]]


@pytest.mark.parametrize("receiver", ["a", "b"])
def test_what_is_no_value_is_refused_with_the_field_even_to_oneself(receiver: str) -> None:
    world = Simulated()
    world.transport.attach("a", lambda envelope: None)
    for content, text in (
        (Box({1}), r"Box\.content: set"),
        (Box(bytearray(b"x")), r"Box\.content: bytearray"),
    ):
        with pytest.raises(TypeError, match=text):
            world.transport.send(Envelope("a", receiver, content))
    world.loop.close()
