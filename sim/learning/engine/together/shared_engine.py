"""Engine of one of several runs that compute together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from sim.learning.engine.engine import Engine
from sim.learning.engine.execution import EngineStatistics, Execution, Outputs
from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.samples import ClientData
from sim.learning.engine.together.meeting import Meeting
from sim.learning.engine.vector_pool import VectorPool
from sim.learning.engine.workers import Workers


class SharedEngine(Engine):
    """Engine of run number `run` of a meeting: its vectors and jobs are separate, its calls are shared.

    Its results, and the rows of its vectors, are the same as with a separate `Engine` for this run.
    """

    def __init__(self, data: ClientData, *, meeting: Meeting, run: int, **settings: Any) -> None:
        self._meeting, self._run_number = meeting, run
        super().__init__(data, **settings)
        meeting.add(run, self)

    def unused(self) -> Engine:
        return self._like_this(partial(SharedEngine, meeting=self._meeting, run=self._run_number))

    def free_cycles(self, generation: int) -> None:
        """Do nothing: a collection would also free vectors of other runs. See `Meeting.end`."""

    def _new_pool(self, width: int) -> VectorPool:
        return self._meeting.pool(width, self.device)

    def _require_constant(self) -> None:
        """Accept any row: the first engine of the meeting has stored the constant in row 0 of the matrix."""

    def _new_execution(self) -> Execution:
        return SharedExecution(self.statistics, self.device, self._meeting, self._run_number)


class SharedExecution(Execution):
    """Execution whose calls are computed in a meeting, together with those of other runs."""

    def __init__(
        self, statistics: EngineStatistics, device: torch.device, meeting: Meeting, run: int
    ) -> None:
        super().__init__(statistics, device, Workers())
        self._meeting, self._run_number = meeting, run

    def _results(self, parts: list[list[GraphNode]]) -> Iterator[Outputs | None]:
        outcomes = self._meeting.compute(self._run_number, parts)
        for nodes, outcome in zip(parts, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                yield outcome
            elif self._must_split(nodes, outcome):
                yield None
            else:
                raise outcome
