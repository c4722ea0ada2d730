"""Loss and gradient of many clients at once: one model, computed by one backend with one precision."""

from __future__ import annotations

from torch import Tensor

from sim.learning.architecture import Architecture
from sim.learning.engine.backends.choice import BACKENDS
from sim.learning.engine.backends.precision import PRECISIONS, cast
from sim.learning.objectives import Objective


class Kernel:
    """One architecture and objective, computed by one `backend`; arguments as in `Backend`.

    All numbers that go in and come out are float32; `precision` is one of
    `precision.PRECISIONS` and says how products are computed between. ("tf32" is float32
    here; what allows it is process-wide, `tensor_cores`.)
    """

    def __init__(
        self, architecture: Architecture, objective: Objective, backend: str, precision: str = "float32"
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"the precision is one of {', '.join(PRECISIONS)}, not {precision!r}")
        self.architecture = architecture
        self.objective = objective
        self.backend = backend
        self.precision = precision
        self._backend = BACKENDS[backend](architecture, objective)

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Gradient of each client's mean loss over its batch, [N, P]; 0 for untrained parameters."""
        return self.training_gradients(flat, x, y, weights)[0]

    def training_gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients, and what the untrained parameters are after the step, see `Way.gradients`."""
        with cast(self.precision, flat.device):
            return self._backend.gradients(flat, x, y, weights)

    def descend(
        self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor, weights: Tensor | None = None
    ) -> None:
        """One step of plain SGD, in place; rate: one for all, or [N, 1]."""
        with cast(self.precision, flat.device):
            self._backend.descend(flat, x, y, rate, weights)

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of each client over its batch, [N]."""
        with cast(self.precision, flat.device):
            return self._backend.losses(flat, x, y).float()

    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Loss of each sample, [N, B]."""
        with cast(self.precision, flat.device):
            return self._backend.losses_of_each(flat, x, y).float()

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Model outputs, e.g. class scores [N, B, K]; x [N, B, ...], or [1, B, ...] where all share it."""
        with cast(self.precision, flat.device):
            return self._backend.outputs(flat, x).float()

    def features(self, params: Tensor, x: Tensor) -> Tensor:
        """Features z [B, d_z] of one client's decoupled model [P], in evaluation."""
        with cast(self.precision, params.device):
            return self.architecture.embed(params, x).features.float()
