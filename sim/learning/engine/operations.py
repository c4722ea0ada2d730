"""What a pending node does when its level is reached; one call serves all nodes of a group.

An operation gets the nodes of one level that share it and returns one tensor [N, width] per output, row n for node n.
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
    """Sum of factor_k times vector_k. Terms are added in their own order, so a row does not depend on its batch."""

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
    """sum_k factors[n][k] * arena[rows[n][k]], [N, width]; shorter rows are filled up with factor 0."""
    count, longest = len(rows), max(len(row) for row in rows)
    if longest == 0:
        return torch.zeros((count, arena.width), device=arena.device)
    index = np.zeros((count, longest), dtype=np.int64)
    numbers = np.zeros((count, longest), dtype=np.float32)
    scalar_rows = np.zeros((count, longest), dtype=np.int64)  # row 0 of the scalars is the constant 1
    deferred = False
    for n, (row, weights) in enumerate(zip(rows, factors, strict=True)):
        index[n, : len(row)] = row
        index[n, len(row) :] = row[0] if row else 0
        for k, factor in enumerate(weights):
            if isinstance(factor, Coefficient):
                numbers[n, k], scalar_rows[n, k], deferred = factor.number, factor.scalar.row, True
            else:
                numbers[n, k] = factor
    weights_tensor = torch.from_numpy(numbers).to(arena.device)
    if deferred:
        weights_tensor = weights_tensor * scalars.data[index_tensor(scalar_rows, arena.device), 0]
    total = arena.gather(index[:, 0]) * weights_tensor[:, :1]
    for k in range(1, longest):
        total.addcmul_(arena.gather(index[:, k]), weights_tensor[:, k : k + 1])
    return total


@dataclass(frozen=True)
class Clip(Operation):
    """A scalar limited to [low, high]."""

    low: float
    high: float

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        return (gather_inputs(nodes, 0).clamp_(self.low, self.high),)


class Dot(Operation):
    """Inner product of two vectors, as a scalar."""

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
        """Client numbers [N] and positions [N, steps, batch_size] for nodes whose payload has key and first_step."""
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
    """Payload of a training node. Inputs: start, then the optimizer state if any, then the anchors of the pulls."""

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
        rate = torch.tensor([[node.payload.learning_rate] for node in nodes], device=device)
        done = torch.tensor([[float(node.payload.steps_done)] for node in nodes], device=device)
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
        """Total strength [N, 1] and strength-weighted sum of the anchors [N, P]; None when nobody is pulled."""
        if not any(node.payload.strengths for node in nodes):
            return None
        first = 2 if self.optimizer.slots else 1
        factors = [node.payload.strengths for node in nodes]
        rows = [[atom.row for atom in node.inputs[first : first + len(node.payload.strengths)]] for node in nodes]
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
class Gradient(Operation):
    """Gradient of the mean loss over one batch, [N, P]."""

    kernel: Kernel
    draw: Draw

    def rows_at_once(self) -> int:
        return self.draw.rows_at_once(self.kernel.architecture.numel)

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        clients, positions = self.draw.batches(nodes)
        x, y = self.draw.subset.gather(clients, positions[:, 0])
        return (self.kernel.gradients(gather_inputs(nodes, 0), x, y),)


@dataclass(frozen=True)
class Loss(Operation):
    """Mean loss over one batch (which may be a client's whole subset), as a scalar [N, 1]."""

    kernel: Kernel
    draw: Draw

    def rows_at_once(self) -> int:
        return self.draw.rows_at_once(self.kernel.architecture.numel)

    def run(self, nodes: list[Node]) -> tuple[Tensor, ...]:
        clients, positions = self.draw.batches(nodes)
        x, y = self.draw.subset.gather(clients, positions[:, 0])
        return (self.kernel.losses(gather_inputs(nodes, 0), x, y)[:, None],)


def gather_inputs(nodes: list[Node], which: int) -> Tensor:
    """Input number `which` of every node, [N, width]."""
    return nodes[0].inputs[which].arena.gather([node.inputs[which].row for node in nodes])
