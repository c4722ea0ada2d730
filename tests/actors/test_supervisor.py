"""Starting, stopping and crashing actors, in virtual time."""

import asyncio
from functools import partial

import pytest

from actors.message import ActorError, Envelope, PeerUnavailable
from actors.status import ActorStatus
from actors.supervisor import Failure, failures_in_short
from tests.actors.world import Client, Note, Work, World, forever, nothing_is_left_of, simulate


def test_stop_awaits_on_stop_while_everything_still_works() -> None:
    async def main(world: World) -> None:
        client = world.client("client", forever)
        client.goodbye_s = 2.0
        other = world.client("other")
        stopping = asyncio.create_task(world.supervisor.stop("client"))
        await asyncio.sleep(1.0)
        assert repr(client) == "<Client client stopping, 0 waiting>"
        assert await other.ask("client", Work(0.5), timeout=9) == Note("done")
        assert await stopping
        assert (other.now, repr(client)) == (2.0, "<Client client stopped, 0 waiting>")
        assert nothing_is_left_of("client", world)
        assert not await world.supervisor.stop("client")

    assert simulate(main).events == [
        (0.0, "client", "start"),
        (0.0, "other", "start"),
        (2.0, "client", "on_stop"),
        (2.0, "client", "stop"),
    ]


def test_a_crash_is_immediate_and_silent() -> None:
    async def script(me: Client) -> None:
        try:
            await me.sleep(10)
        finally:
            me.tell("other", Note("last words"))

    async def main(world: World) -> None:
        world.client("client", script)
        world.client("other")
        await asyncio.sleep(1.0)
        assert world.supervisor.kill("client")
        assert list(world.supervisor.running) == ["other"]
        assert not world.supervisor.kill("client")
        await asyncio.sleep(0.001)
        assert nothing_is_left_of("client", world)
        assert world.transport.sent == 0

    assert simulate(main).events[2:] == [(1.0, "client", "crash")]


def test_stopping_twice_at_once_says_goodbye_once() -> None:
    async def main(world: World) -> None:
        world.client("client", forever).goodbye_s = 2.0
        results = await asyncio.gather(*(world.supervisor.stop("client") for _ in range(3)))
        assert results == [True, True, True]

    assert simulate(main).events[1:] == [(2.0, "client", "on_stop"), (2.0, "client", "stop")]


def test_a_crash_during_the_goodbye_ends_it() -> None:
    async def main(world: World) -> None:
        world.client("client", forever).goodbye_s = 2.0
        stopping = asyncio.create_task(world.supervisor.stop("client"))
        await asyncio.sleep(1.0)
        world.supervisor.kill("client")
        await stopping
        assert asyncio.get_running_loop().time() == 1.0
        assert nothing_is_left_of("client", world)

    assert simulate(main).events[1:] == [(1.0, "client", "crash")]


def test_a_cancelled_stop_cuts_the_goodbye_short() -> None:
    async def main(world: World) -> None:
        world.client("client", forever).goodbye_s = 2.0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await world.supervisor.stop("client")
        await asyncio.sleep(0.001)
        assert nothing_is_left_of("client", world)

    assert simulate(main).events[1:] == [(0.5, "client", "stop")]


@pytest.mark.parametrize("way", ["kill me", "stop me"])
def test_an_actor_may_end_itself_in_a_handler(way: str) -> None:
    async def main(world: World) -> None:
        world.client("client", forever)
        other = world.client("other")
        with pytest.raises(PeerUnavailable):
            await other.ask("client", Note(way), timeout=3)
        assert nothing_is_left_of("client", world)
        assert world.transport.sent == 1  # the question: neither an answer nor a farewell

    ending = {"kill me": ["crash"], "stop me": ["on_stop", "stop"]}[way]
    world = simulate(main)
    assert world.events[2:] == [(0.0, "client", event) for event in ending]
    assert world.supervisor.failures == []


@pytest.mark.parametrize("way", ["run", "on_start", "spawned"])
def test_an_actor_may_kill_itself_anywhere(way: str) -> None:
    async def kill(me: Client) -> None:
        me.world.supervisor.kill(me.name)

    class Suicidal(Client):
        async def on_start(self) -> None:
            if way == "on_start":
                await kill(self)

    async def script(me: Client) -> None:
        if way == "run":
            await kill(me)
        elif way == "spawned":
            me.spawn(kill(me))
        await asyncio.sleep(0)
        me.mark("unreachable")

    async def main(world: World) -> None:
        world.supervisor.start(Suicidal("client", world, script))
        await asyncio.sleep(1)
        assert nothing_is_left_of("client", world)

    world = simulate(main)
    assert world.events == [(0.0, "client", "start"), (0.0, "client", "crash")]
    assert world.supervisor.failures == []


def test_a_name_runs_once_and_an_actor_can_come_back() -> None:
    async def main(world: World) -> None:
        client = world.client("client", forever)
        other = world.client("other")
        with pytest.raises(ActorError, match="client is already running"):
            world.client("client")
        for message in (Work(9.0), Note("lost with the first life")):
            other.tell("client", message)
        await asyncio.sleep(1)
        world.supervisor.kill("client")
        with pytest.raises(ActorError, match="client is still ending"):
            world.supervisor.start(client)
        await asyncio.sleep(1)
        assert world.supervisor.start(client) is client
        await asyncio.sleep(1)
        other.tell("client", Note("welcome back"))
        await asyncio.sleep(1)

    assert simulate(main).events == [
        (0.0, "client", "start"),
        (0.0, "other", "start"),
        (1.0, "client", "crash"),
        (2.0, "client", "start"),
        (3.0, "client", "welcome back"),
    ]


def test_answers_to_a_former_life_are_not_taken() -> None:
    async def main(world: World) -> None:
        world.client("server")
        first = world.client("client")
        first.spawn(first.ask("server", Work(2.0), timeout=9))
        await asyncio.sleep(1)
        world.supervisor.kill("client")
        second = world.client("client")
        assert await second.ask("server", Work(5.0), timeout=9) == Note("done")
        assert (second.now, ActorStatus(second).late_answers) == (7.0, 1)

    simulate(main)


def test_stop_waits_for_the_stopped_actor_only() -> None:
    async def lingering(me: Client) -> None:
        try:
            await me.sleep(100)
        finally:
            await asyncio.sleep(3.0)

    async def main(world: World) -> None:
        world.client("a", lingering)
        world.client("b", lingering)
        world.client("c", forever)
        await asyncio.sleep(1.0)
        world.supervisor.kill("a")
        await world.supervisor.stop("c")
        assert asyncio.get_running_loop().time() == 1.0
        await world.supervisor.stop("b")
        assert asyncio.get_running_loop().time() == 4.0

    simulate(main)


def test_request_numbers_do_not_depend_on_others() -> None:
    """They travel in messages: what one client asks must change no byte of another's."""

    async def main(world: World, others: int) -> None:
        world.client("server")
        send = world.transport.send

        def record(envelope: Envelope) -> None:
            if envelope.sender == "me":
                numbers.append(envelope.request)
            send(envelope)

        world.transport.send = record  # type: ignore[method-assign]
        for index in range(others):
            await world.client(f"other-{index}").ask("server", Note("x"), timeout=1)
        me = world.client("me")
        for _ in range(3):
            await me.ask("server", Note("x"), timeout=1)

    for others in (0, 5):
        numbers: list[int | None] = []
        simulate(partial(main, others=others))
        assert numbers == [0, 1, 2]


def test_drain_ends_everything_and_waits_for_clean_ups() -> None:
    async def script(me: Client) -> None:
        try:
            await me.sleep(100)
        finally:
            await asyncio.sleep(3.0)
            me.mark("cleaned up")

    async def main(world: World) -> None:
        for name in "abc":
            world.client(name, script)
        await asyncio.sleep(1.0)
        await world.supervisor.drain()
        assert asyncio.get_running_loop().time() == 4.0
        assert all(nothing_is_left_of(name, world) for name in "abc")

    assert simulate(main).events[3:] == [(4.0, name, "cleaned up") for name in "abc"]


def test_failures_that_name_whoever_failed_are_one_line_however_many_they_are() -> None:
    # Some names begin others. With a pattern of all names these took a minute.
    names = [f"node-{i // 2}" + "-edge" * (i % 2) for i in range(20_000)]
    error = "KeyError: no row of {}, ask head"
    failures = [Failure(name, 1.0, "step", error.format(name), "stop", "") for name in names]
    other = Failure("head", 2.0, "step", "KeyError: no row of tail", "stop", "")
    assert failures_in_short([*failures, other]) == [
        "node-0 and 19999 more failed first at 1 s in step: KeyError: no row of node-0, ask head "
        "(stopped for good)",
        "head failed at 2 s in step: KeyError: no row of tail (stopped for good)",
    ]
