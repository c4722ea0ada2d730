"""Ends tasks that run for ever in one instant of virtual time, so that no later event could happen."""

from collections import deque

from sim.kernel.deadlock import Deadlock
from sim.kernel.task import VirtualTask
from sim.kernel.timers import Timer

ITERATIONS_MAX = 1_000_000
"""Iterations of the loop in one instant. All tasks that wake at once take one iteration together. Only tasks
that keep waking themselves or each other take many."""
_INTERRUPTIONS_MAX = 10  # in one instant; then the run ends
_NAMED_MAX = 5


class TimeStandsStill(RuntimeError):
    """Raised in a task that runs for ever while no virtual time passes."""


class Livelock(Deadlock):
    """Tasks run on in one instant, although TimeStandsStill was raised in each of them."""

    problem = "time stands still at {} s of virtual time: these go on and on without letting time pass"


class LivelockGuard:
    """Interrupts tasks that run for ever in one instant, by an exception."""

    def __init__(self) -> None:
        self._time_s = -1.0  # of the last interruption
        self._interruptions = 0  # earlier ones at this time

    def interrupt(self, ready: deque[Timer], time_s: float) -> None:
        """Raise TimeStandsStill in the ready tasks that wait for nothing, or else in all ready tasks.

        Raises Livelock if that has happened too often in this instant.
        """
        tasks = [timer for timer in ready if isinstance(timer, VirtualTask)]
        # A task that yielded by sleep(0) awaits nothing, and is the likelier culprit. One that was woken by
        # something still names it.
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
                    f"{ITERATIONS_MAX:,} iterations of the event loop without any virtual time passing: in "
                    "each loop of yours, sleep for more than 0 s, train, or wait for a message"
                )
            )
