"""Operations on samples: gradients and losses on one batch of each client, mean features, and outputs."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.backends.kernels import Computed, ModelKernel
from sim.learning.engine.graph.drawing import draw_random_parameters
from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.operations import (
    Operation,
    Weighted,
    gather_inputs,
    model_and_batch_text,
    stacked,
)
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob, clients_at_once
from sim.learning.engine.graph.samples import Subset
from sim.learning.engine.vector_pool import VectorPool

_SAMPLES_AT_ONCE = 512  # of the samples of a client


@dataclass(frozen=True)
class BatchOperation(Operation):
    """Operation on the parameters and one batch of each client.

    Payload: the GradientOrLossJob. Inputs: the parameters and, if `weighted`, the weights of samples.
    """

    is_job = True
    computed: ClassVar[Computed] = "losses"
    kernel: ModelKernel
    sampler: BatchSampler
    weighted: Weighted = None

    @property
    def subject(self) -> str:
        return f"a {type(self).__name__.lower()} of {model_and_batch_text(self.kernel, self.sampler)}"

    @property
    def width(self) -> int:
        """Number of values in a result."""
        return 1

    def rows_at_once(self) -> int:
        return self.sampler.rows_at_once(self.kernel, self.computed)

    def inputs(self, nodes: list[GraphNode]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return parameters [N, P], samples [N, views * B, ...], targets [N, views * B], weights [N, B]."""
        jobs = [node.payload for node in nodes]
        batches = self.sampler.batches(jobs, 0, 1)
        weights = None if self.weighted is None else stacked([node.inputs[1] for node in nodes])
        if weights is not None and self.weighted == "by sample":
            weights = self.sampler.weights(batches, 0, weights)
        return gather_inputs(nodes, 0), *self.sampler.samples(batches, 0, len(jobs)), weights

    def pieces(self) -> list[slice]:
        """Return the parts in which a batch is computed: several if it has all samples of a client.

        With batch norms, which need several samples, no part has a single one.
        """
        if self.sampler.sampling != "all" or self.sampler.views > 1:
            return [slice(None)]
        count = self.sampler.batch_size
        firsts = list(range(0, count, _SAMPLES_AT_ONCE))
        if len(firsts) > 1 and count - firsts[-1] == 1 and self.kernel.architecture.statistics:
            firsts.pop()
        return [slice(first, end) for first, end in itertools.pairwise([*firsts, count])]

    def losses(self, params: Tensor, x: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss of each sample times its weight, [N, B]."""
        found = [self.kernel.losses_of_each(params, x[:, piece], y[:, piece]) for piece in self.pieces()]
        losses = torch.cat(found, dim=1)
        return losses if weights is None else losses.mul_(weights)


class Gradient(BatchOperation):
    """Gradient of the mean loss over one batch, [N, P]; 0 for untrained parameters, which do not move."""

    computed = "training_gradients"

    @property
    def width(self) -> int:
        return self.kernel.architecture.numel

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        inputs, jobs = self.inputs(nodes), [node.payload for node in nodes]
        with self.kernel.step_context():
            return (self._gradient(jobs, *inputs),)

    def _gradient(
        self, jobs: list[GradientOrLossJob], params: Tensor, x: Tensor, y: Tensor, weights: Tensor | None
    ) -> Tensor:
        pieces = self.pieces()
        if len(pieces) == 1:
            draw_random_parameters(self.kernel.architecture, params, jobs, 0)
            return self.kernel.gradients(params, x, y, weights)
        total = torch.zeros_like(params)
        for number, piece in enumerate(pieces):
            draw_random_parameters(self.kernel.architecture, params, jobs, 0, number)
            of_piece = None if weights is None else weights[:, piece]
            gradient = self.kernel.gradients(params, x[:, piece], y[:, piece], of_piece)
            total.add_(gradient, alpha=y[:, piece].shape[1] / y.shape[1])
        return total


class Loss(BatchOperation):
    """Mean loss over one batch, as a scalar [N, 1]; with weights, the mean of weight times loss."""

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        params, x, y, weights = self.inputs(nodes)
        if weights is None:
            return (self.kernel.losses(params, x, y)[:, None],)
        return (self.losses(params, x, y, weights).mean(dim=1, keepdim=True),)


class Losses(BatchOperation):
    """Loss of each sample of one batch, [N, B]; with weights, weight times loss."""

    @property
    def width(self) -> int:
        return self.sampler.batch_size

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        return (self.losses(*self.inputs(nodes)),)


@dataclass(frozen=True)
class ClassMeans(Operation):
    """Mean features of a client's samples of each class, [N, classes * features]; 0 for an empty class.

    Payload: the client's number. Input: the parameters.
    """

    is_job = True
    kernel: ModelKernel
    subset: Subset
    classes: int
    features: int

    @property
    def width(self) -> int:
        """Number of values in a result."""
        return self.classes * self.features

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        return (torch.stack([self._class_means(node) for node in nodes]),)

    def _class_means(self, node: GraphNode) -> Tensor:
        client = np.array([node.payload])
        slot = node.inputs[0]
        flat = slot.pool.data[slot.row]
        total = torch.zeros((self.classes, self.features), device=flat.device)
        counts = torch.zeros((self.classes, 1), device=flat.device)
        count = int(self.subset.counts[node.payload])
        for first in range(0, count, _SAMPLES_AT_ONCE):
            positions = np.arange(first, min(first + _SAMPLES_AT_ONCE, count))[None]
            x, y = self.subset.gather(client, positions)
            features = self.kernel.features(flat, x[0])
            # A product instead of index_add_, whose order of summation varies on CUDA.
            belongs = torch.nn.functional.one_hot(y[0], self.classes).to(features.dtype).T
            total += belongs @ features
            counts += belongs.sum(dim=1, keepdim=True)
        return (total / counts.clamp(min=1)).flatten()


@dataclass(frozen=True)
class Outputs(Operation):
    """Outputs of models on samples concatenated in a vector of `given`, [N, B * outputs].

    Inputs: the parameters, and the samples.
    """

    is_job = True
    kernel: ModelKernel
    given: VectorPool
    device: torch.device

    @property
    def subject(self) -> str:
        return f"outputs of {self.kernel.architecture.key} on {self.given.width:,} numbers of samples"

    def rows_at_once(self) -> int:
        given_bytes = 4 * self.given.width + 8 * self.kernel.architecture.numel
        if self.device.type != "cpu":
            like = torch.empty((0, *self.kernel.architecture.input_shape))
            samples = min(_SAMPLES_AT_ONCE, self.given.width // max(1, like[:1].numel()))
            given_bytes += self.kernel.bytes_made("outputs", samples, like)
        return clients_at_once(self.device, given_bytes)

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        params = gather_inputs(nodes, 0)
        x = gather_inputs(nodes, 1).view(len(nodes), -1, *self.kernel.architecture.input_shape)
        pieces = [self.kernel.outputs(params, piece) for piece in x.split(_SAMPLES_AT_ONCE, dim=1)]
        return (torch.cat(pieces, dim=1).flatten(1),)
