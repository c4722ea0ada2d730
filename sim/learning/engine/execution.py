"""Computing what is pending: one call for each group of nodes, and smaller calls where memory runs out."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.operations import Operation, Rows
from sim.learning.engine.memory import does_not_fit, is_out_of_memory
from sim.learning.engine.replay_log import ReadLog, ReplayedReadLog
from sim.learning.engine.vector_pool import index_tensor
from sim.learning.engine.workers import Workers

_WAVE, _WAVE_BYTES = 16, 256e6
"""Parts that are begun before the first is stored, and what results from them at most, but for the first.

These do not depend on the number of cores, since the rows of the results depend on them.
"""

_HERE = Workers()
_Outputs = tuple[Tensor | Rows | None, ...]
_Begun = tuple[Operation, list[GraphNode], Callable[[], _Outputs]]


@dataclass
class EngineStatistics:
    """What the engine did.

    jobs: nodes computed. batches: calls that computed them. updates: optimizer steps submitted. seconds: wall
    time in flushes.
    """

    jobs: int = 0
    batches: int = 0
    updates: int = 0
    seconds: float = 0.0

    @property
    def mean_batch(self) -> float:
        """Jobs per call."""
        return self.jobs / self.batches if self.batches else 0.0


class Execution:
    """Runs the operations of pending nodes, and gives their slots the rows of the results.

    It remembers how many nodes an operation can compute at once, where that was fewer than it was asked to.
    """

    def __init__(self, statistics: EngineStatistics, device: torch.device, workers: Workers) -> None:
        self._statistics = statistics
        self._workers = workers
        self._device = device
        self._fitting: dict[Operation, int] = {}  # nodes per call, of operations that ran out of memory

    def run(self, groups: Iterable[list[GraphNode]], read_log: ReadLog) -> None:
        """Compute groups of nodes of one operation each. No node may depend on another one of them."""
        parts = deque(part for nodes in groups for part in self._parts(nodes))
        while parts:
            wave = _wave(parts)
            if isinstance(read_log, ReplayedReadLog):
                results = self._replayed([part[0].group.take_rows(part) for part in wave], read_log)
            else:
                results = self._results([(each[0].group, each, each[0].group.begin(each)) for each in wave])
            for nodes, outputs in zip(wave, results, strict=True):
                if outputs is None:
                    read_log.note_split(self._statistics.batches)
                    self._fitting[nodes[0].group] = len(nodes) // 2
                    parts.extendleft(reversed(self._parts(nodes)))
                else:
                    self._store(nodes, outputs)

    def _parts(self, nodes: list[GraphNode]) -> list[list[GraphNode]]:
        """The nodes of a group, as many at a time as one call takes."""
        operation: Operation = nodes[0].group
        limit = operation.rows_at_once()
        if self._fitting:
            limit = min(limit, self._fitting.get(operation, limit))
        if len(nodes) <= limit:
            return [nodes]
        return [nodes[first : first + limit] for first in range(0, len(nodes), limit)]

    def _replayed(self, taken: Iterable[_Outputs], read_log: ReplayedReadLog) -> Iterable[_Outputs | None]:
        """What each part has resulted in, as far as rows are concerned."""
        return (None if read_log.was_split(self._statistics.batches) else each for each in taken)

    def _results(self, begun: list[_Begun]) -> Iterator[_Outputs | None]:
        """What each part results in."""
        places, waiting = range(len(begun)), dict(enumerate(begun))
        # Only what is too large for one call is handed to workers: all else is done sooner than that.
        workers = self._workers if len({id(part[0]) for part in begun}) < len(begun) else _HERE
        begun.clear()

        def result(place: int) -> _Outputs | None:
            return self._result(*waiting[place], workers)

        results: Iterable[_Outputs | None] = workers.each(result, places)
        if workers.count > 1:
            # All of them before the first is stored: a pool that grows then moves to other memory, where what
            # threads still write into the old one would be missing.
            results = list(results)
        for place, outputs in zip(places, results, strict=True):
            # Let go here, in this order: a thread would give rows back at any moment.
            del waiting[place]
            yield outputs

    def _result(
        self, operation: Operation, nodes: list[GraphNode], rest: Callable[[], _Outputs], workers: Workers
    ) -> _Outputs | None:
        """What a part results in; None if memory was missing, and fewer nodes might do with less."""
        try:
            return (workers if operation.is_job else _HERE).call(rest)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        if len(nodes) > 1:
            return None
        raise does_not_fit(operation.subject, self._device, alone=self._workers.alone)

    def _store(self, nodes: list[GraphNode], outputs: _Outputs) -> None:
        for node in nodes:  # rows that nobody else holds are free for the results
            node.inputs = ()
        self._statistics.jobs += len(nodes)
        self._statistics.batches += 1
        for output, values in enumerate(outputs):
            self._store_output(nodes, output, values)

    def _store_output(self, nodes: list[GraphNode], output: int, values: Tensor | Rows | None) -> None:
        if isinstance(values, Rows):
            for node, row in zip(nodes, values.rows, strict=True):
                slot = node.outputs[output]()
                if slot is None:
                    values.pool.give_back(row)
                else:
                    slot.fulfil(row)
            return
        # An output that nobody holds (an optimizer state that was replaced, say) needs no row.
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
        for slot, row in zip(alive, rows, strict=True):  # as `fulfil`, without a call for each of very many
            slot.row, slot.node = row, None
            owners[row] = slot.serial


def _wave(parts: deque[list[GraphNode]]) -> list[list[GraphNode]]:
    """Take the next parts that are begun together."""
    wave, wave_bytes = [parts.popleft()], 0.0
    while parts and len(wave) < _WAVE:
        outputs = filter(None, (output() for output in wave[-1][0].outputs))
        wave_bytes += 4 * len(wave[-1]) * sum(slot.pool.width for slot in outputs)
        if wave_bytes > _WAVE_BYTES:
            break
        wave.append(parts.popleft())
    return wave
