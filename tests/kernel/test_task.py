"""Tasks of the virtual loop: native sleeps, cancellation in all states, and what may be awaited."""

import asyncio
import contextvars
import math
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel.clock import VirtualLoop
from sim.kernel.deadlock import Deadlock
from sim.kernel.task import Bell, Signal, sleep
from tests.virtual_time import run_virtual


def now():
    return asyncio.get_running_loop().time()


@given(st.lists(st.lists(st.integers(-1, 3).map(float), max_size=5), max_size=5))
def test_a_native_sleep_ends_when_that_of_asyncio_does(plans):
    async def main(pause):
        log = []

        async def actor(name, plan):
            for seconds in plan:
                await pause(seconds)
                log.append((now(), name))

        async with asyncio.TaskGroup() as group:
            for name, plan in enumerate(plans):
                group.create_task(actor(name, plan))
        return sorted(log)

    assert run_virtual(main(sleep)) == run_virtual(main(asyncio.sleep))


def test_sleepers_of_one_instant_wake_in_the_order_of_falling_asleep(loop):
    log = []

    async def actor(name, first, second):
        await sleep(first)
        await sleep(second)
        log.append(name)

    for name, plan in {"a": (3.0, 1.0), "b": (1.0, 3.0), "c": (2.0, 2.0)}.items():
        loop.create_task(actor(name, *plan))
    loop.call_at(4.0, log.append, "timer")
    loop.run_until(4.0)
    assert log == ["timer", "b", "c", "a"]


def test_a_sleep_of_no_number_is_an_error_and_an_endless_one_ends_with_a_cancellation(loop):
    with pytest.raises(ValueError, match="nan"):
        loop.run_until_complete(nap(math.nan))
    task = loop.create_task(nap(math.inf))
    loop.run_until(1e9)
    task.cancel()
    loop.run_until(2e9)
    assert task.cancelled()


async def nap(seconds):
    await sleep(seconds)


def test_a_cancelled_sleep_ends_at_once_and_its_timer_never_fires(loop):
    log = []

    async def actor():
        try:
            await sleep(10.0)
        except asyncio.CancelledError as cancelled:
            log.append((now(), cancelled.args))
        await sleep(20.0)
        log.append(now())

    task = loop.create_task(actor())
    loop.call_at(4.0, task.cancel, "enough")
    loop.run_until(30.0)
    assert log == [(4.0, ("enough",)), 24.0]
    assert (task.done(), task.cancelled(), task.cancelling()) == (True, False, 1)
    assert (loop._cancelled, loop._timers) == (0, [])


@pytest.mark.parametrize("pause", [sleep, asyncio.sleep])
@pytest.mark.parametrize("cancel_first", [False, True])
def test_a_cancellation_in_the_instant_of_waking_counts(loop, pause, cancel_first):
    async def actor():
        await pause(2.0)
        log.append("woken")
        await pause(1.0)
        log.append("went on")

    log, tasks = [], []

    def cancel():
        tasks[0].cancel()

    if cancel_first:
        loop.call_at(2.0, cancel)
    tasks.append(loop.create_task(actor()))
    loop.run_until(0.0)  # it falls asleep
    if not cancel_first:
        loop.call_at(2.0, cancel)
    loop.run_until(10.0)
    assert tasks[0].cancelled()
    assert "went on" not in log


def test_cancelled_twice_it_is_cancelled_once_and_can_take_it_back(loop):
    log = []

    async def actor():
        try:
            await sleep(10.0)
        except asyncio.CancelledError:
            log.append(task.cancelling())
            log.append((task.uncancel(), task.uncancel(), task.uncancel()))
        await sleep(1.0)

    task = loop.create_task(actor())
    loop.run_until(1.0)
    assert task.cancel()
    assert task.cancel()
    loop.run_until(5.0)
    assert (log, task.done(), task.cancelled()) == ([2, (1, 0, 0)], True, False)
    assert not task.cancel()


def test_timeouts_and_groups_end_native_sleeps():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await sleep(9.0)
        first = now()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(nap(9.0), 0.5)
        second = now()
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(nap(9.0))
                group.create_task(fail_after(1.0))
        return first, second, now()

    async def fail_after(seconds):
        await sleep(seconds)
        raise ZeroDivisionError

    assert run_virtual(main()) == (1.5, 2.0, 3.0)


def test_what_cannot_be_awaited_is_an_error_where_it_is_awaited(loop):
    class Odd:
        def __await__(self):
            yield "neither"

    async def itself():
        await tasks[0]

    async def wrong(awaitable):
        with pytest.raises(RuntimeError) as caught:
            await awaitable
        return str(caught.value)

    other = VirtualLoop()
    assert "not 'neither'" in loop.run_until_complete(wrong(Odd()))
    assert "another loop" in loop.run_until_complete(wrong(other.create_future()))
    tasks = [loop.create_task(itself())]
    with pytest.raises(RuntimeError, match="awaits itself"):
        loop.run_until_complete(asyncio.wait_for(asyncio.shield(tasks[0]), 5))
    with pytest.raises(TypeError, match="coroutine"):
        loop.create_task("no coroutine")
    other.close()


def test_a_signal_wakes_its_task_in_turn_and_one_that_came_before_keeps_nobody_waiting(loop):
    log = []
    early, late = Signal(), Signal()

    async def main():
        early.set_result(None)
        await early
        log.append(("early", now()))
        await late
        log.append(("late", now()))

    def give():
        late.set_result(None)
        log.append(("given", loop.time()))

    task = loop.create_task(main())
    loop.call_at(2.0, give)
    loop.run_until(1.0)
    assert (repr(task), late.done()) == (f"<task {task.get_name()}, waiting>", False)
    loop.run_until(3.0)
    assert log == [("early", 0.0), ("given", 2.0), ("late", 2.0)]
    assert (late.done(), late.cancelled(), late.cancel()) == (True, False, False)
    with pytest.raises(asyncio.InvalidStateError):
        late.set_result(None)


@pytest.mark.parametrize("whom", ["task", "signal"])
def test_cancelling_a_task_cancels_its_signal_and_the_other_way_round(loop, whom):
    signal, caught = Signal(), []

    async def main():
        try:
            await signal
        except asyncio.CancelledError as error:
            caught.append((error.args, now()))
            raise

    task = loop.create_task(main())
    loop.call_at(1.0, (task if whom == "task" else signal).cancel, "enough")
    loop.run_until(2.0)
    assert task.cancelled()
    assert signal.cancelled()
    assert caught == [(("enough",), 1.0)]
    assert not signal.cancel()


def test_a_cancellation_that_comes_first_finds_the_signal(loop):
    signal = Signal()

    async def main():
        asyncio.current_task().cancel()
        await signal

    task = loop.create_task(main())
    loop.run_until(1.0)
    assert (task.cancelled(), signal.cancelled()) == (True, True)


def test_a_signal_is_for_one_task_and_a_deadlock_tells_where_it_is_awaited(loop):
    signal = Signal()

    async def waits():
        await signal

    tasks = [loop.create_task(waits()) for _ in range(2)]
    loop.run_until(1.0)
    assert not tasks[0].done()
    with pytest.raises(RuntimeError, match="two tasks await one signal"):
        tasks[1].result()
    with pytest.raises(Deadlock, match=r"waits at .*test_task.py"):
        loop.run_until_complete(tasks[0])


@pytest.mark.parametrize("kind", [Signal, Bell])
def test_a_signal_that_came_holds_no_task(loop, kind):
    """With the collector off, as in a run, a cycle would keep a failed actor and its models."""

    class Held:
        pass

    async def main():
        held = Held()
        seen.append(weakref.ref(held))
        await signal
        raise ValueError(f"with {held} in the traceback")

    signal, seen = kind(), []
    task = loop.create_task(main())
    loop.call_at(1.0, *((signal.ring,) if kind is Bell else (signal.set_result, None)))
    loop.run_until(2.0)
    assert isinstance(task.exception(), ValueError)
    assert seen[0]() is not None
    del task
    assert seen[0]() is None


def test_the_error_of_a_task_that_goes_on_at_once_ends_the_run_in_its_instant(loop):
    """Also without a collector, which would find the task later, if at all."""

    async def main():
        await bell
        raise ValueError("nobody looks")

    bell = Bell()
    loop.create_task(main())
    loop.call_at(1.0, bell.ring)
    loop.call_at(2.0, str)
    with pytest.raises(ValueError, match="nobody looks"):
        loop.run_until(3.0)
    assert loop.time() == 1.0


def test_a_bell_that_is_rung_between_two_runs_is_heard_in_the_next(loop):
    bell, log = Bell(), []

    async def main():
        for _ in range(2):
            await bell
            log.append(now())

    loop.create_task(main())
    loop.run_until(1.0)
    bell.ring()
    assert log == []
    loop.run_until(2.0)
    bell.ring()
    loop.run_until(3.0)
    assert log == [1.0, 2.0]


def test_a_bell_wakes_its_task_with_each_ring_that_comes_while_it_waits(loop):
    bell, log = Bell(), []

    async def main():
        while True:
            await bell
            log.append(now())
            await sleep(1.0)

    loop.create_task(main())
    for time_s in (0.5, 1.0, 2.0, 2.0, 5.0):  # nobody waits at 1.0, nor for the second ring at 2.0
        loop.call_at(time_s, bell.ring)
    loop.run_until(9.0)
    assert log == [0.5, 2.0, 5.0]


@pytest.mark.parametrize("first", ["nothing", "ring", "cancel"])
def test_a_bell_can_be_awaited_after_a_cancellation(loop, first):
    bell, log = Bell(), []

    async def main():
        for _ in range(2):
            try:
                await bell
                log.append(("rung", now()))
            except asyncio.CancelledError as error:
                log.append((*error.args, now()))

    def cancel():
        if first == "cancel":
            task.cancel("enough")
        task.cancel("enough")

    task = loop.create_task(main())
    if first == "ring":  # in the same instant, before the task could go on
        loop.call_at(1.0, bell.ring)
    loop.call_at(1.0, cancel)
    loop.call_at(2.0, bell.ring)
    loop.run_until(3.0)
    assert log == [("enough", 1.0), ("rung", 2.0)]


class InTurn(VirtualLoop):
    """Has every task go on in its turn."""

    def wake(self, signal):
        task, signal._task = signal._task, None
        self._ready.append(task)


DELAYS = st.sampled_from([0.0, 0.0, 1.0, 2.0])


@given(
    st.lists(st.tuples(DELAYS, st.integers(0, 2)), max_size=8),
    st.lists(st.lists(st.tuples(DELAYS, st.integers(0, 2)), max_size=4), min_size=3, max_size=3),
)
def test_tasks_that_go_on_at_once_go_on_in_the_order_of_their_turns(rings, plans):
    def order(loop):
        bells, log = [Bell() for _ in plans], []

        async def main(name, plan):
            for pause_s, other in plan:
                await bells[name]
                log.append((now(), name, "rung"))
                bells[other].ring()
                await sleep(pause_s)
                log.append((now(), name, "slept"))

        def ring(name):
            log.append((loop.time(), name, "ring"))
            loop.call_at(loop.time(), log.append, (loop.time(), name, "echo"))
            bells[name].ring()

        for name, plan in enumerate(plans):
            loop.create_task(main(name, plan))
        for time_s, name in rings:
            loop.call_at(time_s, ring, name)
        loop.run_until(20.0)
        loop.shutdown()
        return log

    assert order(VirtualLoop()) == order(InTurn())


def test_a_task_is_what_asyncio_expects(loop):
    variable = contextvars.ContextVar("variable", default="outside")

    async def main():
        me = asyncio.current_task()
        assert me is task
        assert me in asyncio.all_tasks()
        variable.set("inside")
        await sleep(1.0)
        await asyncio.sleep(1.0)
        return variable.get()

    task = loop.create_task(main(), name="client-3")
    assert repr(task) == "<task client-3, ready>"
    loop.run_until(0.5)
    assert repr(task) == "<task client-3, waiting>"
    assert (task.get_name(), task.get_coro().__name__) == ("client-3", "main")
    assert task.get_context().get(variable) == "inside"
    for refused in (task.set_result, task.set_exception):
        with pytest.raises(RuntimeError, match="from its coroutine"):
            refused(None)
    loop.run_until(5.0)
    assert (task.result(), variable.get(), repr(task)) == ("inside", "outside", "<task client-3, done>")
    task.set_name(7)
    assert task.get_name() == "7"
