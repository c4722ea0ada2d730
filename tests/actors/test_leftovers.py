"""Actors that end, however they end, leave no task, no reference and no message behind."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.actor import Actor
from actors.message import PeerUnavailable, RemoteError
from tests.actors.world import Client, Model, Note, Work, World, fail, forever, nothing_is_left_of, simulate
from tests.draws import examples


@pytest.fixture
def without_gc() -> Iterator[None]:
    """A simulation runs with gc disabled: what is not freed by reference counting stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Weights:
    """Stands for a large tensor whose life is watched."""

    immutable = True
    shape = (10,)
    dtype = "float32"

    def __array__(self) -> Any:
        raise AssertionError


async def busy(me: Client) -> None:
    """Everything that an actor can be in the middle of."""
    for _ in range(3):
        me.spawn(forever(me))
    me.spawn(me.ask("slow", Work(99.0), timeout=50.0))
    me.spawn(me.collect(Model, ["slow", "other"], timeout=60.0))
    me.spawn(me.sleep(9.0))
    await me.collect(Model, ["nobody"], timeout=None)


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize(
    "ending", ["kill", "stop", "fail in run", "fail in spawned", "fail in handler", "restart"]
)
def test_an_actor_is_freed_by_reference_counting(ending: str) -> None:
    async def script(me: Client) -> None:
        me.spawn(busy(me))
        if ending == "fail in spawned":
            me.spawn(fail(me))
        await me.sleep(1.5)
        if ending in ("fail in run", "restart"):
            raise ZeroDivisionError

    async def main(world: World) -> None:
        def start() -> list[weakref.ref[Any]]:
            weights = Weights()
            lives = 0

            def factory() -> Client:
                nonlocal lives
                lives += 1
                return Client("client", world, script if lives == 1 else None)

            client = world.supervisor.start(factory)
            if ending != "fail in handler":
                other.tell("client", Work(50.0))
            other.tell("client", Model(weights))
            other.tell("client", Note("waits in the mailbox"))
            return [weakref.ref(client), weakref.ref(weights)]

        world.client("slow")
        other = world.client("other")
        watched = start()
        await asyncio.sleep(1.0)
        assert all(ref() is not None for ref in watched)
        if ending == "kill":
            world.supervisor.kill("client")
        elif ending == "stop":
            await world.supervisor.stop("client")
        elif ending == "fail in handler":
            other.tell("client", Note("fail"))
        await asyncio.sleep(3.0)
        assert [ref() for ref in watched] == [None, None]
        assert nothing_is_left_of("client", world) == (ending != "restart")

    simulate(main, on_failure="restart" if ending == "restart" else "stop")


@pytest.mark.usefixtures("without_gc")
def test_messages_are_freed_as_soon_as_they_are_handled() -> None:
    class Echo(Actor):
        async def on_message(self, message: object, sender: str) -> object:
            return message

    async def main(world: World) -> None:
        world.supervisor.start(lambda: Echo("server", world.transport))
        client = world.client("client")
        other = world.client("other")

        async def exchange() -> list[weakref.ref[Any]]:
            refs = []
            for _ in range(2):
                weights = Weights()
                answer = await client.ask("server", Model((weights,)), timeout=1)
                other.tell("client", Model((weights,)))
                got = await client.collect(Model, ["other"], timeout=1)
                assert got["other"].params == answer.params == (weights,)
                refs.append(weakref.ref(weights))
            with pytest.raises(PeerUnavailable):
                await client.ask("nobody", Note("x"), timeout=1)
            return refs

        assert [ref() for ref in await exchange()] == [None, None]

    simulate(main)


@pytest.mark.usefixtures("without_gc")
def test_errors_of_asks_keep_nothing_alive() -> None:
    async def main(world: World) -> None:
        world.client("bad")
        client = world.client("client")

        async def exchange(peer: str, error: type[Exception]) -> weakref.ref[Any]:
            weights = Weights()
            question = Model((weights,)) if peer == "nobody" else Note("fail")
            try:
                await client.ask(peer, question, timeout=1)
            except error:
                return weakref.ref(weights)
            raise AssertionError

        assert (await exchange("nobody", PeerUnavailable))() is None
        assert (await exchange("bad", RemoteError))() is None

    simulate(main)


names = st.sampled_from("abcd")
commands = st.lists(
    st.tuples(st.sampled_from(["start", "kill", "stop", "fail", "sleep"]), names, names),
    max_size=25,
)


@examples(60)
@given(commands, st.sampled_from(["stop", "restart"]))
def test_any_history_leaves_nothing_behind(history: list[tuple[str, str, str]], on_failure: str) -> None:
    async def script(me: Client) -> None:
        assert isinstance(me, Chatty)
        peers = [name for name in "abcd" if name != me.name]
        while True:
            for peer in peers:
                me.tell(peer, Model(1))
            me.spawn(me.ask_quietly(peers[0]))
            await me.collect(Model, peers, timeout=0.7)
            await me.sleep(0.1)  # messages take no time: all four could go on at one instant for ever

    class Chatty(Client):
        async def ask_quietly(self, peer: str) -> None:
            try:
                await self.ask(peer, Work(0.2), timeout=0.5)
            except (PeerUnavailable, RemoteError):
                self.mark("no answer")

    async def main(world: World) -> None:
        supervisor, running, transport = world.supervisor, world.supervisor.running, world.transport
        stops = []
        for command, name, other in history:
            match command:
                case "start" if name not in running:
                    supervisor.start(partial(Chatty, name, world, script))
                case "kill":
                    was_up = name in running
                    assert supervisor.kill(name) == was_up
                case "stop":
                    stops.append(asyncio.create_task(supervisor.stop(name)))
                case "fail" if name in running:
                    running[name].tell(other, Note("fail"))
                case "sleep":
                    await asyncio.sleep(0.25)
        await asyncio.gather(*stops)
        await supervisor.drain()
        assert transport.sent == transport.delivered + transport.dropped + transport.in_flight
        await asyncio.sleep(0.001)
        assert transport.sent == transport.delivered + transport.dropped
        assert all(nothing_is_left_of(name, world) for name in "abcd")
        assert {failure.error for failure in supervisor.failures} <= {"ValueError: told to fail"}

    simulate(main, on_failure=on_failure)


@pytest.mark.asyncio
async def test_actors_run_on_any_event_loop() -> None:
    before = asyncio.all_tasks()
    world = World()
    world.client("server")
    client = world.client("client")
    answer = await client.ask("server", Work(0.001), timeout=5)
    with pytest.raises(PeerUnavailable):
        await client.ask("nobody", Note("x"), timeout=0.001)
    await world.supervisor.drain()
    assert answer == Note("done")
    assert asyncio.all_tasks() == before
