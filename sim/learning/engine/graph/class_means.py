"""The mean features of each class, which FedProto's clients exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.backends.kernels import Kernel
from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.operations import Operation
from sim.learning.engine.graph.samples import Subset

_SAMPLES_AT_ONCE = 512


@dataclass(frozen=True)
class ClassMeans(Operation):
    """Mean features of a client's samples of each class, [N, classes * features]; 0 for a class without any.

    Payload: the client's number. Input: the parameters.
    """

    is_job = True
    kernel: Kernel
    subset: Subset
    classes: int
    features: int

    @property
    def subject(self) -> str:
        return f"the mean features of {self.kernel.architecture.key}"

    @property
    def width(self) -> int:
        """Numbers of a result."""
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
            # A product instead of index_add_, whose order of summation CUDA does not fix.
            belongs = torch.nn.functional.one_hot(y[0], self.classes).to(features.dtype).T
            total += belongs @ features
            counts += belongs.sum(dim=1, keepdim=True)
        return (total / counts.clamp(min=1)).flatten()
