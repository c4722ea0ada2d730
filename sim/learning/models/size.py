"""Size of a model before it is built."""

from dataclasses import dataclass
from typing import Protocol


class ModelProperties(Protocol):
    """Properties of a model for checks; an `Architecture` and a `ModelSize` have them."""

    @property
    def key(self) -> str:
        """Text that is equal for equal models of a run."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @property
    def numel(self) -> int:
        """Number of parameters, P."""

    @property
    def training_flops_per_sample(self) -> int:
        """Floating-point operations of one sample's forward and backward pass."""

    @property
    def constant_bytes(self) -> int:
        """Memory of untrained values, with one copy for all clients."""

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Operations of a training step with an unknown number of FLOPs."""


@dataclass(frozen=True)
class ModelSize:
    """Size of a model, computed from its settings, equal to torch's count."""

    key: str
    input_shape: tuple[int, ...]
    numel: int
    training_flops_per_sample: int
    constant_bytes: int = 0
    uncounted: tuple[str, ...] = ()
