"""The types of objectives, which a protocol may minimise in place of the data's own loss.

An objective is a frozen dataclass (equal settings are equal objects, by which clients are grouped into one
batched call) and a pure function of the model's parameters and one batch. It runs inside
`torch.func.vmap(torch.func.grad(...))`: no control flow that depends on data, no boolean indexing; masks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Parameters: TypeAlias = "Tensor | Mapping[str, Tensor]"
"""A model's parameters: one flat vector [P], or tensors by name."""


class Embedding(NamedTuple):
    """Outputs of a decoupled model for a batch: features z, their projections p (or None), class scores."""

    features: Tensor
    """z [B, d_z]."""
    projections: Tensor | None
    """p [B, d_p]; None if the model has no projection."""
    scores: Tensor
    """Logits [B, K]."""


class ModelOutputs(NamedTuple):
    """What N clients' models make of a batch each, a sample in a column; float32, or wider."""

    scores: Tensor
    """Outputs, of classes their logits, [N, K, B]."""
    features: Tensor | None
    """z [N, d_z, B] of decoupled models."""
    projections: Tensor | None
    """p [N, d_p, B] of decoupled models that have a projection."""
    parameters: Mapping[str, Tensor]
    """The models' parameters by name, [N, *shape]."""

    def tensor(self, name: str) -> Tensor:
        """One parameter by its full name, [N, *shape]; ValueError for an unknown name."""
        if name not in self.parameters:
            raise ValueError(f'the models have no parameter "{name}"; they have {", ".join(self.parameters)}')
        return self.parameters[name]


class OutputGradients(NamedTuple):
    """A gradient in the shapes of `ModelOutputs`; None, and parameters without one, are zeros."""

    scores: Tensor | None = None
    features: Tensor | None = None
    projections: Tensor | None = None
    parameters: Mapping[str, Tensor] = MappingProxyType({})
    """For what the objective takes of them itself; what comes through the outputs is not in it."""


@dataclass(frozen=True)
class ParameterSlice:
    """Where one parameter tensor lies in the flat vector: elements offset .. offset + numel, row by row."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Model(Protocol):
    """A model as pure functions of its parameters."""

    @property
    def slices(self) -> Sequence[ParameterSlice]:
        """Where each parameter lies in a vector, in order: its `name`, `shape`, `offset` and `numel`.

        The names are torch's, as in `named_parameters()`. The slices lie side by side, and make up a vector.
        """
        ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        ...

    def forward(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Inputs [B, ...] -> outputs [B, K]: of classes their logits."""
        ...

    def embed(self, parameters: Parameters, x: Tensor) -> Embedding:
        """Inputs [B, ...] -> features, projections and scores; for decoupled models only."""
        ...

    def tensor(self, parameters: Parameters, name: str) -> Tensor:
        """One parameter by its full name ("prototypes"), in its own shape."""
        ...


class Objective(Protocol):
    """A loss. `views`: how many augmented views of each sample a batch has, 1 or 2.

    With two views, x [2B, ...] holds first all first views, then all second views of the same samples, and
    y [2B] the labels, repeated.

    One that is a mean over samples may have a method `each(model, parameters, x, y)`, which returns the loss
    of each sample [B]: weighted samples and losses that are not reduced need it.
    """

    @property
    def views(self) -> int: ...

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """The batch's loss, a scalar."""
        ...


class ClosedForm(Objective, Protocol):
    """An objective that says what its loss does to the outputs of N clients' models, at once.

    Then models whose layers have closed forms need no autograd. A class that is derived from one may have
    another loss: what it inherits of these does not count. One that is a mean over samples has also
    `output_losses(outputs, y)`, which returns the loss of each [N, B].
    """

    embeds: ClassVar[bool]
    """Whether it calls `Model.embed`, not `Model.forward`."""

    def output_gradients(self, outputs: ModelOutputs, y: Tensor) -> OutputGradients:
        """The gradient of B times each client's loss of a batch; y [N, B, ...]."""
        ...


def cross_entropy_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Of B times the mean cross-entropy of scores [N, K, B] against labels [N, B]: softmax - one-hot."""
    return scores.softmax(dim=1).scatter_(1, labels.unsqueeze(1), -1.0, reduce="add")
