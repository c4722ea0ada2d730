"""Interface of backends, and their common parts."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from sim.learning.architecture import Architecture
from sim.learning.objectives import Objective

Named = dict[str, Tensor]


class Backend(ABC):
    """Computation of one architecture and objective for the clients of a batch.

    flat: parameters [N, P]; x: samples [N, B, ...]; y: targets [N, B]; weights: None, or weights of the
    samples [N, B]; row n of each belongs to client n. No argument requires a gradient, so torch keeps no
    graph of the computation. With weights, the mean loss of a batch is the mean of weight times loss, for
    objectives with a method `each`. `limits`: clause that states the supported models. `uses_autograd`: False
    if training steps can be computed in `torch.inference_mode`.

    Losses and outputs are computed as in an evaluation: batch norms use their running statistics. For
    outputs, x may be [1, B, ...]: samples that all clients share.
    """

    limits: ClassVar[str] = "supports all models"
    uses_autograd: ClassVar[bool] = True

    def __init__(self, architecture: Architecture, objective: Objective) -> None:
        self.architecture = architecture
        self.objective = objective

    @classmethod
    def suits(cls, architecture: Architecture, objective: Objective) -> bool:
        """Return True if the backend can compute this model."""
        return True

    def is_exact(self, of: str) -> bool:
        """Return True if, on a CPU, no bit of a client's results depends on the other clients in the call.

        of: "training_gradients", "losses" or "outputs".
        """
        return False

    @abstractmethod
    def gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of each client's mean loss, [N, P], with batch norms in training mode.

        The gradient is 0 for the U untrained parameters. Also returns the values of the untrained parameters
        after the step, [N, U]; None if U = 0.
        """

    @abstractmethod
    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of each client over its batch, [N]."""

    @abstractmethod
    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, [N, B], for objectives with a method `each`."""

    @abstractmethod
    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Return the model outputs, for example class scores [N, B, K]."""

    def descend(
        self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor, weights: Tensor | None = None
    ) -> None:
        """Compute one step of plain SGD, in place; rate: one for all clients, or [N, 1]."""
        gradient, untrained = self.gradients(flat, x, y, weights)
        if isinstance(rate, float):
            flat.sub_(gradient, alpha=rate)
        else:
            flat.addcmul_(gradient, -rate)  # equal to the bit; with `value`, CUDA rounds once more
        self.architecture.set_untrained(flat, untrained)


def split_trained_parameters(architecture: Architecture, flat: Tensor) -> tuple[Named, Named]:
    """Return views of a vector's trained and untrained parameters."""
    trained = architecture.unflatten(flat)
    return trained, {part.name: trained.pop(part.name) for part in architecture.untrained}
