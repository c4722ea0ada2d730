"""Meeting of runs: each run waits here for results, and one call computes the results for several runs."""

from __future__ import annotations

import gc
import threading
from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch

from sim.learning.engine.engine import Engine
from sim.learning.engine.execution import Outputs
from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.operations import Train
from sim.learning.engine.together.common_data import CommonData
from sim.learning.engine.together.merging import EngineCall, Merging
from sim.learning.engine.together.shared_pool import SharedMatrix
from sim.learning.engine.vector_pool import VectorPool

Outcome = Outputs | Exception
_START, _END = "start", "end"


class Meeting:
    """Meeting of several runs, each in a separate thread; only one of the threads runs at a time.

    A run passes its turn on when it waits for results. When all runs wait, the run whose turn it is computes
    what most of them wait for, so that each call has the nodes of as many runs as possible. The order is a
    function of the runs alone, whatever the speed of their threads.

    calls: number of computed calls. merged: number of single-run calls that they replace. changed: runs whose
    vectors may have been held longer than in a separate run, see `end`.
    """

    def __init__(self, runs: int) -> None:
        self.calls = self.merged = 0
        self._turns = [threading.Lock() for _ in range(runs)]  # free when it is the run's turn
        self._present = list(range(runs))
        self._waiting: dict[int, list[EngineCall] | str] = {}
        self._outcomes: dict[int, list[Outcome]] = {}
        self.changed: set[int] = set()
        self._engines: dict[int, Engine] = {}
        self._data = CommonData()
        self._merging = Merging(self._data)
        self._matrices: dict[tuple[int, torch.device], SharedMatrix] = {}
        for turn in self._turns[1:]:
            turn.acquire()

    # --- shared state ---------------------------------------------------------------------------------------

    def add(self, run: int, engine: Engine) -> None:
        """Add the engine of a run."""
        self._engines[run] = engine
        self._data.add(run, engine.data)
        self._merging.data_changed()

    def pool(self, width: int, device: torch.device) -> VectorPool:
        """Return a new pool for vectors of one run, in the matrix of all runs."""
        matrix = self._matrices.get((width, device))
        if matrix is None:
            matrix = self._matrices[width, device] = SharedMatrix(width, device)
        return matrix.new_pool()

    def _find_cycles(self) -> None:
        """Collect cyclic garbage, and add to `changed` the runs with vectors in it.

        A separate run frees such vectors at its evaluations. Here they wait until all runs have ended: a
        collection would free the vectors of other runs at the wrong times.
        """
        before = {run: self._free_rows(run) for run in self._present if run in self._engines}
        gc.collect()
        self.changed |= {run for run, free in before.items() if self._free_rows(run) != free}

    def _free_rows(self, run: int) -> int:
        return sum(pool.free_count for pool in self._engines[run].pools.values())

    # --- turns ----------------------------------------------------------------------------------------------

    def enter(self, run: int) -> None:
        """Wait for the first turn of a run; call it first in the run's thread."""
        self._turns[run].acquire()

    def start(self, run: int) -> None:
        """Wait until all present runs have been set up."""
        self._wait(run, _START)

    def end(self, run: int) -> None:
        """Wait until all present runs have ended; then, `changed` has the runs with vectors in cycles."""
        self._wait(run, _END)

    def compute(self, run: int, parts: list[list[GraphNode]]) -> list[Outcome]:
        """Wait for a run's next calls, and return the results of each, or its error if it failed.

        parts: nodes of each call.
        """
        self._wait(run, [self._merging.call(run, nodes) for nodes in parts])
        return self._outcomes.pop(run)

    def leave(self, run: int) -> None:
        """Pass the turn on for the last time."""
        self._present.remove(run)
        if self._present:
            self._turns[self._next()].release()

    def _wait(self, run: int, on: list[EngineCall] | str) -> None:
        self._waiting[run] = on
        chosen = self._next()
        if chosen != run:
            self._turns[chosen].release()
            self._turns[run].acquire()

    def _next(self) -> int:
        """Return the run whose turn is next; compute something if all wait."""
        while True:
            ready = [run for run in self._present if run not in self._waiting]
            if ready:
                return ready[0]
            try:
                self._end_some_waits()
            except BaseException as error:
                self._fail(error)
                if not isinstance(error, Exception):
                    raise

    def _fail(self, error: BaseException) -> None:
        """End all waits by an error; a thread that waits for its turn would wait forever."""
        failure = error if isinstance(error, Exception) else RuntimeError(f"interrupted: {error!r}")
        for run, on in self._waiting.items():
            if not isinstance(on, str):
                self._outcomes[run] = [failure] * len(on)
        self._waiting.clear()

    def _end_some_waits(self) -> None:
        """Compute the calls that most runs wait for, or end the wait for the start of all runs."""
        calls = {run: on for run, on in sorted(self._waiting.items()) if not isinstance(on, str)}
        if not calls:  # all are set up, or all have ended
            if _END in self._waiting.values():
                self._find_cycles()
            self._waiting.clear()
            return
        chosen = _most_awaited([call for of_run in calls.values() for call in of_run if call.outcome is None])
        for part in self._parts(chosen):
            for call, outcome in zip(part, self._results(part), strict=True):
                call.outcome = outcome
        for run in {call.run for call in chosen}:
            outcomes = [call.outcome for call in calls[run] if call.outcome is not None]
            if len(outcomes) == len(calls[run]):
                self._outcomes[run] = outcomes
                del self._waiting[run]

    # --- computation ----------------------------------------------------------------------------------------

    def _parts(self, group: list[EngineCall]) -> list[list[EngineCall]]:
        """Return calls with equal keys in parts, each for one call."""
        if len(group) == 1:
            return [group]
        limit, parts, count = self._merging.limit(group[0]), [list[EngineCall]()], 0
        for call in group:
            if parts[-1] and count + len(call.nodes) > limit:
                parts.append([])
                count = 0
            parts[-1].append(call)
            count += len(call.nodes)
        return parts

    def _results(self, part: list[EngineCall]) -> Sequence[Outcome]:
        """Return the results of one call, or if it fails, those of its calls one by one."""
        self.calls += 1
        self.merged += len(part)
        try:
            return self._merging.results(part)
        except Exception as error:
            if len(part) == 1:
                return [error]
        return [outcome for call in part for outcome in self._results([call])]


def _most_awaited(calls: list[EngineCall]) -> list[EngineCall]:
    """Return the calls with the key that most runs wait for; the first of such keys.

    Arithmetic, which is cheap, comes before jobs, other jobs before training, and training with few steps
    before training with many: after them, more runs wait for the same training.
    """
    alike: dict[Hashable, list[EngineCall]] = defaultdict(list)
    for call in calls:
        alike[id(call) if call.key is None else call.key].append(call)
    return min(alike.values(), key=lambda group: (_rank(group), -len({call.run for call in group})))


def _rank(group: list[EngineCall]) -> tuple[int, int]:
    """Return the rank of calls with equal keys: arithmetic, other jobs, training; then the most steps."""
    operation = group[0].operation
    if not isinstance(operation, Train):
        return int(operation.is_job), 0
    return 2, max(node.payload[0].steps for call in group for node in call.nodes)
