"""The virtual clock: observers, deadlocks, failures and endings; nothing fails or hangs in silence."""

import asyncio
import gc
import logging
import math
import sys
import threading

import pytest

from sim.kernel.clock import Deadlock, VirtualLoop
from tests.virtual_time import run_virtual


def now():
    return asyncio.get_running_loop().time()


async def forever():
    await asyncio.get_running_loop().create_future()


# Observers, and the end of all events


def test_an_observer_fires_when_its_instant_is_over(loop):
    log = []

    async def actor():
        await asyncio.sleep(1)
        log.append("actor")
        await asyncio.sleep(0)
        log.append("actor again")
        loop.call_later(0, log.append, "timer")

    loop.call_at_observer(1, lambda: log.append(("observer", loop.time())))
    task = loop.create_task(actor())
    loop.call_at(1.5, log.append, "later")
    loop.run_until(1)
    assert task.done()
    assert log == ["actor", "actor again", "timer", ("observer", 1.0)]


def test_observers_fire_up_to_the_end_and_when_nothing_else_is_left(loop):
    log = []

    def observe():
        log.append(loop.time())
        loop.call_at_observer(loop.time() + 10, observe)

    idle = loop.create_task(forever())
    loop.call_at_observer(0, observe)
    loop.call_at_observer(5, log.append, "cancelled").cancel()
    loop.run_until(30)
    assert (log, loop.time(), idle.done()) == ([0.0, 10.0, 20.0, 30.0], 30.0, False)


def test_a_task_that_must_finish_and_cannot_is_a_deadlock(loop):
    log = []

    async def work():
        await asyncio.sleep(4)
        await forever()

    stuck, done = loop.create_task(work(), name="client-1"), loop.create_task(asyncio.sleep(1))
    loop.create_task(forever(), name="idle")
    loop.must_finish(stuck, lambda: "answer to Pull from client-2")
    loop.must_finish(done, lambda: "nothing")
    loop.call_at_observer(3, log.append, "observed")
    loop.call_at_observer(5, log.append, "too late")
    with pytest.raises(Deadlock) as caught:
        loop.run_until(60)
    assert (caught.value.time_s, loop.time(), log) == (4.0, 4.0, ["observed"])
    assert caught.value.waiting == [("client-1", "answer to Pull from client-2")]
    assert "deadlock at 4 s" in str(caught.value)
    with pytest.raises(Deadlock):
        loop.run_forever()


def test_a_task_that_must_finish_may_wait_for_a_timer_beyond_the_end(loop):
    task = loop.create_task(asyncio.sleep(10))
    loop.must_finish(task, lambda: "a timer")
    loop.run_until(5)
    loop.run_until(10)
    assert task.done()


def test_waiting_for_an_infinite_timer_is_a_deadlock(loop):
    loop.must_finish(loop.create_task(asyncio.sleep(math.inf)), lambda: "for ever")
    with pytest.raises(Deadlock):
        loop.run_until(5)


def test_a_deadlock_names_every_task_and_its_line():
    async def receive(queue):
        return await queue.get()  # the line that waits

    async def main():
        actors = [asyncio.create_task(receive(asyncio.Queue()), name=f"actor-{i}") for i in range(30)]
        await asyncio.gather(*actors)

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())
    waiting = caught.value.waiting
    assert [who for who, _ in waiting[1:]] == [f"actor-{i}" for i in range(30)]
    line = receive.__code__.co_firstlineno + 1
    assert all(what.endswith(f"receive at {__file__}:{line}") for _, what in waiting[1:])
    assert "main at" in waiting[0][1]
    assert str(caught.value).count("\n") == 21
    assert str(caught.value).endswith("and 11 more")


def test_observers_do_not_put_a_deadlock_off(loop):
    log = []
    loop.call_at_observer(1, log.append, "observed")
    with pytest.raises(Deadlock):
        loop.run_until_complete(forever())
    assert (log, loop.time()) == ([], 0.0)


# Failures


def test_an_error_in_a_callback_ends_the_run_at_once(loop):
    log = []
    loop.call_at(1, lambda: 1 / 0)
    loop.call_at(1, log.append, "same instant")
    with pytest.raises(ZeroDivisionError):
        loop.run_until(10)
    assert (log, loop.time()) == ([], 1.0)
    loop.run_until(10)  # whoever catches the error may go on
    assert (log, loop.time()) == (["same instant"], 10.0)


def test_an_error_that_a_handler_takes_does_not_end_the_run(loop):
    taken = []
    loop.set_exception_handler(lambda _, context: taken.append(context["exception"]))
    assert loop.get_exception_handler() is not None
    loop.call_at(1, lambda: 1 / 0)
    loop.run_until(10)
    assert (len(taken), type(taken[0]), loop.time()) == (1, ZeroDivisionError, 10.0)


def test_the_error_of_a_task_that_nobody_awaits_ends_the_run(loop):
    async def fail():
        await asyncio.sleep(1)
        raise ValueError("nobody looks")

    loop.create_task(fail())
    loop.call_at(2, gc.collect)
    with pytest.raises(ValueError, match="nobody looks"):
        loop.run_until(10)
    assert loop.time() <= 2


def test_a_waiting_task_that_nobody_holds_is_kept_until_the_end(loop):
    log = []

    async def wait():
        try:
            await forever()
        finally:
            log.append(loop.time())

    loop.create_task(wait())
    loop.call_at(1, gc.collect)
    loop.run_until(2)
    loop.shutdown()
    assert log == [2.0]


def test_errors_of_destructors_after_the_end_are_logged(caplog):
    async def fail():
        raise ValueError("nobody looks")

    async def main():
        failed = asyncio.create_task(fail())
        await asyncio.sleep(1)
        return failed

    with caplog.at_level(logging.ERROR):
        failed = run_virtual(main())
        assert caplog.records == []
        del failed
        gc.collect()
    assert "never retrieved" in caplog.text


def test_run_until_complete_raises_what_the_coroutine_raised(loop):
    async def fail():
        await asyncio.sleep(1)
        raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        loop.run_until_complete(fail())


@pytest.mark.parametrize("in_task", [False, True])
def test_ctrl_c_leaves_a_loop_that_can_be_shut_down(caplog, in_task):
    loop, log = VirtualLoop(), []

    def interrupt():
        raise KeyboardInterrupt

    async def interrupted():
        await asyncio.sleep(1)
        interrupt()

    async def actor():
        try:
            await asyncio.sleep(9)
        finally:
            await asyncio.sleep(3)
            log.append(("cleaned up", loop.time()))

    loop.create_task(actor())
    if in_task:
        loop.create_task(interrupted())
    else:
        loop.call_at(1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until(10)
    loop.shutdown()
    gc.collect()
    assert log == [("cleaned up", 4.0)]
    assert caplog.records == []
    assert loop.is_closed()


# The life of a loop


def test_shutdown_cancels_in_the_order_of_making_and_raises_what_a_clean_up_raises(loop):
    log = []

    async def actor(name):
        try:
            await forever()
        finally:
            log.append(name)
            if name == 1:
                raise ValueError("clean-up failed")

    tasks = [loop.create_task(actor(name)) for name in range(20)]
    loop.run_until(1)
    assert loop.tasks() == tasks
    with pytest.raises(ValueError, match="clean-up failed"):
        loop.shutdown()
    assert log == list(range(20))
    assert loop.is_closed()


def test_shutdown_closes_generators():
    log = []

    async def ticks():
        try:
            while True:
                await asyncio.sleep(1)
                yield now()
        finally:
            await asyncio.sleep(1)
            log.append("closed")

    async def main():
        generator = ticks()
        return generator, await anext(generator)

    assert run_virtual(main())[1] == 1.0
    assert log == ["closed"]


def test_a_generator_that_is_dropped_is_closed_in_the_run(loop):
    log = []

    async def ticks():
        try:
            yield now()
        finally:
            await asyncio.sleep(1)
            log.append(now())

    async def main():
        await anext(ticks())
        gc.collect()
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    assert log == [1.0]


def test_stop_ends_the_run_after_the_round(loop):
    log = []
    loop.call_at(1, loop.stop)
    loop.call_at(1, log.append, "same round")
    loop.call_at(2, log.append, "later")
    loop.run_until(10)
    assert (log, loop.time()) == (["same round"], 1.0)
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match="stopped before"):
        loop.run_until_complete(asyncio.sleep(1))
    loop.run_forever()
    assert log == ["same round", "later"]


def test_a_stop_that_comes_just_after_the_loop_has_looked_is_not_lost():
    """A signal may call it at any moment."""

    class Signalled(VirtualLoop):
        stopped = came = False

        @property
        def _stopping(self):
            seen = self.stopped
            if self.now_s == 1.0 and not self.came:
                self.came = True
                self.stop()
            return seen

        @_stopping.setter
        def _stopping(self, stopped):
            self.stopped = stopped

    loop, log = Signalled(), []
    loop.call_at_observer(1.0, log.append, "observed")  # the loop looks when there is one
    loop.call_at(2.0, log.append, "later")
    assert not loop.run_until(9.0)
    assert (log, loop.time()) == ([], 1.0)
    assert loop.run_until(9.0)
    assert log == ["observed", "later"]


def test_an_error_beside_the_end_of_a_run_does_not_stop_the_next_one(loop):
    future = loop.create_future()
    loop.call_at(1, future.set_result, None)
    loop.call_at(1, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.run_until_complete(future)
    loop.run_until(3)
    assert loop.time() == 3.0


def test_a_late_stop_does_not_spoil_the_clean_up(loop):
    log = []

    async def actor():
        try:
            await forever()
        finally:
            await asyncio.sleep(1)
            log.append("cleaned up")

    loop.create_task(actor())
    loop.run_until(1)
    loop.stop()
    loop.shutdown()
    assert log == ["cleaned up"]


def test_a_run_leaves_the_hooks_of_the_interpreter_as_they_were(loop):
    before = sys.get_asyncgen_hooks()
    loop.call_soon(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.run_until(1)
    assert sys.get_asyncgen_hooks() == before
    assert asyncio._get_running_loop() is None


def test_a_loop_runs_once_at_a_time_and_not_after_its_end(loop):
    async def nested():
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_until(9)
        with pytest.raises(RuntimeError, match="can't be closed"):
            loop.close()

    loop.run_until_complete(nested())
    assert not loop.is_running()
    loop.close()
    for call in (loop.call_soon, lambda f: loop.call_later(1, f), lambda f: loop.call_at_observer(1, f)):
        with pytest.raises(RuntimeError, match="closed"):
            call(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_until(9)


def test_the_outside_is_refused_with_a_reason(loop):
    async def use_thread():
        await asyncio.to_thread(print)

    with pytest.raises(NotImplementedError, match="no threads: the end of a thread has no virtual time"):
        loop.run_until_complete(use_thread())
    with pytest.raises(NotImplementedError, match="transport"):
        loop.add_reader(0, print)
    with pytest.raises(NotImplementedError, match="signal"):
        loop.add_signal_handler(2, print)


def test_calls_from_other_threads_are_refused_while_the_loop_runs(loop):
    caught, log = [], []

    def elsewhere():
        try:
            loop.call_soon_threadsafe(print)
        except NotImplementedError as error:
            caught.append(str(error))

    def start_thread():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        loop.call_soon_threadsafe(log.append, "from its own thread")

    loop.call_soon(start_thread)
    loop.run_until(1)
    assert (len(caught), log) == (1, ["from its own thread"])
    assert "other threads" in caught[0]
