"""Protocols in which time stands still: what waits for ever, and what goes on for ever in one instant."""

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocols.framework.client import Client
from sim.kernel import clock, livelock
from sim.kernel.clock import Deadlock
from sim.kernel.task import sleep
from tests.protocols.worlds import QUADRATIC, make
from tests.virtual_time import run_virtual

HERE = Path(__file__)


def line_of(text: str) -> str:
    """The place of the line of this file that ends with a text."""
    lines = HERE.read_text(encoding="utf-8").splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"test_timeless.py:{number}"


@dataclass(frozen=True)
class Ping:
    pass


@dataclass(frozen=True)
class Pong:
    pass


class Hangs(Client):
    async def step(self) -> None:
        await self.sleep(1.0)
        if self.iterations == 2:
            await asyncio.Event().wait()  # hangs


class HangsEverywhere(Client):
    collected = (Pong,)

    async def aside(self) -> None:
        await asyncio.Event().wait()  # aside

    async def step(self) -> None:
        self.spawn(self.aside())
        if self.name == "client-0":
            self.tell("client-1", Ping())
        await self.collect(Pong, self.peers, timeout=None)  # collects

    async def on_message(self, message: object, sender: str) -> None:
        await asyncio.Event().wait()  # handles


class HangsAtStart(Client):
    async def on_start(self) -> None:
        await asyncio.Event().wait()  # starts

    async def step(self) -> None:
        raise AssertionError("never reached")


def deadlock_of(kind: str, *overrides: str) -> list[tuple[str, str]]:
    with closing(make(QUADRATIC, f"protocol.name={HERE}:{kind}", *overrides)) as world:
        with pytest.raises(Deadlock) as caught:
            world.run()
        return caught.value.waiting


def test_a_deadlock_names_step_iteration_and_line() -> None:
    waiting = deadlock_of("Hangs", "clients.count=2")
    assert [who for who, _ in waiting] == ["client-0: step", "client-1: step"]
    for _, what in waiting:
        assert what.startswith("iteration 3, ")
        assert what.endswith(f"{line_of('hangs')}: waits for something that no actor sends")


def test_a_deadlock_names_handlers_and_spawned_tasks() -> None:
    [(first, at_first), (second, at_second)] = deadlock_of("HangsEverywhere", "clients.count=2")
    assert (first, second) == ("client-0: step", "client-1: step")
    assert f"{line_of('collects')}: waits for Pong from client-1; aside (" in at_first
    assert f"{line_of('aside')}) also waits" in at_first
    assert "on_message" not in at_first  # it waits for messages, as it should
    assert "; on_message of Ping (" in at_second
    assert f"{line_of('handles')}) also waits" in at_second


def test_a_deadlock_before_the_first_step_is_in_on_start() -> None:
    [(who, what)] = deadlock_of("HangsAtStart", "clients.count=1")
    assert who == "client-0: on_start"
    assert line_of("starts") in what


# --- what goes on and on ------------------------------------------------------------------------------------


class Spins(Client):
    async def step(self) -> None:
        await self.sleep(1.0)
        while self.name == "client-1" and self.iterations == 2:
            self.tell("client-0", Ping())
            await asyncio.sleep(0)  # spins

    async def on_message(self, message: object, sender: str) -> None:
        pass  # woken in each of these turns, but by no fault of its own


class SpinsInHandler(Spins):
    async def step(self) -> None:
        await self.sleep(1.0)
        self.tell(self.peers[0], Ping())

    async def on_message(self, message: object, sender: str) -> None:
        while True:
            await self.sleep(1e-30)  # handler spins


class Insists(Client):
    async def step(self) -> None:
        while True:
            try:
                await self.sleep(0)
            except Exception:
                continue


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (clock, livelock):
        monkeypatch.setattr(module, "ITERATIONS_MAX", 500)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("kind", "failed", "time_s", "where", "line"),
    [
        ("Spins", ["client-1"], 3.0, "step", "spins"),
        ("SpinsInHandler", ["client-0", "client-1"], 1.0, "Ping", "handler spins"),
    ],
)
def test_who_goes_on_in_one_instant_fails_and_nobody_else(
    kind: str, failed: list[str], time_s: float, where: str, line: str
) -> None:
    with closing(
        make(QUADRATIC, f"protocol.name={HERE}:{kind}", "clients.count=2", "network.latency=0 ms")
    ) as world:
        world.run()
        failures = world.supervisor.failures
        assert sorted([failure.name for failure in failures]) == failed
        for failure in failures:
            assert (failure.time_s, failure.where) == (time_s, where)
            assert failure.location is not None and failure.location.endswith(line_of(line))
            assert failure.error.startswith(
                "TimeStandsStill: virtual time did not advance in 500 iterations of the event loop"
            )


@pytest.mark.usefixtures("impatient")
def test_who_goes_on_although_told_ends_the_run() -> None:
    with closing(make(QUADRATIC, f"protocol.name={HERE}:Insists", "clients.count=1")) as world:
        with pytest.raises(Deadlock, match=r"virtual time does not advance beyond 0 s") as caught:
            world.run()
        assert caught.value.waiting == [("client-0: step", "no virtual time passes in it")]


@pytest.mark.usefixtures("impatient")
def test_a_crowd_that_wakes_at_once_is_none_that_goes_on() -> None:
    woken = 0

    async def client() -> None:
        nonlocal woken
        await sleep(1.0)
        for _ in range(5):
            await sleep(0)
        woken += 1

    async def crowd() -> None:
        tasks = [asyncio.ensure_future(client()) for _ in range(5_000)]
        for task in tasks:  # by callbacks, one after the other
            await task

    run_virtual(crowd())
    assert woken == 5_000


@pytest.mark.usefixtures("impatient")
def test_many_events_in_time_are_none_that_go_on() -> None:
    async def client() -> None:
        for _ in range(2_000):
            await sleep(0)
            await sleep(0.001)

    run_virtual(client())
