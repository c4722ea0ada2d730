"""The virtual clock: exact times, and asyncio's order."""

import asyncio
import contextvars
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel.clock import VirtualLoop
from tests.virtual_time import run_virtual


def now():
    return asyncio.get_running_loop().time()


async def forever():
    await asyncio.get_running_loop().create_future()


# Time


def test_sleeping_jumps_to_exact_times():
    log = []

    async def actor(name, period, times):
        for _ in range(times):
            await asyncio.sleep(period)
            log.append((name, now()))

    async def main():
        await asyncio.gather(actor("a", 3600, 2), actor("b", 2500, 2))
        return now()

    assert run_virtual(main()) == 7200.0
    assert log == [("b", 2500.0), ("a", 3600.0), ("b", 5000.0), ("a", 7200.0)]


def test_the_wall_clock_is_never_read(monkeypatch):
    async def main():
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
            group.create_task(asyncio.wait_for(asyncio.sleep(2), 3))
        return now()

    def read():
        raise AssertionError("the wall clock was read")

    with monkeypatch.context() as patch:
        for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns"):
            patch.setattr(time, name, read)
        assert run_virtual(main()) == 2.0


def test_run_until_includes_its_end_and_sets_the_clock(loop):
    log = []
    for when in (1.0, 2.0, 2.5):
        loop.call_at(when, log.append, when)
    loop.call_at(2.0, loop.call_later, 0, log.append, "made at the end")
    loop.run_until(2.0)
    assert (log, loop.time()) == ([1.0, 2.0, "made at the end"], 2.0)
    loop.run_until(2.25)
    assert (log[3:], loop.time()) == ([], 2.25)
    loop.run_until(3.0)
    assert (log[3:], loop.time()) == ([2.5], 3.0)


@pytest.mark.parametrize("end", [0.5, math.inf, math.nan])
def test_run_until_refuses_the_past_and_the_infinite(loop, end):
    loop.run_until(1.0)
    with pytest.raises(ValueError, match=r"must be finite and not before 1\.0"):
        loop.run_until(end)


def test_unusual_times_of_timers(loop):
    log = []
    loop.run_until(5.0)
    loop.call_at(3.0, lambda: log.append(("past", loop.time())))
    loop.call_later(-1, lambda: log.append(("negative", loop.time())))
    loop.call_at(math.inf, log.append, "never")
    loop.run_forever()
    assert (log, loop.time()) == ([("past", 5.0), ("negative", 5.0)], 5.0)
    for call in (loop.call_at, loop.call_later, loop.call_at_observer):
        with pytest.raises(ValueError, match="nan"):
            call(math.nan, log.append, "?")


# Order

times = st.integers(0, 5).map(float)


@given(st.lists(st.tuples(times, st.booleans())))
def test_timers_fire_by_time_then_in_the_order_of_their_making(timers):
    loop, log = VirtualLoop(), []
    events = [loop.call_at(when, log.append, (when, number)) for number, (when, _) in enumerate(timers)]
    for event, (_, cancel) in zip(events, timers, strict=True):
        if cancel:
            event.cancel()
    loop.run_forever()
    assert log == sorted((when, number) for number, (when, cancel) in enumerate(timers) if not cancel)
    loop.close()


# A program is a tree of steps: (what to do, steps to make from it).
programs = st.recursive(
    st.just([]),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["soon", "task", "yield", "future"]), inner), max_size=4
    ),
    max_leaves=25,
)


async def perform(program, log, path=()):
    loop = asyncio.get_running_loop()
    log.append(path)
    tasks = []
    for number, (kind, inner) in enumerate(program):
        here = (*path, number)
        if kind == "soon":
            loop.call_soon(log.append, ("called", *here))
        elif kind == "yield":
            await asyncio.sleep(0)
        elif kind == "future":
            future = loop.create_future()
            future.add_done_callback(lambda _, here=here: log.append(("done", *here)))
            loop.call_soon(future.set_result, None)
            await future
        tasks.append(asyncio.create_task(perform(inner, log, here)))
    for task in tasks:
        await task
    log.append(("end", *path))


@given(programs)
def test_within_an_instant_the_order_is_that_of_asyncio(program):
    on_virtual, on_asyncio = [], []
    run_virtual(perform(program, on_virtual))
    asyncio.run(perform(program, on_asyncio))
    assert on_virtual == on_asyncio


def test_timers_that_are_due_queue_up_behind_what_is_ready(loop):
    log = []

    def first():
        loop.call_soon(lambda: (log.append("ready"), loop.call_soon(log.append, "made ready")))
        loop.call_later(0, log.append, "due")

    loop.call_soon(first)
    loop.run_until(0)
    assert log == ["ready", "due", "made ready"]


def noisy_program(log):
    async def actor(name):
        for step in range(6):
            await asyncio.sleep((name * step) % 3 / 2)
            log.append((now(), name, step))

    async def main():
        async with asyncio.TaskGroup() as group:
            for name in range(8):
                group.create_task(actor(name))

    return main()


@pytest.mark.parametrize("shuffle_seed", [None, 0, 7])
def test_two_runs_have_the_same_order(shuffle_seed):
    logs = [], []
    for log in logs:
        run_virtual(noisy_program(log), shuffle_seed=shuffle_seed)
    assert logs[0] == logs[1]
    assert len(logs[0]) == 48


def test_shuffling_changes_the_order_of_equal_times_only():
    def order(shuffle_seed):
        loop, log = VirtualLoop(shuffle_seed), []
        for when in (2.0, 1.0):
            for number in range(10):
                loop.call_at(when, log.append, (when, number))
                loop.call_at_observer(when, log.append, (when, f"observer {number}"))
        loop.run_until(3)
        loop.close()
        return log

    plain, one, two = order(None), order(1), order(2)
    assert plain != one != two != plain
    for shuffled in (one, two):
        assert [when for when, _ in shuffled] == [when for when, _ in plain]
        assert sorted(shuffled, key=str) == sorted(plain, key=str)
        assert shuffled[10:20] == plain[10:20]  # the observers of the first instant keep their order


def test_cancelled_timers_are_purged_once_they_are_the_majority(loop):
    kept = [loop.call_at(when, lambda: None) for when in range(100)]
    cancelled = [loop.call_at(when, lambda: None) for when in range(1000)]
    for event in cancelled:
        event.cancel()
        event.cancel()  # the second time counts nothing
    assert len(loop._timers) < 2 * len(kept) + 1
    loop.run_forever()
    kept[0].cancel()  # it has run; it is not among the timers any more
    assert (loop.time(), len(loop._timers), loop._cancelled) == (99, 0, 0)


def test_callbacks_run_in_the_context_of_their_making(loop):
    variable = contextvars.ContextVar("variable", default="outside")
    log = []

    def make():
        variable.set("inside")
        loop.call_soon(lambda: log.append(variable.get()))
        loop.call_later(1, lambda: log.append(variable.get()))

    other = contextvars.copy_context()
    other.run(variable.set, "given")
    loop.call_soon(make)
    loop.call_later(2, lambda: log.append(variable.get()), context=other)
    loop.call_later(3, lambda: log.append(variable.get()))
    loop.run_forever()
    assert log == ["inside", "inside", "given", "outside"]


def test_asyncio_runner_takes_the_loop():
    async def main():
        await asyncio.sleep(100)
        return now()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == 100.0
