"""The end of what goes on and on in one instant, so that no later event could ever happen."""

from __future__ import annotations

from collections import deque

from sim.kernel.deadlock import Deadlock
from sim.kernel.event import Timer
from sim.kernel.task import VirtualTask

ROUNDS_MAX = 1_000_000
"""Rounds of a loop in one instant. However many tasks wake at once, each takes one turn in a round: only what
follows from one another takes many."""
_PARDONS = 10  # times that tasks may go on after they were told, before the run ends
_NAMED_MAX = 5


class TimeStandsStill(RuntimeError):
    """A task took very many turns of the event loop while no virtual time passed."""


class Livelock(Deadlock):
    """Tasks go on and on in one instant, although each was told so by TimeStandsStill."""

    problem = "time stands still at {} s of virtual time: these go on and on without letting time pass"


class Breaker:
    """Ends what makes time stand still: throws TimeStandsStill into the tasks that go on by themselves."""

    def __init__(self) -> None:
        self._time_s = -1.0
        self._told = 0  # times in this instant

    def strike(self, ready: deque[Timer], time_s: float) -> None:
        """Take the tasks out of `ready` that made themselves ready, else all tasks there, and end them.

        Raises Livelock if they have been told often enough.
        """
        tasks = [timer for timer in ready if isinstance(timer, VirtualTask)]
        # Who was woken by a future or a signal has that still; who only gave way to the others has nothing.
        tasks = [task for task in tasks if task._awaited is None] or tasks
        self._told = self._told + 1 if time_s == self._time_s else 0
        self._time_s = time_s
        if self._told > _PARDONS:
            names = [task.get_name() for task in tasks] or ["callbacks without a task"]
            raise Livelock(time_s, [(name, "no virtual time passes in it") for name in names[:_NAMED_MAX]])
        for task in tasks:
            ready.remove(task)
            task.fire(
                TimeStandsStill(
                    f"{ROUNDS_MAX:,} turns of the event loop without any virtual time passing: in each loop, "
                    "sleep for more than 0 s, train, or wait for a message"
                )
            )
