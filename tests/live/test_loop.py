"""A loop that waits for the wall clock, here one that the test moves."""

import asyncio
from collections.abc import Callable

import pytest

from sim.live.loop import CAP_S, LiveLoop


class MovedClock(LiveLoop):
    """Its wall clock passes only while the loop waits, or when `busy` says that something took long."""

    def __init__(self, *, raw: bool = False) -> None:
        self.wall_s = 0.0
        self.coming: list[tuple[float, Callable[[], object]]] = []  # what other threads will do, and when
        super().__init__(lambda: self.wall_s, raw=raw)

    def busy(self, seconds: float) -> None:
        self.wall_s += seconds

    def _wait(self, seconds: float) -> None:
        until_s = self.wall_s + seconds
        if self.coming and self.coming[0][0] <= until_s:
            at_s, action = self.coming.pop(0)
            self.wall_s = max(self.wall_s, at_s)
            action()
        else:
            self.wall_s = until_s


@pytest.fixture
def loop() -> MovedClock:
    return MovedClock()


def test_events_happen_when_the_clock_has_come_to_them(loop: MovedClock) -> None:
    log: list[tuple[str, float, float]] = []

    def note(what: str) -> None:
        log.append((what, loop.time(), loop.wall_s))

    loop.call_at(2.0, note, "second")
    loop.call_at(1.0, note, "first")
    loop.call_at_observer(1.0, note, "observer")
    assert loop.run_until(3.0)
    assert log == [("first", 1.0, 1.0), ("observer", 1.0, 1.0), ("second", 2.0, 2.0)]
    assert (loop.time(), loop.wall_s) == (3.0, 3.0)


def test_what_is_a_little_late_counts_from_when_it_should_have_happened(loop: MovedClock) -> None:
    log: list[float] = []

    async def sleeper() -> None:
        await asyncio.sleep(1.0)
        loop.busy(0.3)  # the host is busy with something else
        for _ in range(3):
            await asyncio.sleep(0.1)
            log.append(loop.time())

    task = loop.create_task(sleeper())
    loop.run_until(2.0)
    assert task.done()
    assert log == pytest.approx([1.1, 1.2, 1.3])
    assert loop.stalls == []


def test_raw_events_happen_when_they_do(loop: MovedClock) -> None:
    raw, log = MovedClock(raw=True), []
    raw.call_at(1.0, raw.busy, 0.3)
    raw.call_at(1.1, lambda: log.append(raw.time()))
    raw.run_until(2.0)
    assert log == [1.3]


def test_who_stood_still_has_lost_that_time_and_blames_nobody(loop: MovedClock) -> None:
    log: list[tuple[str, float]] = []

    async def waits_for_an_answer() -> None:
        try:
            async with asyncio.timeout(2.0):
                await asyncio.Event().wait()
        except TimeoutError:
            log.append(("gave up", loop.time()))

    task = loop.create_task(waits_for_an_answer())
    loop.call_at(1.0, loop.busy, 5.0)  # SIGSTOP, say
    loop.call_at(1.5, lambda: log.append(("job", loop.time())))
    loop.run_until(10.0)
    assert task.done()
    ((began_s, lost_s),) = loop.stalls
    assert began_s == 1.5 and lost_s == pytest.approx(4.52)  # with a moment for what has come meanwhile
    assert log == [("job", pytest.approx(1.5 + lost_s)), ("gave up", pytest.approx(2.0 + lost_s))]


def test_a_stall_is_forgiven_once_whatever_was_due_in_it(loop: MovedClock) -> None:
    loop.call_at(1.0, loop.busy, 5.0)
    for at_s in (1.1, 2.0, 3.0, 5.9):
        loop.call_at(at_s, lambda: None)
    loop.run_until(20.0)
    assert len(loop.stalls) == 1


def test_what_other_threads_ask_for_is_done_between_events(loop: MovedClock) -> None:
    log: list[object] = []
    loop.coming = [(0.4, lambda: loop.call_at(0.2, lambda: log.append(loop.time())))]
    loop.call_at(1.0, lambda: log.append("timer"))
    loop.inbox.put(lambda: log.append("at once"))
    loop.run_until(2.0)
    assert log == ["at once", 0.2, "timer"]  # late by .2 s, and as if it were not


def test_stopping_is_up_to_others(loop: MovedClock) -> None:
    loop.ends_by_clock = True
    loop.call_at(1.0, loop.stop)
    assert loop.run_until(2.0)
    loop.ends_by_clock = False
    loop.call_at(3.0, loop.stop)
    assert not loop.run_until(4.0)
    assert loop.time() == 3.0


def test_a_task_that_never_lets_time_pass_does_not_stop_the_clock(loop: MovedClock) -> None:
    async def spins() -> None:
        while loop.time() < 1.0:
            loop.busy(0.001)
            await asyncio.sleep(0)

    task = loop.create_task(spins())
    loop.run_until(30.0)
    assert task.done()
    assert loop.time() > CAP_S


def test_an_error_in_a_callback_ends_the_run(loop: MovedClock) -> None:
    def fails() -> None:
        raise ValueError("no")

    loop.call_at(1.0, fails)
    with pytest.raises(ValueError, match="no"):
        loop.run_until(2.0)
