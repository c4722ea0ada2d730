"""The engine: it collects the jobs of all clients, and computes them in batches when a value is needed."""

import gc
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from sim.errors import UserError
from sim.kernel.random import key
from sim.learning.architecture import Architecture
from sim.learning.engine.backends.kernels import ModelKernel, choose_backend
from sim.learning.engine.execution import EngineStatistics, Execution
from sim.learning.engine.functions.user_functions import Function, Functions
from sim.learning.engine.graph.batch_operations import (
    BatchOperation,
    ClassMeans,
    Gradient,
    Loss,
    Losses,
    Outputs,
)
from sim.learning.engine.graph.nodes import Coefficient, Factor, GraphNode, Slot, Terms
from sim.learning.engine.graph.operations import Clip, Dot, Mix, Operation, Train, Weighted, ZeroUntrained
from sim.learning.engine.graph.parts import ExtractPart, ReplacePart
from sim.learning.engine.graph.pending import PendingNodes
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob, TrainJob
from sim.learning.engine.graph.samples import ClientData
from sim.learning.engine.handles import Scalar, Vector
from sim.learning.engine.memory import explaining_out_of_memory
from sim.learning.engine.optimizers import Optimizer
from sim.learning.engine.replay_log import META, Arrays, ReadLog
from sim.learning.engine.vector_pool import LazyPoolRows, VectorPool
from sim.learning.engine.workers import Workers
from sim.learning.objectives import Objective

Interned = TypeVar("Interned", bound=Hashable)

START_TERMS_MAX = 4
"""Largest number of terms of a sum that training computes in the same call."""

_KEPT_NUMBERS = 4096  # of a vector whose values are kept after they are read
_NODE_BYTES = 1_000  # approximate size of the Python objects of a pending node


class Engine:
    """Deferred, batched computation for all clients of a run.

    Jobs become pending nodes. A read computes the nodes that it needs, and in the same calls ready nodes of
    the same operations. `flush` computes all nodes that are still held; so does a job that makes pending
    nodes and their outputs exceed `pending_limit_bytes`. Both work level by level, with one call per group.
    `backend` is "auto" or one of `backends.kernels.BACKENDS`; with `deferred=False` each job is computed when
    it is submitted. `precision` and `micro_batch`: see `ModelKernel`. workers: compute parts of a batch at
    the same time (None: this thread alone); results do not depend on them.

    Vectors given to a method must belong to this engine and have the expected width; otherwise, the engine
    raises ValueError. Calls that need too much memory are split into smaller ones. Raises UserError if a
    single job does not fit. An exception in a batch ends the engine: every later read of a pending value
    raises RuntimeError, or the UserError again.
    """

    def __init__(
        self,
        data: ClientData,
        *,
        seed: int,
        device: torch.device | str = "cpu",
        backend: str = "auto",
        precision: str = "float32",
        micro_batch: int | None = None,
        deferred: bool = True,
        pending_limit_bytes: float = 512e6,
        workers: Workers | None = None,
    ) -> None:
        self.data = data
        self.seed = seed
        self.device = torch.device(device)
        self.backend = backend
        self.precision = precision
        self.micro_batch = micro_batch
        self.deferred = deferred
        self.pending_limit_bytes = pending_limit_bytes
        self.workers = workers or Workers()
        self.statistics = EngineStatistics()
        self.read_log = ReadLog()
        self.flushes = 0
        self.collections = 0  # garbage collections
        self.vectors_in_cycles = 0  # vectors freed by them
        self.pools: dict[int, VectorPool] = {}
        self._pending = PendingNodes()
        self._failure: BaseException | None = None
        self._interned: dict[Hashable, Hashable] = {}
        self._scalars = self.pool(1)
        self.one = Slot(self._scalars, self._scalars.store(torch.ones((1, 1), device=self.device))[0])
        self._require_constant()
        self._zero_slots: dict[int, Slot] = {}
        self._mixes: dict[int, Mix] = {}
        self.functions = Functions()
        self._execution = self._new_execution()

    def _require_constant(self) -> None:
        assert self.one.row == 0, "operations rely on row 0 of the scalars being the constant 1"

    def _new_execution(self) -> Execution:
        return Execution(self.statistics, self.device, self.workers)

    def unused(self) -> "Engine":
        """Return a new, empty engine on the same data, with the same settings."""
        return self._like_this(Engine)

    def _like_this(self, kind: "Callable[..., Engine]") -> "Engine":
        return kind(
            self.data,
            seed=self.seed,
            device=self.device,
            backend=self.backend,
            precision=self.precision,
            micro_batch=self.micro_batch,
            workers=self.workers,
        )

    # --- handles --------------------------------------------------------------------------------------------

    def vector(self, values: Tensor) -> Vector:
        """Return a handle on known values, [P]."""
        pool = self.pool(values.numel())
        row = pool.store(values.detach().to(pool.device, torch.float32).reshape(1, -1))[0]
        return Vector.of_slot(self, pool.width, Slot(pool, row))

    def scalar(self, value: float) -> Scalar:
        """Return a handle on a known value."""
        return Scalar(self, 1, {self.one: float(value)} if value else {})

    def apply(self, function: Function, arguments: Sequence[Any], static: Mapping[str, Any]) -> Any:
        """Return the deferred results of a pure function of vectors and scalars."""
        return self.functions.apply(self, function, arguments, static)

    def mix(self, width: int, terms: Terms) -> Slot:
        """Return a slot with the linear combination `terms`; called by Vector.slot()."""
        pool = self.pool(width)
        operation = self._mixes.get(width)
        if operation is None:
            operation = self._mixes[width] = Mix(pool, self._scalars)
        factors = tuple(terms.values())
        return self.submit(operation, tuple(terms) + _scalars_of(factors), factors, (pool,))[0]

    def clip(self, value: Scalar, low: float, high: float) -> Scalar:
        """Return `value` limited to [low, high], still deferred."""
        return Scalar.of_slot(self, 1, self.submit(_CLIP, (value.slot(),), (low, high), (self._scalars,))[0])

    def dot(self, first: Vector, second: Vector) -> Scalar:
        """Return the inner product of two vectors of the same width, still deferred."""
        inputs = (self._input(first, first.width), self._input(second, first.width))
        operation = self.intern(Dot(first.width))
        return Scalar.of_slot(self, 1, self.submit(operation, inputs, None, (self._scalars,))[0])

    def trainable(self, of: Vector, architecture: Architecture) -> Vector:
        """Return a vector with 0 for the architecture's untrained parameters, still deferred."""
        if not architecture.untrained:
            return of
        operation = self.intern(ZeroUntrained(architecture))
        slot = self.submit(operation, (self._input(of, architecture.numel),), None, (self.pool(of.width),))[0]
        return Vector.of_slot(self, of.width, slot)

    def part(self, of: Vector, offset: int, width: int) -> Vector:
        """Return columns [offset, offset + width) of a vector as a new vector, still deferred."""
        operation = self.intern(ExtractPart(self.pool(of.width), offset, width))
        slot = self.submit(operation, (self._input(of, of.width),), None, (self.pool(width),))[0]
        return Vector.of_slot(self, width, slot)

    def with_part(self, of: Vector, offset: int, part: Vector) -> Vector:
        """Return a vector like `of`, but with `part` from column `offset` on, still deferred."""
        pool = self.pool(of.width)
        operation = self.intern(ReplacePart(pool, offset, part.width))
        inputs = (self._input(of, of.width), self._input(part, part.width))
        return Vector.of_slot(self, of.width, self.submit(operation, inputs, None, (pool,))[0])

    # --- jobs -----------------------------------------------------------------------------------------------

    def kernel(self, architecture: Architecture, objective: Objective, precision: str = "") -> ModelKernel:
        """Return the cached kernel for this model architecture, objective and precision.

        precision: by default the precision of the engine.
        """
        precision = precision or self.precision
        identity = ("kernel", architecture.key, objective, precision)
        if identity not in self._interned:
            backend = choose_backend(self.backend, architecture, objective, self.device)
            self._interned[identity] = ModelKernel(
                architecture, objective, backend, precision, self.micro_batch
            )
        kernel = self._interned[identity]
        assert isinstance(kernel, ModelKernel)
        return kernel

    def intern(self, value: Interned) -> Interned:
        """Return the first equal object, so that nodes of a group share one operation."""
        return self._interned.setdefault(value, value)  # type: ignore[return-value]

    def training(
        self, kernel: ModelKernel, optimizer: Optimizer, sampler: BatchSampler, weighted: Weighted = None
    ) -> Train:
        """Return the operation that trains on batches of `sampler`."""
        pool = self.pool(kernel.architecture.numel)
        return self.intern(Train(kernel, optimizer, sampler, pool, self._scalars, weighted))

    def train(
        self,
        operation: Train,
        start: Vector,
        job: TrainJob,
        *,
        state: Vector | None = None,
        anchors: Sequence[Vector] = (),
        weights: Vector | None = None,
    ) -> tuple[Vector, Vector | None]:
        """Return the parameters after training from `start`, and the new optimizer state, if any.

        If `start` is a sum of a few vectors, the same call also computes the sum. job.strengths[k] is the
        strength of the pull towards anchors[k]. weights: weights of the samples, if the operation is
        `weighted`. Raises ValueError if the counts of strengths and anchors differ.
        """
        if len(job.strengths) != len(anchors):
            raise ValueError(
                f"{len(job.strengths)} strengths for {len(anchors)} anchors; pass a strength for each anchor"
            )
        pool, slots = operation.pool, operation.optimizer.slots
        width = pool.width
        if start.engine is not self or start.width != width:
            self._require(start, width)
        terms = start.shortened(START_TERMS_MAX)
        factors, inputs = tuple(terms.values()), tuple(terms)
        if slots:
            previous = self._zeros(slots * width) if state is None else self._input(state, slots * width)
            inputs = (*inputs, previous)
        if weights is not None:
            inputs = (*inputs, self._input(weights, weights.width))
        if anchors:
            inputs = (*inputs, *[self._input(anchor, width) for anchor in anchors])
        if anchors or Coefficient in map(type, factors):
            inputs = (*inputs, *_scalars_of(factors + job.strengths))
        pools = (pool, self.pool(slots * width)) if slots else (pool,)
        made = self.submit(operation, inputs, (job, factors), pools)
        new_state = Vector.of_slot(self, slots * width, made[1]) if slots else None
        return Vector.of_slot(self, width, made[0]), new_state

    def gradient(
        self, operation: Gradient, at: Vector, job: GradientOrLossJob, weights: Vector | None = None
    ) -> Vector:
        """Return the gradient of the mean loss of one batch at the parameters `at`. weights: see `train`."""
        return Vector.of_slot(self, operation.width, self._on_batch(operation, at, job, weights))

    def loss(
        self, operation: Loss, of: Vector, job: GradientOrLossJob, weights: Vector | None = None
    ) -> Scalar:
        """Return the mean loss of the parameters `of` on one batch."""
        return Scalar.of_slot(self, 1, self._on_batch(operation, of, job, weights))

    def losses(
        self, operation: Losses, of: Vector, job: GradientOrLossJob, weights: Vector | None = None
    ) -> Vector:
        """Return the loss of each sample of one batch for the parameters `of`."""
        return Vector.of_slot(self, operation.width, self._on_batch(operation, of, job, weights))

    def _on_batch(
        self, operation: BatchOperation, params: Vector, job: GradientOrLossJob, weights: Vector | None
    ) -> Slot:
        inputs: tuple[Slot, ...] = (self._input(params, operation.kernel.architecture.numel),)
        if weights is not None:
            inputs = (*inputs, self._input(weights, weights.width))
        return self.submit(operation, inputs, job, (self.pool(operation.width),))[0]

    def outputs(self, kernel: ModelKernel, of: Vector, samples: Vector, width: int) -> Vector:
        """Return the outputs (`width` numbers) of the parameters `of` on samples concatenated in a vector."""
        operation = self.intern(Outputs(kernel, self.pool(samples.width), self.device))
        inputs = (self._input(of, kernel.architecture.numel), self._input(samples, samples.width))
        return Vector.of_slot(self, width, self.submit(operation, inputs, None, (self.pool(width),))[0])

    def class_means(self, operation: ClassMeans, of: Vector, client: int) -> Vector:
        """Return the mean features of a client's samples, class by class in one vector."""
        inputs = (self._input(of, operation.kernel.architecture.numel),)
        slot = self.submit(operation, inputs, client, (self.pool(operation.width),))[0]
        return Vector.of_slot(self, operation.width, slot)

    def draw_key(self, client: int, purpose: str) -> int:
        """Return the key of one client's batches for one purpose."""
        return key(self.seed, "batches", purpose, client)

    # --- execution ------------------------------------------------------------------------------------------

    def read(self, slot: Slot) -> Tensor:
        """Return the values of a slot, a new tensor [width]; compute it first if it is pending."""
        if slot.read is not None:
            return torch.from_numpy(slot.read.copy()).to(self.device)
        self.read_log.arrive(self.flushes)
        if slot.node is not None:
            self.compute([slot.node])
        values = self.read_log.row(lambda: slot.pool.data[slot.row].clone(), self.device)
        if slot.pool.width <= _KEPT_NUMBERS:  # peers often read the same head or number
            slot.read = values.cpu().numpy().copy()
        return values

    def read_array(self, slot: Slot) -> np.ndarray:
        """Return the values of a slot as a new array [width]: like `read`, without a copy to the device."""
        return self.read(slot).cpu().numpy() if slot.read is None else slot.read.copy()

    def read_measurement(self, measure: Callable[[], Arrays]) -> Arrays:
        """Return the result of `measure`, a function of `rows`. Only this and `read` copy from the device."""
        return self.read_log.arrays(measure)

    def rows(self, vectors: Sequence[Vector]) -> Tensor:
        """Return the values of one or more vectors of equal width, [len(vectors), width]."""
        return self.held(vectors)[:]

    def held(self, vectors: Sequence[Vector]) -> LazyPoolRows:
        """Return the vectors' rows, which must be copied piece by piece before any other computation."""
        self.read_log.arrive(self.flushes)
        slots = [self._input(vector, vectors[0].width) for vector in vectors]
        if nodes := [slot.node for slot in slots if slot.node is not None]:
            self.compute(nodes)
        return LazyPoolRows(slots[0].pool, np.array([slot.row for slot in slots], dtype=np.int64))

    def flush(self) -> None:
        """Compute every pending node that is still needed, level by level."""
        self._run(self._pending.take_all())

    def compute(self, nodes: Iterable[GraphNode]) -> None:
        """Compute these pending nodes and their inputs, with ready nodes of the same operations."""
        self._run(self._pending.take_needed(nodes))

    def _run(self, levels: Iterable[list[list[GraphNode]]]) -> None:
        """Run groups of nodes level by level; each level is built after the previous one is computed."""
        if isinstance(self._failure, UserError):
            raise UserError(str(self._failure)) from self._failure
        if self._failure is not None:
            raise RuntimeError(
                "the engine computes nothing more, because an earlier batch failed"
            ) from self._failure
        self.read_log.arrive(self.flushes)
        self.flushes += 1
        started = time.perf_counter()  # a statistic only: nothing simulated depends on it
        try:
            with explaining_out_of_memory("the results of a batch of jobs", self.device):
                for groups in levels:
                    self._execution.run(groups, self.read_log)
        except BaseException as failure:
            self._failure = failure  # pending nodes are lost; never return another client's rows
            raise
        self.statistics.seconds += time.perf_counter() - started

    def submit(
        self, operation: Operation, inputs: tuple[Slot, ...], payload: object, pools: Sequence[VectorPool]
    ) -> list[Slot]:
        node = GraphNode(operation, inputs, payload)
        outputs, slots, promised_bytes = node.outputs, [], _NODE_BYTES
        for pool in pools:
            slot = Slot(pool, -1, node)
            slots.append(slot)
            outputs.append(ref(slot))
            promised_bytes += 4 * pool.width
        self._pending.add(node, promised_bytes)
        if not self.deferred or self._pending.bytes > self.pending_limit_bytes:
            del node  # otherwise it would outlive its computation
            self.flush()
        return slots

    def _input(self, vector: Vector, width: int) -> Slot:
        """Return the slot of an input."""
        self._require(vector, width)
        return vector.slot()

    def _require(self, vector: Vector, width: int) -> None:
        """Refuse a vector from another pool, whose row numbers mean other vectors."""
        if vector.engine is not self:
            raise ValueError("this vector belongs to another engine")
        if vector.width != width:
            raise ValueError(f"the vector has {vector.width} numbers; {width} are needed")

    def pool(self, width: int) -> VectorPool:
        """Return the pool of vectors of `width` numbers."""
        pool = self.pools.get(width)
        if pool is None:
            pool = self.pools[width] = self._new_pool(width)
        return pool

    def _new_pool(self, width: int) -> VectorPool:
        return VectorPool(width, META if self.read_log.is_replay else self.device)

    def _zeros(self, width: int) -> Slot:
        """Return a row of zeros that all new optimizers share; rows are written only once."""
        slot = self._zero_slots.get(width)
        if slot is None:
            pool = self.pool(width)
            slot = Slot(pool, pool.store(torch.zeros((1, width), device=pool.device))[0])
            self._zero_slots[width] = slot
        return slot

    # --- memory ---------------------------------------------------------------------------------------------

    @property
    def bytes_held(self) -> int:
        """Memory of all pools, in bytes; pools never shrink, so this is also the maximum."""
        return sum(pool.bytes_held for pool in self.pools.values())

    def free_cycles(self, generation: int) -> None:
        """Collect the cyclic garbage of the process up to a generation of Python's collector."""
        gc.collect(generation)

    @property
    def backends(self) -> list[str]:
        """Backends of its kernels, in alphabetical order."""
        return sorted(
            {kernel.backend for kernel in self._interned.values() if isinstance(kernel, ModelKernel)}
        )

    @property
    def rows_held(self) -> int:
        """Number of held vectors and scalars, the constant 1 included."""
        return sum(pool.in_use for pool in self.pools.values())


_CLIP = Clip()


def _scalars_of(factors: tuple[Factor, ...]) -> tuple[Slot, ...]:
    """Return the scalar slots that the factors refer to: they are inputs, too."""
    return tuple([factor.scalar for factor in factors if type(factor) is Coefficient])
