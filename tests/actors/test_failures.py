"""Failures and restarts, in virtual time: a failing actor takes nobody else down."""

import asyncio
import importlib
import inspect
from pathlib import Path

import pytest

from actors.actor import Actor
from actors.message import ActorError
from actors.source_location import innermost_own_line, location_text, traceback_frames
from actors.supervisor import Supervisor
from actors.transport import InMemoryTransport
from tests.actors.world import Client, Note, Script, Work, World, fail, forever, nothing_is_left_of, simulate


async def spawn_failing(me: Client) -> None:
    me.spawn(fail(me), "side job")
    await forever(me)


async def await_cancelled(me: Client) -> None:
    job = me.spawn(me.sleep(9))
    await me.sleep(1.5)
    job.cancel()
    await job


@pytest.mark.parametrize(
    ("script", "where", "error"),
    [
        (fail, "run", "ZeroDivisionError: one over none"),
        (spawn_failing, "side job", "ZeroDivisionError: one over none"),
        (await_cancelled, "run", "ActorError: awaited a task or future that had been canceled"),
    ],
)
def test_a_failure_is_recorded_and_takes_nobody_else_down(script: Script, where: str, error: str) -> None:
    async def main(world: World) -> None:
        world.client("bad", script)
        good = world.client("good")
        await asyncio.sleep(2.0)
        assert nothing_is_left_of("bad", world)
        good.tell("good", Note("still here"))
        await asyncio.sleep(1.0)

    world = simulate(main)
    [failure] = world.supervisor.failures
    assert (failure.name, failure.time_s, failure.where, failure.error) == ("bad", 1.5, where, error)
    assert failure.action == "stop"
    shown = f"{where} ({failure.location})"
    assert world.lines == [f"bad failed at 1.5 s in {shown}: {error} (stopped for good)"] == [str(failure)]
    begins = location_text(inspect.getfile(Client), inspect.getsourcelines(Client)[1])
    assert (failure.location == begins) == (script is await_cancelled)  # which fails in nobody's own line
    message = error.split(": ")[1]
    assert world.events[2:] == [
        (1.5, "bad", "failed"),
        (1.5, "bad", f"on_failure {message}"),
        (2.0, "good", "still here"),
    ]


def test_a_failing_handler_is_named_by_its_message_and_its_line() -> None:
    async def main(world: World) -> None:
        world.client("bad", forever)
        world.client("good").tell("bad", Note("fail"))
        await asyncio.sleep(1)

    [failure] = simulate(main).supervisor.failures
    assert (failure.where, failure.error) == ("Note", "ValueError: told to fail")
    assert 'raise ValueError("told to fail")' in failure.traceback


def test_an_answer_to_a_tell_is_a_failure_that_explains_itself() -> None:
    async def main(world: World) -> None:
        world.client("server")
        world.client("client").tell("server", Work(1.0))
        await asyncio.sleep(2)

    [failure] = simulate(main).supervisor.failures
    assert failure.where == "Work"
    said = "on_message() returned a result of type Note for a message of type Work that was sent with tell()"
    assert said in failure.error


def test_a_message_without_a_handler_is_a_failure() -> None:
    async def main(world: World) -> None:
        world.supervisor.start(Actor("plain", world.transport))
        world.client("client").tell("plain", Note("x"))
        await asyncio.sleep(1)

    [failure] = simulate(main).supervisor.failures
    assert failure.error == "ActorError: Actor got a message of type Note, but does not define on_message()"


@pytest.mark.parametrize("hook", ["on_start", "on_stop", "on_failure", "intercept"])
def test_a_failing_hook_is_a_failure(hook: str) -> None:
    class Broken(Client):
        pass

    async def broken(*args: object) -> None:
        raise ZeroDivisionError(hook)

    def broken_at_once(*args: object) -> bool:
        raise ZeroDivisionError(hook)

    setattr(Broken, hook, broken_at_once if hook == "intercept" else broken)

    async def main(world: World) -> None:
        world.supervisor.start(Broken("bad", world, fail if hook == "on_failure" else forever))
        other = world.client("other")
        await asyncio.sleep(2)
        if hook == "intercept":
            other.tell("bad", Note("x"))
            await asyncio.sleep(0.1)
        await world.supervisor.stop("bad")
        assert nothing_is_left_of("bad", world)

    failure = simulate(main).supervisor.failures[-1]
    assert (failure.where, failure.error, failure.action) == (hook, f"ZeroDivisionError: {hook}", "stop")


def test_a_failure_during_the_goodbye_does_not_interrupt_it() -> None:
    async def main(world: World) -> None:
        world.client("client", fail).goodbye_s = 3.0
        await world.supervisor.stop("client")

    world = simulate(main, on_failure="restart")
    assert world.events[1:] == [(3.0, "client", "on_stop"), (3.0, "client", "stop")]
    assert [(failure.time_s, failure.action) for failure in world.supervisor.failures] == [(1.5, "stop")]


def test_two_tasks_that_fail_at_once_are_both_recorded_but_end_one_life() -> None:
    async def script(me: Client) -> None:
        me.spawn(fail(me), "first")
        me.spawn(fail(me), "second")
        await forever(me)

    async def main(world: World) -> None:
        world.client("client", script)
        await asyncio.sleep(2)

    world = simulate(main)
    assert [failure.where for failure in world.supervisor.failures] == ["first", "second"]
    assert [event for _, _, event in world.events] == ["start", "failed", "on_failure one over none"]


def test_a_failed_actor_is_replaced_by_a_new_one_until_it_failed_too_often() -> None:
    made: list[Client] = []

    async def main(world: World) -> None:
        def factory() -> Client:
            made.append(Client("client", world, fail))
            return made[-1]

        world.supervisor.start(factory)
        await asyncio.sleep(10)
        assert nothing_is_left_of("client", world)

    world = simulate(main, on_failure="restart", max_restarts=2)
    assert len(made) == 3
    assert [(time_s, event) for time_s, _, event in world.events if not event.startswith("on_")] == [
        (0.0, "start"),
        (1.5, "failed"),
        (1.5, "restarted"),
        (3.0, "failed"),
        (3.0, "restarted"),
        (4.5, "failed"),
    ]
    assert [failure.action for failure in world.supervisor.failures] == ["restart", "restart", "stop"]


def test_on_failure_can_delay_the_restart_and_a_crash_prevents_it() -> None:
    class Patient(Client):
        async def on_failure(self, error: Exception) -> None:
            await self.sleep(1.0)

    async def main(world: World) -> None:
        world.supervisor.start(lambda: Patient("client", world, fail))
        await asyncio.sleep(3.0)  # failed at 1.5, restarted at 2.5, fails again at 4
        assert world.events[-1] == (2.5, "client", "restarted")
        await asyncio.sleep(1.5)
        world.supervisor.kill("client")
        await asyncio.sleep(9.0)
        assert nothing_is_left_of("client", world)

    world = simulate(main, on_failure="restart")
    assert world.events[-2:] == [(4.0, "client", "failed"), (4.5, "client", "crash")]


@pytest.mark.parametrize("trouble", ["raises", "renames"])
def test_a_factory_that_cannot_replace_is_a_failure(trouble: str) -> None:
    async def main(world: World) -> None:
        def factory() -> Client:
            if world.supervisor.failures and trouble == "raises":
                raise ZeroDivisionError("no more")
            return Client("another" if world.supervisor.failures else "client", world, fail)

        world.supervisor.start(factory)
        await asyncio.sleep(5)
        assert not world.supervisor.running

    failures = simulate(main, on_failure="restart").supervisor.failures
    errors = {
        "raises": "ZeroDivisionError: no more",
        "renames": "ActorError: the factory of client returned an actor with the name another",
    }
    assert [(failure.where, failure.action) for failure in failures] == [
        ("run", "restart"),
        ("restart", "stop"),
    ]
    assert failures[1].error == errors[trouble]


def test_restarting_takes_factories() -> None:
    async def main(world: World) -> None:
        with pytest.raises(ActorError, match="client needs a factory"):
            world.supervisor.start(Client("client", world))

    simulate(main, on_failure="restart")
    with pytest.raises(ValueError, match='"stop" or "restart"'):
        Supervisor(InMemoryTransport(), on_failure="ignore")  # type: ignore[arg-type]


def test_the_line_of_a_method_in_several_files_is_the_innermost_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the class's own file, from which the part that failed was called."""
    package = tmp_path / "method_in_parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("class Part:\n    def step(self):\n        raise ValueError\n")
    (package / "method.py").write_text(
        "from method_in_parts.parts import Part\n"
        "class Method(Part):\n"
        "    def run(self):\n"
        "        self.step()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("method_in_parts.method").Method
    with pytest.raises(ValueError) as caught:
        kind().run()
    assert innermost_own_line(kind, traceback_frames(caught.value)) == f"{package / 'parts.py'}:3"
    derived = type("Derived", (kind,), {"__module__": __name__})
    assert innermost_own_line(derived, traceback_frames(caught.value)) == location_text(
        __file__, caught.tb.tb_lineno
    )
