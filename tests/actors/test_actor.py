"""Actors in virtual time: handlers, asks, collects, spawned tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import pytest

from actors.actor import Actor
from actors.message import ActorError, AskInHandler, PeerUnavailable, RemoteError
from actors.status import ActorStatus
from actors.supervisor import Supervisor
from actors.transport import InMemoryTransport
from tests.virtual_time import run_virtual

T = TypeVar("T")


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Work:
    seconds: float


@dataclass(frozen=True)
class Model:
    round: int


def is_of_round(round_: int, model: Model) -> bool:
    return model.round == round_


class Client(Actor):
    """Does what a test gives it to do, and logs what happens with the virtual time."""

    collected: ClassVar[tuple[type, ...]] = (Model,)

    def __init__(
        self,
        name: str,
        transport: InMemoryTransport,
        script: Callable[[Client], Coroutine[Any, Any, None]] | None = None,
        **options: int,
    ) -> None:
        super().__init__(name, transport, **options)
        self.script = script
        self.log: list[tuple[float, object]] = []

    def note(self, event: object) -> None:
        self.log.append((self.now, event))

    async def run(self) -> None:
        if self.script is not None:
            await self.script(self)

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case Work(seconds):
                self.note(f"{seconds} from {sender}")
                await self.sleep(seconds)
                self.note(f"{seconds} done")
                return Note(f"{seconds} for {sender}")
            case Note("fail"):
                raise ValueError("told to fail")
            case Note(text):
                self.note(text)
        return None


class World:
    """One transport and one supervisor, whose failures fail the test unless it expects them."""

    def __init__(self) -> None:
        self.transport = InMemoryTransport()
        self.supervisor = Supervisor(self.transport)

    def client(
        self, name: str, script: Callable[[Client], Coroutine[Any, Any, None]] | None = None, **options: int
    ) -> Client:
        client = Client(name, self.transport, script, **options)
        self.supervisor.start(client)
        return client


def simulate(main: Callable[[World], Coroutine[Any, Any, T]], failures: int = 0) -> T:
    async def everything() -> T:
        world = World()
        result = await main(world)
        await world.supervisor.drain()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert len(world.supervisor.failures) == failures, world.supervisor.failures
        return result

    return run_virtual(everything())  # type: ignore[return-value]


def test_handlers_run_one_at_a_time_in_order_of_arrival() -> None:
    async def main(world: World) -> None:
        server = world.client("server")
        client = world.client("client")
        await asyncio.sleep(0)
        asks = [asyncio.ensure_future(client.ask("server", Work(s), timeout=99)) for s in (3.0, 1.0, 2.0)]
        assert [(await ask).text for ask in asks] == [f"{s} for client" for s in (3.0, 1.0, 2.0)]
        assert server.log == [
            (0.0, "3.0 from client"),
            (3.0, "3.0 done"),
            (3.0, "1.0 from client"),
            (4.0, "1.0 done"),
            (4.0, "2.0 from client"),
            (6.0, "2.0 done"),
        ]

    simulate(main)


def test_handlers_interleave_with_run() -> None:
    async def script(me: Client) -> None:
        for _ in range(3):
            await me.sleep(1.0)
            me.note("step")

    async def main(world: World) -> None:
        client = world.client("client", script)
        await asyncio.sleep(0.5)
        world.client("other").tell("client", Note("hello"))
        await asyncio.sleep(10)
        assert client.log == [(0.5, "hello"), (1.0, "step"), (2.0, "step"), (3.0, "step")]

    simulate(main)


def test_messages_wait_for_on_start_and_outlive_run() -> None:
    class Slow(Client):
        async def on_start(self) -> None:
            answer = await self.ask("other", Work(2.0), timeout=99)
            self.note(f"started with {answer.text}")

        async def run(self) -> None:
            self.note("run")

    async def main(world: World) -> None:
        other = world.client("other")
        slow = Slow("slow", world.transport)
        world.supervisor.start(slow)
        other.tell("slow", Note("early"))
        await asyncio.sleep(5.0)
        other.tell("slow", Note("late"))
        await asyncio.sleep(0.1)
        assert slow.log == [(2.0, "started with 2.0 for slow"), (2.0, "run"), (2.0, "early"), (5.0, "late")]

    simulate(main)


def test_an_answer_may_be_none() -> None:
    async def main(world: World) -> None:
        world.client("other")
        assert await world.client("client").ask("other", Note("x"), timeout=1) is None

    simulate(main)


@pytest.mark.parametrize("peer", ["nobody", "busy"])
def test_ask_gives_up_after_its_timeout(peer: str) -> None:
    async def main(world: World) -> None:
        world.client("busy")
        client = world.client("client")
        with pytest.raises(PeerUnavailable) as info:
            await client.ask(peer, Work(5.0), timeout=1.5)
        assert client.now == 1.5
        assert (info.value.peer, info.value.reason) == (peer, "no answer to Work within 1.5 s")
        await asyncio.sleep(10)
        assert ActorStatus(client).late_answers == (peer == "busy")
        assert ActorStatus(client).waiting_for is None

    simulate(main)


def test_an_answer_to_another_ask_is_not_taken() -> None:
    async def main(world: World) -> None:
        world.client("busy")
        client = world.client("client")
        with pytest.raises(PeerUnavailable):
            await client.ask("busy", Work(5.0), timeout=1.0)
        answer = await client.ask("busy", Work(7.0), timeout=99.0)  # the answer to the first one comes first
        assert (client.now, answer.text, ActorStatus(client).late_answers) == (12.0, "7.0 for client", 1)

    simulate(main)


def test_a_remote_error_reaches_the_asker() -> None:
    async def main(world: World) -> None:
        world.client("other")
        client = world.client("client")
        with pytest.raises(RemoteError) as info:
            await client.ask("other", Note("fail"), timeout=1)
        assert (info.value.peer, info.value.text) == ("other", "ValueError: told to fail")
        assert client.now == 0.0
        await asyncio.sleep(0.1)
        assert list(world.supervisor.running) == ["client"]

    simulate(main, failures=1)


def test_an_answer_that_cannot_be_encoded_is_an_error_on_both_sides() -> None:
    class Leaky(Actor):
        async def on_message(self, message: object, sender: str) -> object:
            return {1, 2}

    async def main(world: World) -> None:
        world.supervisor.start(Leaky("leaky", world.transport))
        with pytest.raises(RemoteError, match=r"the answer of on_message\(\): set cannot be sent"):
            await world.client("client").ask("leaky", Note("x"), timeout=1)
        assert world.supervisor.failures[0].where == "Note"

    simulate(main, failures=1)


def test_a_handler_may_not_wait_for_others_but_what_it_spawns_may() -> None:
    class Asking(Client):
        async def on_message(self, message: object, sender: str) -> object:
            with pytest.raises(AskInHandler, match=r"called ask\(\) in on_message\(\).*self\.spawn\(\)"):
                await self.ask("other", Work(1.0), timeout=9)
            with pytest.raises(AskInHandler, match=r"called collect\(\) in on_message\(\)"):
                await self.collect(Model, [sender], timeout=None)
            self.spawn(self.exchange())
            return None

        async def exchange(self) -> None:
            self.note((await self.ask("other", Work(1.0), timeout=9)).text)

    async def main(world: World) -> None:
        asking = Asking("asking", world.transport)
        world.supervisor.start(asking)
        world.client("other").tell("asking", Note("go"))
        await asyncio.sleep(5)
        assert asking.log == [(1.0, "1.0 for asking")]

    simulate(main)


def test_two_actors_that_ask_each_other_from_run_both_get_answers() -> None:
    async def main(world: World) -> None:
        async def script(me: Client) -> None:
            peer = {"a": "b", "b": "a"}[me.name]
            me.note((await me.ask(peer, Work(1.0), timeout=9)).text)

        a, b = world.client("a", script), world.client("b", script)
        await asyncio.sleep(5)
        assert (a.log[-1], b.log[-1]) == ((1.0, "1.0 for a"), (1.0, "1.0 for b"))

    simulate(main)


def test_collect_is_a_barrier_among_neighbours() -> None:
    async def script(me: Client) -> None:
        others = [name for name in ("a", "b", "c") if name != me.name]
        for round_ in range(3):
            await me.sleep({"a": 1.0, "b": 2.0, "c": 5.0}[me.name])
            for other in others:
                me.tell(other, Model(round_))
            got = await me.collect(Model, others, timeout=None, where=partial(is_of_round, round_))
            assert list(got) == others
            me.note(round_)

    async def main(world: World) -> None:
        clients = [world.client(name, script) for name in "abc"]
        await asyncio.sleep(3.0)
        assert [ActorStatus(client).waiting_for for client in clients] == [
            "Model from c",
            "Model from c",
            None,
        ]
        await asyncio.sleep(97.0)
        for client in clients:
            assert client.log == [(5.0, 0), (10.0, 1), (15.0, 2)]

    simulate(main)


def test_collect_returns_at_its_timeout_what_came() -> None:
    async def main(world: World) -> None:
        client, early = world.client("client"), world.client("early")
        early.tell("client", Model(1))
        assert await client.collect(Model, ["late", "early"], timeout=2.5) == {"early": Model(1)}
        assert client.now == 2.5
        early.tell("client", Model(2))
        await asyncio.sleep(1)
        assert client.discard(Model, lambda model: model.round < 2) == 0
        assert client.discard(Model) == 1

    simulate(main)


def test_only_what_is_collected_can_be_collected() -> None:
    async def main(world: World) -> None:
        client = world.client("client")
        with pytest.raises(ActorError, match=r"Client cannot collect Note: .*`collected`"):
            await client.collect(Note, ["other"], timeout=None)
        with pytest.raises(ActorError, match="cannot collect Note"):
            client.discard(Note)
        with pytest.raises(RemoteError, match=r"other collects Model: send it with tell\(\), not ask\(\)"):
            world.client("other")
            await client.ask("other", Model(1), timeout=1)

    simulate(main)


def test_overflow_is_counted_and_answers_come_through() -> None:
    async def script(me: Client) -> None:
        me.note((await me.ask("other", Work(4.0), timeout=9)).text)

    async def main(world: World) -> None:
        other = world.client("other")
        client = world.client("client", script, mailbox_capacity=2)
        await asyncio.sleep(1)
        for second in (8.0, 0.0, 0.0, 0.0):
            other.tell("client", Work(second))
            await asyncio.sleep(0.25)
        assert (ActorStatus(client).overflows, repr(client)) == (1, "<Client client running, 2 waiting>")
        await asyncio.sleep(3)
        assert client.log == [(1.0, "8.0 from other"), (4.0, "4.0 for client")]

    simulate(main)


def test_waiting_for_names_messages_and_peers() -> None:
    async def script(me: Client) -> None:
        me.spawn(me.collect(Model, ["x", "y"], timeout=None))
        await me.ask("z", Note("?"), timeout=9)

    async def main(world: World) -> None:
        client = world.client("client", script)
        await asyncio.sleep(1)
        assert ActorStatus(client).waiting_for == "answer to Note from z; Model from x, y"

    simulate(main)


def test_heard_sees_everything_and_may_take_it() -> None:
    class Listening(Client):
        def intercept(self, message: object | None, sender: str) -> bool:
            self.note(("heard", message, sender))
            return message == Note("membership")

    async def main(world: World) -> None:
        other = world.client("other")
        listening = Listening("listening", world.transport, mailbox_capacity=1)
        world.supervisor.start(listening)
        for message in (Model(1), Note("membership"), Note("beyond capacity")):
            other.tell("listening", message)
        await asyncio.sleep(1)
        await listening.ask("other", Note("?"), timeout=1)
        assert listening.log == [
            (0.0, ("heard", Model(1), "other")),
            (0.0, ("heard", Note("membership"), "other")),
            (0.0, ("heard", Note("beyond capacity"), "other")),
            (1.0, ("heard", None, "other")),
        ]
        assert ActorStatus(listening).overflows == 1

    simulate(main)


def test_an_actor_that_is_not_running_cannot_talk() -> None:
    async def main(world: World) -> None:
        client = Client("client", world.transport)
        assert repr(client) == "<Client client new, 0 waiting>"
        with pytest.raises(ActorError, match="client cannot tell: it is new, not running"):
            client.tell("other", Note("x"))
        world.supervisor.start(client)
        world.supervisor.kill("client")
        client.tell("other", Note("x"))
        assert world.transport.sent == 0
        for verb in (
            lambda: client.ask("other", Note("x"), timeout=1),
            lambda: client.collect(Model, [], timeout=1),
        ):
            with pytest.raises(ActorError, match="it is stopped, not running"):
                await verb()
        coroutine = asyncio.sleep(1)
        with pytest.raises(ActorError, match="client cannot spawn: it is stopped"):
            client.spawn(coroutine)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED  # else Python warns

    simulate(main)


class Spawning(Actor):
    """Answers each question from a task of its own."""

    async def on_message(self, message: object, sender: str) -> object:
        return self.spawn(self.work(message))

    async def work(self, message: object) -> object:
        match message:
            case Work(seconds):
                await self.sleep(seconds)
                return Note(f"{seconds}")
            case Note("fail"):
                raise ValueError("told to fail")
        return {1, 2}


class Sharing(Actor):
    """Answers all questions from one task."""

    task: asyncio.Task[Note] | None = None

    async def on_message(self, message: object, sender: str) -> object:
        if self.task is None:
            self.task = self.spawn(self.work())
        return self.task

    async def work(self) -> Note:
        await self.sleep(2.0)
        return Note("worked")


def test_a_task_that_has_ended_answers_later_questions() -> None:
    async def main(world: World) -> None:
        world.supervisor.start(lambda: Sharing("sharing", world.transport))
        client = world.client("client")
        for end_s in (2.0, 2.0):
            assert await client.ask("sharing", Note("x"), timeout=9.0) == Note("worked")
            assert client.now == end_s

    simulate(main)


def test_a_task_answers_when_it_is_done_and_holds_up_no_other_message() -> None:
    async def main(world: World) -> None:
        world.supervisor.start(lambda: Spawning("spawning", world.transport))
        client = world.client("client")
        slow = client.spawn(client.ask("spawning", Work(5.0), timeout=9.0))
        await asyncio.sleep(1.0)
        quick = await client.ask("spawning", Work(2.0), timeout=9.0)
        assert (quick, client.now) == (Note("2.0"), 3.0)
        assert (await slow, client.now) == (Note("5.0"), 5.0)

    simulate(main)


@pytest.mark.parametrize(
    ("order", "where", "error"),
    [
        ("fail", "work", "ValueError: told to fail"),
        ("a set", "Note", r"the answer of on_message\(\): set cannot be sent"),
    ],
)
def test_a_task_that_fails_answers_with_its_error(order: str, where: str, error: str) -> None:
    async def main(world: World) -> None:
        world.supervisor.start(lambda: Spawning("spawning", world.transport))
        with pytest.raises(RemoteError, match=error):
            await world.client("client").ask("spawning", Note(order), timeout=1.0)
        assert [failure.where for failure in world.supervisor.failures] == [where]

    simulate(main, failures=1)


def test_a_task_that_ends_with_its_actor_answers_nothing() -> None:
    async def main(world: World) -> None:
        spawning = world.supervisor.start(lambda: Spawning("spawning", world.transport))
        client = world.client("client")
        question = client.spawn(client.ask("spawning", Work(5.0), timeout=9.0))
        await asyncio.sleep(1.0)
        world.supervisor.kill(spawning.name)
        with pytest.raises(PeerUnavailable):
            await question
        assert client.now == 9.0

    simulate(main, failures=1)  # the client's question
