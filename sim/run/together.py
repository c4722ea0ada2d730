"""Several runs in one process: each has its own world, and they share the calls of the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from sim.core.process import without_garbage_collection
from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.learning.engine import ClientData, Engine
from sim.learning.engine.together.meeting import Meeting
from sim.learning.engine.together.shared_engine import SharedEngine

Result = TypeVar("Result")


class JointRunHook(RunHook):
    """Hook by which run number `run` computes together with other runs."""

    ends_run: ClassVar[bool] = True

    def __init__(self, meeting: Meeting, run: int) -> None:
        self._meeting, self._run = meeting, run
        self._has_ended = False

    def engine(self, data: ClientData, **settings: Any) -> Engine:
        """Return the engine of the run; arguments as for `Engine`, except workers."""
        return SharedEngine(data, meeting=self._meeting, run=self._run, **settings)

    def started(self, simulation: Simulation) -> None:
        self._meeting.start(self._run)

    def ended(self, simulation: Simulation) -> None:
        self._end()

    def evaluated(self, simulation: Simulation) -> None:
        if simulation.observer.at_end:
            self._end()

    def closed(self, simulation: Simulation) -> None:
        self._end()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._meeting.end(self._run)


def run_together(runs: Sequence[Callable[[JointRunHook | None], Result]]) -> list[Result]:
    """Call functions that each run a scenario with the given hook; return their results.

    The runs have equal settings of the process, such as threads and precision. A run whose vectors were in
    reference cycles is repeated alone, without a hook: only then are they freed at the same times as in a
    separate run.
    """
    meeting = Meeting(len(runs))
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        meeting.enter(number)
        try:
            results[number] = runs[number](JointRunHook(meeting, number))
        except BaseException as error:
            errors.append(error)
        finally:
            meeting.leave(number)

    with without_garbage_collection():
        threads = [
            threading.Thread(target=run, args=(number,), name=f"run {number}") for number in range(len(runs))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    for number in sorted(meeting.changed):
        results[number] = runs[number](None)
    return [results[number] for number in range(len(runs))]
