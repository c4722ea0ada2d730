"""Detection of tasks that run forever at one virtual time, so that no later event could happen."""

from collections import deque

from sim.kernel.deadlock import Deadlock
from sim.kernel.task import VirtualTask
from sim.kernel.timers import Timer

ITERATIONS_MAX = 1_000_000
"""Iterations of the loop at one virtual time. All tasks that wake at once take one iteration together. Only
tasks that keep waking themselves or each other take many."""
_INTERRUPTIONS_MAX = 10  # at one virtual time; then the run ends
_NAMED_MAX = 5


class TimeStandsStill(RuntimeError):
    """Error raised in a task that runs forever while no virtual time passes."""


class Livelock(Deadlock):
    """Error: tasks continue at one virtual time, although TimeStandsStill was raised in each of them."""

    problem = "virtual time does not advance beyond {} s, because these tasks never wait for a later time"


class LivelockGuard:
    """Guard that interrupts tasks that run forever at one virtual time, by an exception."""

    def __init__(self) -> None:
        self._time_s = -1.0  # time of the last interruption
        self._interruptions = 0  # earlier ones at this time

    def interrupt(self, ready: deque[Timer], time_s: float) -> None:
        """Raise TimeStandsStill in the ready tasks that await no future, or else in all ready tasks.

        Raises Livelock if that has happened too often at this virtual time.
        """
        tasks = [timer for timer in ready if isinstance(timer, VirtualTask)]
        # A task that yielded by sleep(0) awaits nothing, and is the likelier cause. A task that was woken by
        # a future still refers to it.
        tasks = [task for task in tasks if task._awaited is None] or tasks
        self._interruptions = self._interruptions + 1 if time_s == self._time_s else 0
        self._time_s = time_s
        if self._interruptions > _INTERRUPTIONS_MAX:
            names = [task.get_name() for task in tasks] or ["callbacks without a task"]
            raise Livelock(time_s, [(name, "no virtual time passes in it") for name in names[:_NAMED_MAX]])
        for task in tasks:
            ready.remove(task)
            task.fire(
                TimeStandsStill(
                    f"virtual time did not advance in {ITERATIONS_MAX:,} iterations of the event loop: in "
                    "each of your loops, sleep for more than 0 s, train, or wait for a message"
                )
            )
