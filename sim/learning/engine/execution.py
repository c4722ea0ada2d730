"""Computation of pending nodes: one call for each group, and smaller calls if memory is insufficient."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sim.learning.engine.graph.nodes import GraphNode, Slot
from sim.learning.engine.graph.operations import Operation, OutputRows
from sim.learning.engine.memory import does_not_fit_error, is_out_of_memory
from sim.learning.engine.replay_log import ReadLog, ReplayedReadLog
from sim.learning.engine.vector_pool import index_tensor
from sim.learning.engine.workers import Workers

_WAVE, _WAVE_BYTES = 16, 256e6
"""Largest number of parts that start before the first part is stored, and limit of their results in bytes.

The limits do not depend on the number of cores, since the rows of the results depend on them.
"""

_THIS_THREAD = Workers()
Outputs = tuple[Tensor | OutputRows | None, ...]
"""Results of a call: one tensor or taken rows for each output; None for an output of a replay."""
_Started = tuple[Operation, list[GraphNode], Callable[[], Outputs]]


@dataclass
class EngineStatistics:
    """Statistics of the engine.

    jobs: nodes computed. batches: calls that computed them. updates: optimizer steps submitted. seconds:
    wall-clock time in flushes.
    """

    jobs: int = 0
    batches: int = 0
    updates: int = 0
    seconds: float = 0.0

    @property
    def mean_batch(self) -> float:
        """Mean number of jobs per call."""
        return self.jobs / self.batches if self.batches else 0.0


class Execution:
    """Runs the operations of pending nodes, and assigns the rows of the results to their slots.

    After a call of an operation has run out of memory, later calls of this operation have fewer nodes.
    """

    def __init__(self, statistics: EngineStatistics, device: torch.device, workers: Workers) -> None:
        self._statistics = statistics
        self._workers = workers
        self._device = device
        self._fitting: dict[Operation, int] = {}  # nodes per call, of operations that ran out of memory

    def run(self, groups: Iterable[list[GraphNode]], read_log: ReadLog) -> None:
        """Compute groups of nodes of one operation each. Nodes must not depend on each other."""
        parts = deque(part for nodes in groups for part in self._parts(nodes))
        while parts:
            wave = _take_parallel_parts(parts)
            if isinstance(read_log, ReplayedReadLog):
                results = self._replayed([part[0].group.take_rows(part) for part in wave], read_log)
            else:
                if read_log.keeps_factors:
                    for part in wave:
                        read_log.note_factors(_factors_of(part))
                results = self._results(wave)
            for nodes, outputs in zip(wave, results, strict=True):
                if outputs is None:
                    read_log.note_split(self._statistics.batches)
                    self._fitting[nodes[0].group] = len(nodes) // 2
                    parts.extendleft(reversed(self._parts(nodes)))
                else:
                    self._store(nodes, outputs)

    def _parts(self, nodes: list[GraphNode]) -> list[list[GraphNode]]:
        """Return the nodes of a group in parts, each for one call."""
        operation: Operation = nodes[0].group
        limit = operation.rows_at_once()
        if self._fitting:
            limit = min(limit, self._fitting.get(operation, limit))
        if len(nodes) <= limit:
            return [nodes]
        return [nodes[first : first + limit] for first in range(0, len(nodes), limit)]

    def _replayed(self, taken: Iterable[Outputs], read_log: ReplayedReadLog) -> Iterable[Outputs | None]:
        """Return the rows of each part's results."""
        return (None if read_log.was_split(self._statistics.batches) else each for each in taken)

    def _results(self, parts: list[list[GraphNode]]) -> Iterator[Outputs | None]:
        """Yield the results of each part; None for a part that has to be split."""
        started: list[_Started] = [(each[0].group, each, each[0].group.begin(each)) for each in parts]
        indices, waiting = range(len(started)), dict(enumerate(started))
        # Workers only get operations that are too large for one call: others end sooner than a transfer.
        workers = self._workers if len({id(part[0]) for part in started}) < len(started) else _THIS_THREAD
        started.clear()

        def result(index: int) -> Outputs | None:
            return self._result(*waiting[index], workers)

        results: Iterable[Outputs | None] = workers.each(result, indices)
        if workers.count > 1:
            # Compute all before the first is stored: a growing pool moves to other memory, and threads would
            # still write to the old one.
            results = list(results)
        for index, outputs in zip(indices, results, strict=True):
            # Release here, in order: a thread would free rows at any time.
            del waiting[index]
            yield outputs

    def _result(
        self, operation: Operation, nodes: list[GraphNode], finish: Callable[[], Outputs], workers: Workers
    ) -> Outputs | None:
        """Return the results of a part; None if memory was insufficient for several nodes."""
        try:
            return (workers if operation.is_job else _THIS_THREAD).call(finish)
        except RuntimeError as error:
            if not self._must_split(nodes, error):
                raise
            return None

    def _must_split(self, nodes: list[GraphNode], error: Exception) -> bool:
        """Return True if memory was insufficient for several nodes. Raises UserError if one does not fit."""
        if not (isinstance(error, RuntimeError) and is_out_of_memory(error)):
            return False
        if len(nodes) > 1:
            return True
        raise does_not_fit_error(nodes[0].group.subject, self._device, alone=self._workers.alone) from error

    def _store(self, nodes: list[GraphNode], outputs: Outputs) -> None:
        for node in nodes:  # frees rows without other holders
            node.inputs = ()
        self._statistics.jobs += len(nodes)
        self._statistics.batches += 1
        for output, values in enumerate(outputs):
            self._store_output(nodes, output, values)

    def _store_output(self, nodes: list[GraphNode], output: int, values: Tensor | OutputRows | None) -> None:
        if isinstance(values, OutputRows):
            for node, row in zip(nodes, values.rows, strict=True):
                slot = node.outputs[output]()
                if slot is None:
                    values.pool.give_back(row)
                else:
                    slot.fulfil(row)
            return
        # An output without a holder (for example a replaced optimizer state) needs no row.
        slots = [node.outputs[output]() for node in nodes]
        alive = list(filter(None, slots))
        if not alive:
            return
        pool = alive[0].pool
        if values is None:
            rows = pool.take(len(alive))
        elif len(alive) < len(nodes):
            held = [n for n, slot in enumerate(slots) if slot is not None]
            rows = pool.store(values.index_select(0, index_tensor(held, self._device)))
        else:
            rows = pool.store(values)
        owners = pool.owners
        for slot, row in zip(alive, rows, strict=True):  # same as `fulfil`, without a call for each slot
            slot.row, slot.node = row, None
            owners[row] = slot.serial


def _factors_of(nodes: list[GraphNode]) -> list[Slot]:
    """Return the computed scalars that are factors of these nodes."""
    if not nodes[0].group.has_factors:
        return []
    return [
        slot
        for node in nodes
        if node.inputs and node.inputs[-1].pool.width == 1
        for slot in node.inputs
        if slot.pool.width == 1
    ]


def _take_parallel_parts(parts: deque[list[GraphNode]]) -> list[list[GraphNode]]:
    """Take the next parts, which start together."""
    wave, wave_bytes = [parts.popleft()], 0.0
    while parts and len(wave) < _WAVE:
        outputs = filter(None, (output() for output in wave[-1][0].outputs))
        wave_bytes += 4 * len(wave[-1]) * sum(slot.pool.width for slot in outputs)
        if wave_bytes > _WAVE_BYTES:
            break
        wave.append(parts.popleft())
    return wave
