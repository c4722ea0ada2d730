"""How large a model is: what is known of it before it is made."""

from dataclasses import dataclass
from typing import Protocol


class Sized(Protocol):
    """What a check needs of a model; an `Architecture` is one, and a `ModelSize`."""

    @property
    def key(self) -> str:
        """A text that is equal for equal models of a run."""

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
        """Memory of what nothing trains, of which there is one copy for all clients."""

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Operations of a training step of which nobody knows how many they are."""


@dataclass(frozen=True)
class ModelSize:
    """The size of a model that its settings tell, as torch would count it."""

    key: str
    input_shape: tuple[int, ...]
    numel: int
    training_flops_per_sample: int
    constant_bytes: int = 0
    uncounted: tuple[str, ...] = ()
