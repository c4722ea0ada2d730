"""Computing what is pending: one call for each group of nodes, and smaller calls where memory runs out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.operations import Operation, Rows
from sim.learning.engine.memory import does_not_fit, is_out_of_memory
from sim.learning.engine.replay.replay_log import ReadLog, ReplayedReadLog
from sim.learning.engine.vector_pool import index_tensor


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

    def __init__(self, statistics: EngineStatistics, device: torch.device) -> None:
        self._statistics = statistics
        self._device = device
        self._fitting: dict[Operation, int] = {}  # nodes per call, of operations that ran out of memory

    def run(self, nodes: list[GraphNode], read_log: ReadLog) -> None:
        """Compute nodes of one operation. No node may depend on another one of them."""
        operation: Operation = nodes[0].group
        limit = operation.rows_at_once()
        if self._fitting:
            limit = min(limit, self._fitting.get(operation, limit))
        first = 0
        while first < len(nodes):
            part = nodes[first : first + limit]
            if self._run_part(operation, part, read_log):
                first += len(part)
            else:
                limit = self._fitting[operation] = len(part) // 2

    def _run_part(self, operation: Operation, nodes: list[GraphNode], read_log: ReadLog) -> bool:
        """Compute these in one call; False, and nothing has changed, if that takes too much memory."""
        results = self._results(operation, nodes, read_log)
        if results is None:
            read_log.note_split(self._statistics.batches)
            return False
        for node in nodes:  # rows that nobody else holds are free for the results
            node.inputs = ()
        self._statistics.jobs += len(nodes)
        self._statistics.batches += 1
        for output, values in enumerate(results):
            self._store_output(nodes, output, values)
        return True

    def _results(
        self, operation: Operation, nodes: list[GraphNode], read_log: ReadLog
    ) -> tuple[Tensor | Rows | None, ...] | None:
        """What the operation returns; None if memory was missing, and fewer nodes might do with less."""
        if isinstance(read_log, ReplayedReadLog):
            return None if read_log.was_split(self._statistics.batches) else operation.take_rows(nodes)
        try:
            return operation.run(nodes)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        if len(nodes) > 1:
            return None
        raise does_not_fit(operation.subject, self._device)

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
        for slot, row in zip(alive, rows, strict=True):
            slot.row, slot.node = row, None  # as `fulfil`, of which there are very many
