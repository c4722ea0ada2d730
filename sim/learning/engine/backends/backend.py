"""What each backend does, and what all of them share."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from sim.learning.architecture import Architecture
from sim.learning.objectives import Objective

Named = dict[str, Tensor]


class Backend(ABC):
    """The mathematics of one architecture and objective for the clients of a batch.

    flat: parameters [N, P]; x: samples [N, B, ...]; y: targets [N, B]; weights: None, or those of the samples
    [N, B]; row n of each is client n's. No argument requires a gradient, so that torch keeps no graph of what
    is done here. With weights the mean loss of a batch is the mean of weight times loss, for objectives that
    have `each`. `limits`: which models it suits, in words.

    Losses and outputs are those of evaluation: batch norms take their running statistics. For outputs, x may
    be [1, B, ...]: samples that all clients share.
    """

    limits: ClassVar[str] = "for all models"

    def __init__(self, architecture: Architecture, objective: Objective) -> None:
        self.architecture = architecture
        self.objective = objective

    @classmethod
    def suits(cls, architecture: Architecture, objective: Objective) -> bool:
        """Whether it can compute this model."""
        return True

    @abstractmethod
    def gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Gradient of each client's mean loss over its batch, [N, P], with batch norms in training mode.

        It is 0 for the U untrained parameters. Second, what these are after the step, [N, U]; None if U = 0.
        """

    @abstractmethod
    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of each client over its batch, [N]."""

    @abstractmethod
    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Loss of each sample, [N, B], for objectives that have `each`."""

    @abstractmethod
    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Model outputs, e.g. class scores [N, B, K]."""

    def descend(
        self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor, weights: Tensor | None = None
    ) -> None:
        """One step of plain SGD, in place; rate: one for all, or [N, 1]."""
        gradient, untrained = self.gradients(flat, x, y, weights)
        if isinstance(rate, float):
            flat.sub_(gradient, alpha=rate)
        else:
            flat.addcmul_(gradient, -rate)  # as above to the bit; with a `value` CUDA would round once more
        self.architecture.set_untrained(flat, untrained)


def divided(architecture: Architecture, flat: Tensor) -> tuple[Named, Named]:
    """Views of a vector's trained and of its untrained parameters."""
    trained = architecture.unflatten(flat)
    return trained, {part.name: trained.pop(part.name) for part in architecture.untrained}
