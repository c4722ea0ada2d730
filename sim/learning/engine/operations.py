"""What a pending node does when its level is reached; one call serves all nodes of a group.

An operation gets the nodes of one level that share it and returns one tensor [N, width] per output, row n for
node n.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.arena import Arena, index_tensor
from sim.learning.engine.batches import draw_batches
from sim.learning.engine.handles import Coefficient, Factor, Node
from sim.learning.engine.kernels import Kernel
from sim.learning.engine.optimizers import Optimizer
from sim.learning.engine.samples import Subset

_PRODUCT_LIMIT = 40  # multiply-adds of a matrix product that cost about as much as gathering one term
_CHUNK_BYTES = 256 * 2**20  # of gathered samples; larger groups are cut, so that one level fits in memory


class Operation(ABC):
    """A computation on stacked rows; instances are shared by all nodes of a group."""

    @abstractmethod
    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        """Outputs of `nodes`, whose inputs have all been computed."""

    def rows_at_once(self) -> int:
        """How many nodes one call may take."""
        return 1 << 30


class Mix(Operation):
    """Sum of factor_k times vector_k; payload: the factors."""

    def __init__(self, arena: Arena, scalars: Arena) -> None:
        self._arena = arena
        self._scalars = scalars

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        factors = [node.payload for node in nodes]
        rows = [[atom.row for atom in node.inputs[: len(node.payload)]] for node in nodes]
        return (weighted_sum(self._arena, self._scalars, rows, factors),)


def weighted_sum(
    arena: Arena, scalars: Arena, rows: list[list[int]], factors: list[tuple[Factor, ...]]
) -> Tensor:
    """sum_k factors[n][k] * arena[rows[n][k]], [N, width]; 0 for an n without terms."""
    lengths = np.array([len(row) for row in rows])
    longest = int(lengths.max())
    if longest == 0:
        return torch.zeros((len(rows), arena.width), device=arena.device)
    # Longest first: those that have a k-th term are the first ones. Nothing is filled up with terms of factor
    # 0, through which the inf or nan of another client would reach this one.
    order = np.argsort(-lengths, kind="stable")
    index = np.zeros((len(rows), longest), dtype=np.int64)
    numbers = np.zeros((len(rows), longest), dtype=np.float32)
    scalar_rows = np.zeros((len(rows), longest), dtype=np.int64)  # row 0 of the scalars is the constant 1
    deferred = False
    for place, n in enumerate(order.tolist()):
        index[place, : len(rows[n])] = rows[n]
        for k, factor in enumerate(factors[n]):
            if isinstance(factor, Coefficient):
                numbers[place, k], scalar_rows[place, k], deferred = factor.number, factor.scalar.row, True
            else:
                numbers[place, k] = factor
    weights = torch.from_numpy(numbers).to(arena.device)
    if deferred:
        weights = weights * scalars.data[index_tensor(scalar_rows, arena.device), 0]
    if int(lengths.sum()) == lengths.size * longest:
        total = _as_matrix_product(arena, index, weights)
        if total is not None:
            return total
    total = arena.gather(index[:, 0]).mul_(weights[:, :1])
    total[int(np.count_nonzero(lengths)) :] = 0.0
    for k in range(1, longest):
        having = int(np.count_nonzero(lengths > k))
        total[:having].addcmul_(arena.gather(index[:having, k]), weights[:having, k : k + 1])
    if lengths.min() == longest:  # the order is the given one
        return total
    return total.index_select(0, index_tensor(np.argsort(order), arena.device))


def _as_matrix_product(arena: Arena, index: np.ndarray, weights: Tensor) -> Tensor | None:
    """The sums for terms [N, K] as one product [N, U] x [U, width] over the U rows that occur, or None.

    Worth it where rows are shared, as when everybody is pulled towards everybody: each is read once instead
    of once per term. The product has zeros for rows that a sum does not contain, through which an inf or nan
    would spread, so a result with one is not taken.
    """
    rows, place = np.unique(index, return_inverse=True)
    if 2 * rows.size > index.size or index.shape[0] * rows.size > _PRODUCT_LIMIT * index.size:
        return None
    matrix = torch.zeros((index.shape[0], rows.size), device=arena.device)
    matrix.scatter_add_(1, index_tensor(place.reshape(index.shape), arena.device), weights)
    total = matrix @ arena.gather(rows)
    return total if bool(total.isfinite().all()) else None


class Clip(Operation):
    """A scalar limited to [low, high]; payload: the pair of them."""

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        value = gather_inputs(nodes, 0)
        limits = torch.tensor([node.payload for node in nodes], dtype=value.dtype, device=value.device)
        return (value.clamp_(limits[:, :1], limits[:, 1:]),)


@dataclass(frozen=True)
class Dot(Operation):
    """Inner product of two vectors of `width` numbers, as a scalar."""

    width: int  # a call gathers its inputs from one arena

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        return ((gather_inputs(nodes, 0) * gather_inputs(nodes, 1)).sum(dim=1, keepdim=True),)


@dataclass(frozen=True)
class Draw:
    """How a job draws its samples: `steps` batches of `batch_size` from one subset."""

    subset: Subset
    batch_size: int
    steps: int
    sampling: str

    def batches(self, nodes: list[Node]) -> tuple[np.ndarray, np.ndarray]:
        """Client numbers [N] and positions [N, steps, batch_size] in each client's own samples."""
        clients = np.array([node.payload.client for node in nodes], dtype=np.int64)
        keys = np.array([node.payload.key for node in nodes], dtype=np.uint64)
        first = np.array([node.payload.first_step for node in nodes], dtype=np.int64)
        counts = self.subset.counts[clients]
        positions = draw_batches(
            keys, first, counts, steps=self.steps, batch_size=self.batch_size, sampling=self.sampling
        )
        return clients, positions

    def rows_at_once(self, width: int) -> int:
        """Clients whose batch and parameters of one step fit in the chunk limit."""
        sample_bytes = self.subset.x[0].numel() * 4 * self.batch_size
        return max(1, _CHUNK_BYTES // (sample_bytes + 8 * width))


class TrainJob(NamedTuple):
    """Payload of a training node. Inputs: start, the optimizer's state if any, the anchors of the pulls."""

    client: int
    key: int
    first_step: int
    learning_rate: float
    steps_done: int  # by this optimizer state, for Adam's bias correction
    strengths: tuple[Factor, ...]


@dataclass(frozen=True)
class Train(Operation):
    """`draw.steps` optimizer steps on the loss plus proximal pulls sum_k c_k/2 ||x - a_k||^2.

    Outputs: the trained parameters [N, P] and, for optimizers that have one, the state [N, slots * P].
    """

    kernel: Kernel
    optimizer: Optimizer
    draw: Draw
    scalars: Arena

    def rows_at_once(self) -> int:
        return self.draw.rows_at_once(self.kernel.architecture.numel)

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        clients, positions = self.draw.batches(nodes)
        params = gather_inputs(nodes, 0)
        device = params.device
        state = gather_inputs(nodes, 1) if self.optimizer.slots else None
        rate = _column([node.payload.learning_rate for node in nodes], params.dtype, device)
        done = _column([node.payload.steps_done for node in nodes], torch.float64, device)
        pull = self._pull(nodes)
        for step in range(self.draw.steps):
            x, y = self.draw.subset.gather(clients, positions[:, step])
            gradient = self.kernel.gradients(params, x, y)
            if pull is not None:
                strength, anchor = pull
                gradient = gradient + strength * params - anchor
            params, state = self.optimizer.apply(params, gradient, state, done + step, rate)
        return (params,) if state is None else (params, state)

    def _pull(self, nodes: list[Node]) -> tuple[Tensor, Tensor] | None:
        """Total strength [N, 1] and strength-weighted sum of the anchors [N, P]; None if nobody is pulled."""
        if not any(node.payload.strengths for node in nodes):
            return None
        first = 2 if self.optimizer.slots else 1
        factors = [node.payload.strengths for node in nodes]
        anchors = [node.inputs[first : first + len(node.payload.strengths)] for node in nodes]
        rows = [[atom.row for atom in own] for own in anchors]
        anchor = weighted_sum(nodes[0].inputs[0].arena, self.scalars, rows, factors)
        # The same sum over rows that are all the constant 1 (row 0 of the scalars).
        ones = [[0] * len(row) for row in rows]
        return weighted_sum(self.scalars, self.scalars, ones, factors), anchor


class SampleJob(NamedTuple):
    """Payload of a gradient or loss node; input: the parameters."""

    client: int
    key: int
    first_step: int


@dataclass(frozen=True)
class _OnOneBatch(Operation):
    """Something about the parameters and one batch of each client."""

    kernel: Kernel
    draw: Draw

    def rows_at_once(self) -> int:
        return self.draw.rows_at_once(self.kernel.architecture.numel)

    def inputs(self, nodes: list[Node]) -> tuple[Tensor, Tensor, Tensor]:
        """Parameters [N, P], samples [N, B, ...] and targets [N, B]."""
        clients, positions = self.draw.batches(nodes)
        return gather_inputs(nodes, 0), *self.draw.subset.gather(clients, positions[:, 0])


class Gradient(_OnOneBatch):
    """Gradient of the mean loss over one batch, [N, P]."""

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        return (self.kernel.gradients(*self.inputs(nodes)),)


class Loss(_OnOneBatch):
    """Mean loss over one batch (which may be a client's whole subset), as a scalar [N, 1]."""

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        return (self.kernel.losses(*self.inputs(nodes))[:, None],)


def _column(values: list[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)[:, None]


def gather_inputs(nodes: list[Node], which: int) -> Tensor:
    """Input number `which` of every node, [N, width]."""
    return nodes[0].inputs[which].arena.gather([node.inputs[which].row for node in nodes])
