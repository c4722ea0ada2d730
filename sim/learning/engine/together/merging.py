"""Calls of several runs as one call: the same operation on the nodes of all of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, cast

from torch import Tensor

from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.execution import Outputs
from sim.learning.engine.graph.batch_operations import BatchOperation
from sim.learning.engine.graph.batch_operations import Outputs as ModelOutputs
from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.operations import Clip, Dot, Mix, Operation, OutputRows, Train, ZeroUntrained
from sim.learning.engine.graph.parts import ExtractPart, ReplacePart
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.together.common_data import CommonData


@dataclass(eq=False)
class EngineCall:
    """Call of one run that waits for its results.

    taken: row with the initial parameters of a single training job, in which the run expects the results.
    key: calls with equal keys can be one call; None for a call that is computed by itself. outcome: results,
    or the error of the call.
    """

    run: int
    operation: Operation
    nodes: list[GraphNode]
    taken: OutputRows | None
    key: Hashable = None
    outcome: Outputs | Exception | None = None


class _Node:
    """Node of a merged call: as a `GraphNode`, with the number of its client among those of all runs."""

    __slots__ = ("inputs", "payload")

    def __init__(self, inputs: tuple[Any, ...], payload: Any) -> None:
        self.inputs = inputs
        self.payload = payload


class _TakenSlot:
    """Row of a pool that is taken, and belongs to no vector yet."""

    __slots__ = ("pool", "row")

    def __init__(self, rows: OutputRows) -> None:
        self.pool, [self.row] = rows.pool, rows.rows


class Merging:
    """Computes calls of several runs, whose data are `data`."""

    def __init__(self, data: CommonData) -> None:
        self._data = data
        self._kernels: dict[ModelKernel, Hashable] = {}
        self._keys: dict[int, tuple[Operation, Hashable]] = {}  # by the identity of the operation
        self._numbers: dict[Hashable, int] = {}  # short keys
        self._merged: dict[Hashable, Operation] = {}  # operations on the data of all runs, by key

    def data_changed(self) -> None:
        """Forget the merged operations: they use the data of fewer runs."""
        self._merged.clear()

    def call(self, run: int, nodes: list[GraphNode]) -> EngineCall:
        """Return a call of a run. Takes the row of a single training job."""
        operation: Operation = nodes[0].group
        taken = None
        if isinstance(operation, Train) and len(nodes) == 1:
            taken = operation.take_start(nodes[0])
        call = EngineCall(run, operation, nodes, taken)
        call.key = self._key(call)
        return call

    def results(self, calls: Sequence[EngineCall]) -> list[Outputs]:
        """Return the results of calls with equal keys, computed at once."""
        if len(calls) == 1:
            return [compute_alone(calls[0])]
        operation = self._common(calls[0])
        nodes = [node for call in calls for node in self._moved(call)]
        compute = operation.run_together if isinstance(operation, Train) else operation.run
        values = cast("tuple[Tensor, ...]", compute(cast("list[GraphNode]", nodes)))
        found, first = list[Outputs](), 0
        for call in calls:
            end = first + len(call.nodes)
            found.append(_slice_results(call, values, first, end))
            first = end
        return found

    def limit(self, call: EngineCall) -> int:
        """Return the largest number of nodes of one call."""
        return self._common(call).rows_at_once()

    def _common(self, call: EngineCall) -> Operation:
        """Return the operation on the data of all runs."""
        operation = call.operation
        if not isinstance(operation, Train | BatchOperation):
            return operation
        if call.key not in self._merged:
            subset, _ = self._data.common(call.run, operation.sampler.subset)
            self._merged[call.key] = replace(operation, sampler=replace(operation.sampler, subset=subset))
        return self._merged[call.key]

    def _moved(self, call: EngineCall) -> list[_Node]:
        """Return the nodes of a call for the data of all runs."""
        operation, nodes = call.operation, call.nodes
        if not isinstance(operation, Train | BatchOperation):
            return [_Node(node.inputs, node.payload) for node in nodes]
        first = self._data.common(call.run, operation.sampler.subset)[1]
        if isinstance(operation, BatchOperation):
            return [
                _Node(node.inputs, node.payload._replace(client=node.payload.client + first))
                for node in nodes
            ]
        found = []
        for node in nodes:
            job, factors = node.payload
            job = job._replace(client=job.client + first)
            inputs: tuple[Any, ...] = node.inputs
            if call.taken is not None:
                factors, inputs = (1.0,), (_TakenSlot(call.taken), *inputs)
            found.append(_Node(inputs, (job, factors)))
        return found

    # --- keys -----------------------------------------------------------------------------------------------

    def _key(self, call: EngineCall) -> Hashable:
        """Return the key of a call, which states everything that affects it except nodes and clients."""
        operation = call.operation
        if id(operation) not in self._keys:
            found = self._of_operation(call.run, operation)
            number = None if found is None else self._numbers.setdefault(found, len(self._numbers))
            self._keys[id(operation)] = operation, number
        key = self._keys[id(operation)][1]
        return key if key is None or not isinstance(operation, Train) else (key, *_arithmetic_traits(call))

    def _of_operation(self, run: int, operation: Operation) -> Hashable:
        """Return a key that two operations share if one call can compute both; None if it must run alone."""
        match operation:
            case Mix() | Dot():
                return type(operation), operation.width
            case Clip():
                return Clip
            case ZeroUntrained():
                return ZeroUntrained, operation.architecture.key
            case ExtractPart() | ReplacePart():
                return type(operation), operation.whole.width, operation.offset, operation.width
            case Train() | BatchOperation() | ModelOutputs() if not _may_merge(operation):
                return None
            case ModelOutputs():
                return ModelOutputs, self._of_kernel(operation.kernel), operation.given.width
            case Train() | BatchOperation():
                optimizer = operation.optimizer if isinstance(operation, Train) else None
                model = self._of_kernel(operation.kernel), self._of_sampler(run, operation.sampler)
                return type(operation), optimizer, operation.weighted, *model
            case _:  # such as functions of methods: their products may depend on the number of rows
                return None

    def _of_sampler(self, run: int, sampler: BatchSampler) -> Hashable:
        role = self._data.role(run, sampler.subset)
        return role, sampler.batch_size, sampler.sampling, sampler.augmentation, sampler.views

    def _of_kernel(self, kernel: ModelKernel) -> Hashable:
        if kernel not in self._kernels:
            architecture, found = kernel.architecture, blake2b(digest_size=16)
            for name, values in architecture.constants.items():
                found.update(f"{name} {tuple(values.shape)} {values.dtype}".encode())
                found.update(values.cpu().numpy().tobytes())
            self._kernels[kernel] = (
                architecture.key,
                architecture.slices,
                found.digest(),
                kernel.objective,
                kernel.backend,
                kernel.precision,
                kernel.micro_batch,
            )
        return self._kernels[kernel]


def _may_merge(operation: Train | BatchOperation | ModelOutputs) -> bool:
    """Return True if a call for several runs is faster and, on a CPU, gives results equal to the last bit."""
    if isinstance(operation, Train):
        on_cpu = operation.pool.device.type == "cpu"
        return operation.rows_at_once() > 1 and (
            not on_cpu or operation.kernel.is_exact("training_gradients")
        )
    if isinstance(operation, ModelOutputs):
        return operation.device.type != "cpu" or operation.kernel.is_exact("outputs")
    on_cpu = operation.sampler.subset.x.device.type == "cpu"
    return not on_cpu or operation.kernel.is_exact(operation.computed)


def compute_alone(call: EngineCall) -> Outputs:
    """Return the results of one call."""
    operation, nodes = call.operation, call.nodes
    if call.taken is not None:
        assert isinstance(operation, Train)
        return operation.train_in_row(call.taken, nodes, [nodes[0].payload[0]])
    return operation.run(nodes)


def _arithmetic_traits(call: EngineCall) -> tuple[bool, bool]:
    """Return whether jobs have proximal pulls, and start from sums: both change the arithmetic of a call."""
    payloads = [node.payload for node in call.nodes]
    pulled = any(job.strengths for job, _ in payloads)
    return pulled, call.taken is None and any(factors != (1.0,) for _, factors in payloads)


def _slice_results(call: EngineCall, values: Sequence[Tensor], first: int, end: int) -> Outputs:
    """Return rows [first, end) of each output as the results of a call."""
    parts = [each[first:end] for each in values]
    if call.taken is None:
        return tuple(parts)
    call.taken.pool.write(call.taken.rows, parts[0])
    return (call.taken, *parts[1:])
