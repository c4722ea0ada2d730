"""Types of objectives, which a method may minimize instead of the data set's default loss.

An objective is a frozen dataclass and a pure function of the model's parameters and one batch. Objectives
with equal settings are equal objects, and their clients are computed in one batched call. An objective runs
inside `torch.func.vmap(torch.func.grad(...))`, which allows masks, but no control flow that depends on data
and no boolean indexing.
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
"""Parameters of a model: one flat vector [P], or tensors by name."""


class Embedding(NamedTuple):
    """Outputs of a decoupled model for a batch: features z, their projections p (or None), class scores."""

    features: Tensor
    """z [B, d_z]."""
    projections: Tensor | None
    """p [B, d_p]; None if the model has no projection."""
    scores: Tensor
    """Logits [B, K]."""


class ModelOutputs(NamedTuple):
    """Outputs of N clients' models, for one batch each, with a sample in each column; float32, or wider."""

    scores: Tensor
    """Outputs (for classes, logits), [N, K, B]."""
    features: Tensor | None
    """z [N, d_z, B] of decoupled models."""
    projections: Tensor | None
    """p [N, d_p, B] of decoupled models that have a projection."""
    parameters: Mapping[str, Tensor]
    """Parameters of the models by name, [N, *shape]."""

    def tensor(self, name: str) -> Tensor:
        """Return one parameter by its full name, [N, *shape]. Raises ValueError for an unknown name."""
        if name not in self.parameters:
            raise ValueError(f'the models have no parameter "{name}"; they have {", ".join(self.parameters)}')
        return self.parameters[name]


class OutputGradients(NamedTuple):
    """A gradient in the shapes of `ModelOutputs`. None, and a parameter that is not listed, mean zeros."""

    scores: Tensor | None = None
    features: Tensor | None = None
    projections: Tensor | None = None
    parameters: Mapping[str, Tensor] = MappingProxyType({})
    """Direct gradients of the objective with respect to parameters, without those through the outputs."""


@dataclass(frozen=True)
class ParameterSlice:
    """Slice of one parameter tensor in the flat vector: elements offset .. offset + numel, row by row."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class AdapterSlices:
    """Slices of one low-rank adapter, which adds scale x A B to its layer, and `merged` if there is one.

    a: A [inputs, rank]. b: B [rank, outputs]. merged: [inputs, outputs], not trained.
    """

    a: ParameterSlice
    b: ParameterSlice
    merged: ParameterSlice | None
    scale: float


class Model(Protocol):
    """A model as pure functions of its parameters."""

    @property
    def slices(self) -> Sequence[ParameterSlice]:
        """Slices of the parameters in a vector, in order: their `name`, `shape`, `offset` and `numel`.

        The names are torch's, as in `named_parameters()`. The slices are adjacent, and make up the vector.
        """
        ...

    @property
    def adapters(self) -> Sequence[AdapterSlices]:
        """Low-rank adapters: the modules with the parameters `lora_a` and `lora_b` in the vector."""
        ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        ...

    def forward(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Return outputs [B, K] for inputs [B, ...]; for classes, logits."""
        ...

    def embed(self, parameters: Parameters, x: Tensor) -> Embedding:
        """Return features, projections and scores for inputs [B, ...]; for decoupled models only."""
        ...

    def tensor(self, parameters: Parameters, name: str) -> Tensor:
        """Return one parameter by its full name ("prototypes"), in its own shape."""
        ...


class Objective(Protocol):
    """Loss that a method minimizes. `views`: number of augmented views of each sample in a batch, 1 or 2.

    With two views, x [2B, ...] contains all first views, followed by all second views of the same samples,
    and y [2B] contains the labels twice.

    An objective that is a mean over samples may define a method `each(model, parameters, x, y)`, which
    returns the loss of each sample [B]: weighted samples and unreduced losses need it.
    """

    @property
    def views(self) -> int: ...

    def __call__(self, model: Model, parameters: Parameters, x: Tensor, y: Tensor) -> Tensor:
        """Return the batch's loss, a scalar."""
        ...


class ClosedForm(Objective, Protocol):
    """Objective with closed-form gradients of its loss with respect to the outputs of N clients' models.

    Models whose layers have closed forms then need no autograd. A derived class may have another loss, so it
    does not use inherited closed forms. An objective that is a mean over samples also defines
    `output_losses(outputs, y)`, which returns the loss of each sample [N, B].
    """

    embeds: ClassVar[bool]
    """True if the objective calls `Model.embed` instead of `Model.forward`."""

    def output_gradients(self, outputs: ModelOutputs, y: Tensor) -> OutputGradients:
        """Return the gradient, with respect to the outputs, of B times each client's loss; y [N, B, ...].

        Called in `torch.inference_mode`, in which autograd is not available.
        """
        ...


def cross_entropy_gradient(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of B times the mean cross-entropy of scores [N, K, B]: softmax - one-hot labels."""
    return scores.softmax(dim=1).scatter_(1, labels.unsqueeze(1), -1.0, reduce="add")
