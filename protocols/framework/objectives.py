"""The types of objectives, which a protocol may minimise in place of the data's own loss.

An objective is a frozen dataclass (equal settings are equal objects, by which clients are grouped into one
batched call) and a pure function of the model's parameters and one batch. It runs inside
`torch.func.vmap(torch.func.grad(...))`: no control flow that depends on data, no boolean indexing; masks.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

Parameters = Tensor | Mapping[str, Tensor]
"""A model's parameters: one flat vector [P], or tensors by name."""


class Embedding(NamedTuple):
    """Outputs of a decoupled model for a batch: features z, their projections p (or None), class scores."""

    features: Tensor
    """z [B, d_z]."""
    projections: Tensor | None
    """p [B, d_p]; None if the model has no projection."""
    scores: Tensor
    """Logits [B, K]."""


class Model(Protocol):
    """A model as pure functions of its parameters."""

    def forward(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Inputs [B, ...] -> scores [B, K]."""
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
