"""Operations of pending nodes: one call computes all nodes of a level that share an operation.

A call returns one tensor [N, width] per output, with row n for node n.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import ClassVar, Literal, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from sim.learning.architecture import Architecture
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.drawing import clear_random_parameters, draw_random_parameters
from sim.learning.engine.graph.nodes import Coefficient, Factor, GraphNode, Slot
from sim.learning.engine.graph.rates import Rates
from sim.learning.engine.graph.sampler import BatchSampler, TrainJob
from sim.learning.engine.optimizers import Optimizer
from sim.learning.engine.vector_pool import VectorPool, index_tensor, numpy_to_device

Weighted = Literal["by sample", "by position"] | None
"""Weights of a job: one for each sample of its client, one for each position in its batch, or none."""

_STEPS_DRAWN = 64  # steps at once: batches of long jobs do not share memory


@dataclass(frozen=True)
class OutputRows:
    """Output that is already in its pool, in rows that were taken for it: one row number per node."""

    pool: VectorPool
    rows: list[int]


class Operation(ABC):
    """Computation on stacked rows; all nodes of a group share an instance."""

    is_job: ClassVar[bool] = False
    """True if it computes with samples: it is so expensive that waiting for more nodes pays off."""
    has_factors: bool = False
    """True if its factors may be pending scalars, which are then the last inputs of a node."""

    @abstractmethod
    def run(self, nodes: list[GraphNode]) -> tuple[Tensor | OutputRows, ...]:
        """Return the outputs of `nodes`, whose inputs are all computed.

        Afterwards, the nodes release their inputs, which others may still hold. If memory is insufficient for
        several nodes, `run` must leave all state unchanged: the nodes are then computed again in smaller
        groups.
        """

    def begin(self, nodes: list[GraphNode]) -> Callable[[], tuple[Tensor | OutputRows, ...]]:
        """Take the rows for in-place computation; return a function for the rest of `run`, for any thread."""
        return partial(self.run, nodes)

    def take_rows(self, nodes: list[GraphNode]) -> tuple[OutputRows | None, ...]:
        """Take the same rows as `begin`; return them, and None for each other output."""
        return (None,) * len(nodes[0].outputs)

    @property
    def subject(self) -> str:
        """Description of the computation, for messages."""
        return f"a call of {type(self).__name__}"

    def rows_at_once(self) -> int:
        """Return the largest number of nodes in one call."""
        return 1 << 30


class Mix(Operation):
    """Sum of factor_k times vector_k; payload: the factors."""

    def __init__(self, pool: VectorPool, scalars: VectorPool) -> None:
        self.has_factors = pool.width > 1  # the others add up scalars
        self._pool = pool
        self._scalars = scalars

    @property
    def width(self) -> int:
        """Number of values in a result."""
        return self._pool.width

    @property
    def subject(self) -> str:
        return f"a sum of vectors of {self.width:,} numbers"

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        factors = [node.payload for node in nodes]
        return (weighted_sum(self._pool, self._scalars, _first_rows(nodes, factors), factors),)


def weighted_sum(
    pool: VectorPool, scalars: VectorPool, rows: list[int], factors: Sequence[tuple[Factor, ...]]
) -> Tensor:
    """Return sums of factors times vectors, [N, width]; 0 for a sum without terms.

    factors: factors of each sum. rows: rows of all terms, sum after sum.
    """
    lengths = np.array(list(map(len, factors)))
    weights = _weights(scalars, list(chain.from_iterable(factors)))
    ends = np.cumsum(lengths)
    # No padding with terms of factor 0, which would spread another client's inf or nan to
    # this one.
    return pool.sums(rows, ends - lengths, weights)


def _weights(scalars: VectorPool, factors: list[Factor]) -> Tensor:
    """Return the values of factors, on the device."""
    if Coefficient not in set(map(type, factors)):
        return numpy_to_device(_float32(factors), scalars.device)
    numbers = [factor.number if isinstance(factor, Coefficient) else factor for factor in factors]
    weights = numpy_to_device(_float32(numbers), scalars.device)
    # Row 0 of the scalars is the constant 1.
    deferred = [factor.scalar.row if isinstance(factor, Coefficient) else 0 for factor in factors]
    return weights * scalars.data[index_tensor(deferred, scalars.device), 0]


def _float32(numbers: Sequence[Factor]) -> np.ndarray:
    """Return numbers as float32; a method that diverges may have numbers beyond its range: they are inf."""
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float32)


class Clip(Operation):
    """Scalar limited to [low, high]; payload: this pair."""

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        value = gather_inputs(nodes, 0)
        limits = numpy_to_device(np.array([node.payload for node in nodes], np.float32), value.device)
        return (value.clamp_(limits[:, :1], limits[:, 1:]),)


@dataclass(frozen=True)
class Dot(Operation):
    """Inner product of two vectors of `width` numbers, as a scalar."""

    width: int  # a call gathers its inputs from one pool

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        return ((gather_inputs(nodes, 0) * gather_inputs(nodes, 1)).sum(dim=1, keepdim=True),)


@dataclass(frozen=True)
class ZeroUntrained(Operation):
    """Vector with 0 in place of untrained parameters."""

    architecture: Architecture

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        vectors = gather_inputs(nodes, 0)
        self.architecture.clear_untrained(vectors)
        return (vectors,)


@dataclass(frozen=True)
class Train(Operation):
    """Optimizer steps on the loss plus proximal pulls sum_k c_k/2 ||x - a_k||^2.

    Neither the optimizer nor the pulls change untrained parameters, such as the statistics of batch norms.

    Payload: the TrainJob, and the factors of the combination from which training starts. Inputs: the slots of
    that combination, the optimizer's state if any, the weights of samples if `weighted`, the anchors of the
    pulls, and scalars that factors refer to. Outputs: the trained parameters [N, P] and, for optimizers with
    a state, the state [N, slots * P].
    """

    is_job = True
    has_factors = True
    kernel: ModelKernel
    optimizer: Optimizer
    sampler: BatchSampler
    pool: VectorPool
    scalars: VectorPool
    weighted: Weighted = None

    @property
    def subject(self) -> str:
        return f"a training step of {model_and_batch_text(self.kernel, self.sampler)}"

    def rows_at_once(self) -> int:
        if self.kernel.backend == "loop":
            return 1  # one client at a time: its data stay in the cache
        return self.sampler.rows_at_once(self.kernel)

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor | OutputRows, ...]:
        return self.begin(nodes)()

    def begin(self, nodes: list[GraphNode]) -> Callable[[], tuple[Tensor | OutputRows, ...]]:
        return self._begin_alone(nodes[0]) if len(nodes) == 1 else partial(self.run_together, nodes)

    def run_together(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        """Train copies of the initial parameters of all nodes; return the outputs."""
        # Sorted by descending steps: the first jobs are always those with steps left.
        jobs, starts = _payloads(nodes)
        steps = [job.steps for job in jobs]
        order = None if min(steps) == max(steps) else np.argsort(-np.array(steps), kind="stable")
        if order is not None:
            nodes, steps = [nodes[n] for n in order], [steps[n] for n in order]
            jobs, starts = _payloads(nodes)
        params = self._start(nodes, starts)
        state = self._state(nodes, starts) if self.optimizer.slots else None
        weights = self._weights(nodes, starts)
        self._train(jobs, steps, params, state, self._pull(nodes, jobs, starts), weights)
        trained = (params,) if state is None else (params, state)
        if order is None:
            return trained
        back = index_tensor(np.argsort(order), params.device)
        return tuple(values.index_select(0, back) for values in trained)

    def _begin_alone(self, node: GraphNode) -> Callable[[], tuple[Tensor | OutputRows, ...]]:
        """Start one node by training in its row: a large model is not copied."""
        jobs, _ = _payloads([node])
        return partial(self.train_in_row, self.take_start(node), [node], jobs)

    def take_start(self, node: GraphNode) -> OutputRows:
        """Take the row in which a node is trained, with its initial parameters."""
        starts = _payloads([node])[1]
        source = node.inputs[0].row if starts[0] == (1.0,) else None
        start = self._start([node], starts) if source is None else None
        taken = self._take_row(node)  # may be the source's row, with its values
        [row] = taken.rows
        if start is not None:
            self.pool.write([row], start)
        elif source != row:
            self.pool.data[row].copy_(self.pool.data[source])
        return taken

    def train_in_row(
        self, started: OutputRows, nodes: list[GraphNode], jobs: list[TrainJob]
    ) -> tuple[Tensor | OutputRows, ...]:
        """Compute the only job in the row `started`, which contains its initial parameters."""
        [row] = started.rows
        # `data`: rows of one tensor share its version counter, which is not thread-safe.
        params = self.pool.data.data[row : row + 1]
        pull, weights = self._pull(nodes, jobs, [()]), self._weights(nodes, [()])
        state = self._state(nodes, [()]) if self.optimizer.slots else None
        self._train(jobs, [jobs[0].steps], params, state, pull, weights)
        return (started,) if state is None else (started, state)

    def take_rows(self, nodes: list[GraphNode]) -> tuple[OutputRows | None, ...]:
        if len(nodes) > 1:
            return super().take_rows(nodes)
        taken = self._take_row(nodes[0])
        return (taken, None) if self.optimizer.slots else (taken,)

    def _take_row(self, node: GraphNode) -> OutputRows:
        """Release the start vector of a node, then take the row in which it is trained.

        The run and its replay both call this: the row depends on the rows held at this point. The other
        inputs stay held, since the job reads them later.
        """
        _, starts = _payloads([node])
        node.inputs = node.inputs[len(starts[0]) :]
        return OutputRows(self.pool, self.pool.take(1))

    def _train(
        self,
        jobs: list[TrainJob],
        steps: list[int],
        params: Tensor,
        state: Tensor | None,
        pull: tuple[Tensor, Tensor] | None,
        weights: Tensor | None,
    ) -> None:
        """Compute jobs in place; `steps` [N], their numbers of steps, must be in descending order."""
        plain, most, device = pull is None and self.optimizer.is_plain, steps[0], params.device
        rates = Rates(jobs, device, as_number=plain)
        done = None if plain else _column([job.steps_done for job in jobs], np.float64, device)
        active = len(jobs)  # number of jobs with this step
        for step in range(most):
            while steps[active - 1] <= step:
                active -= 1
            if step % _STEPS_DRAWN == 0:
                batches = self.sampler.batches(jobs[:active], step, min(_STEPS_DRAWN, most - step))
            x, y = self.sampler.samples(batches, step % _STEPS_DRAWN, active)
            of_samples = None if weights is None else _leading_values(weights, active)
            if of_samples is not None and self.weighted == "by sample":
                of_samples = self.sampler.weights(batches, step % _STEPS_DRAWN, of_samples)
            now, rate = _leading_values(params, active), rates.of_step(step, active)
            draw_random_parameters(self.kernel.architecture, now, jobs[:active], step)
            with self.kernel.step_context():
                if done is None:
                    self.kernel.descend(now, x, y, rate, of_samples)
                    continue
                gradient, untrained = self.kernel.training_gradients(now, x, y, of_samples)
                self._apply(
                    now,
                    gradient,
                    None if state is None else _leading_values(state, active),
                    None if pull is None else [_leading_values(each, active) for each in pull],
                    _leading_values(done, active) + step,
                    cast(Tensor, rate),
                )
                self.kernel.architecture.set_untrained(now, untrained)
        clear_random_parameters(self.kernel.architecture, params)

    def _apply(
        self,
        params: Tensor,
        gradient: Tensor,
        state: Tensor | None,
        pull: Sequence[Tensor] | None,
        done: Tensor,
        rates: Tensor,
    ) -> None:
        """Step params [N, P] and state in place; pull: total strength and weighted sum of the anchors."""
        if pull is not None:
            strength, anchor = pull
            gradient.addcmul_(strength, params).sub_(anchor)
            self.kernel.architecture.clear_untrained(gradient)  # otherwise clipping would count them
        self.optimizer.apply(params, gradient, state, done, rates)

    def _start(self, nodes: list[GraphNode], starts: list[tuple[Factor, ...]]) -> Tensor:
        """Return the initial parameters, a new tensor [N, P]."""
        if all([factors == (1.0,) for factors in starts]):
            return gather_inputs(nodes, 0)
        return weighted_sum(self.pool, self.scalars, _first_rows(nodes, starts), starts)

    def _state(self, nodes: list[GraphNode], starts: list[tuple[Factor, ...]]) -> Tensor:
        slots = [node.inputs[len(factors)] for node, factors in zip(nodes, starts, strict=True)]
        return slots[0].pool.gather([slot.row for slot in slots])

    def _weights(self, nodes: list[GraphNode], starts: list[tuple[Factor, ...]]) -> Tensor | None:
        if self.weighted is None:
            return None
        behind = 1 if self.optimizer.slots else 0
        return stacked([n.inputs[len(factors) + behind] for n, factors in zip(nodes, starts, strict=True)])

    def _pull(
        self, nodes: list[GraphNode], jobs: list[TrainJob], starts: list[tuple[Factor, ...]]
    ) -> tuple[Tensor, Tensor] | None:
        """Return total strength [N, 1] and weighted sum of the anchors [N, P]; None without pulls."""
        factors = [job.strengths for job in jobs]
        if not any(factors):
            return None
        rows: list[int] = []
        for node, strengths, start in zip(nodes, factors, starts, strict=True):
            first = len(start) + (1 if self.optimizer.slots else 0) + (1 if self.weighted else 0)
            rows += [slot.row for slot in node.inputs[first : first + len(strengths)]]
        anchor = weighted_sum(self.pool, self.scalars, rows, factors)
        # The same sum over rows that are all the constant 1 (row 0 of the scalars).
        return weighted_sum(self.scalars, self.scalars, [0] * len(rows), factors), anchor


def _first_rows(nodes: list[GraphNode], factors: Sequence[tuple[Factor, ...]]) -> list[int]:
    """Return, in one list, the rows of each node's first inputs: one input for each of its factors."""
    return [
        slot.row for node, terms in zip(nodes, factors, strict=True) for slot in node.inputs[: len(terms)]
    ]


def _payloads(nodes: list[GraphNode]) -> tuple[list[TrainJob], list[tuple[Factor, ...]]]:
    """Return the jobs of training nodes, and the factors of their start vectors."""
    jobs, starts = zip(*[node.payload for node in nodes], strict=True)
    return list(jobs), list(starts)


T = TypeVar("T", Tensor, float | Tensor)


def _leading_values(values: T, count: int) -> T:
    """Return the first `count` rows, or the same object if these are all rows, or if it is a number."""
    return values if isinstance(values, float) or len(values) == count else values[:count]


def model_and_batch_text(kernel: ModelKernel, sampler: BatchSampler) -> str:
    architecture = kernel.architecture
    return f"{architecture.key}, {architecture.numel:,} numbers per vector, on {sampler.batch_size:,} samples"


def _column(values: list[float], dtype: type, device: torch.device) -> Tensor:
    return numpy_to_device(np.array(values, dtype), device)[:, None]


def gather_inputs(nodes: list[GraphNode], which: int) -> Tensor:
    """Return input number `which` of every node, [N, width]."""
    return nodes[0].inputs[which].pool.gather([node.inputs[which].row for node in nodes])


def stacked(slots: Sequence[Slot]) -> Tensor:
    """Return the rows of slots stacked, [N, widest]; shorter ones are padded with 0."""
    pools = {slot.pool.width: slot.pool for slot in slots}
    if len(pools) == 1:
        return slots[0].pool.gather([slot.row for slot in slots])
    widest, device = max(pools), slots[0].pool.device
    rows = torch.zeros((len(slots), widest), device=device)
    for width, pool in pools.items():
        positions = [position for position, slot in enumerate(slots) if slot.pool.width == width]
        rows[index_tensor(positions, device), :width] = pool.gather([slots[n].row for n in positions])
    return rows
