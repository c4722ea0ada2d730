"""Loss and gradient of many clients at once: one model, computed by one backend with one precision.

All backends compute the same numbers up to rounding.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine.backends.backend import Backend
from sim.learning.engine.backends.dense import Dense
from sim.learning.engine.backends.looped import Looped
from sim.learning.engine.backends.precision import cast
from sim.learning.engine.backends.vmapped import Vmapped
from sim.learning.engine.memory import bytes_made
from sim.learning.objectives import Objective

BACKENDS: Mapping[str, type[Backend]] = {"dense": Dense, "vmap": Vmapped, "loop": Looped}

Computed = Literal["training_gradients", "losses", "outputs"]
"""What a `Kernel` computes of a batch."""


def possible_backends(architecture: Architecture, objective: Objective) -> tuple[str, ...]:
    """The backends that can compute this model."""
    return tuple(name for name, backend in BACKENDS.items() if backend.suits(architecture, objective))


def choose_backend(
    backend: str, architecture: Architecture, objective: Objective, device: torch.device
) -> str:
    """Resolve "auto"; UserError for a backend that cannot compute the model.

    "auto": matrix products where they do; else recurrent layers in a loop, and on a CPU convolutions, which
    lose to it under vmap; all else gains from batching (docs/benchmarks.md). What is fastest when measured:
    `autotune`.
    """
    possible = possible_backends(architecture, objective)
    if backend != "auto":
        if backend not in possible:
            allowed = ", ".join(f'"{way}"' for way in ("auto", "fastest", *possible[:-1]))
            raise UserError(
                f'engine.way = "{backend}": {BACKENDS[backend].limits}, and this model is '
                f'{architecture.key}; use {allowed} or "{possible[-1]}"'
            )
        return backend
    if "dense" in possible:
        return "dense"
    in_loop = architecture.is_recurrent or (device.type == "cpu" and architecture.has_convolution)
    return "loop" if in_loop else "vmap"


class Kernel:
    """One architecture and objective, computed by one `backend`; arguments as in `Backend`.

    All numbers that go in and come out are float32; `precision` is one of `PRECISIONS` and says how products
    are computed between. ("tf32" is float32 here; what allows it is process-wide, `tensor_cores`.)
    micro_batch: how many samples of a batch are computed at once, for models without untrained parameters;
    None for all.
    """

    def __init__(
        self,
        architecture: Architecture,
        objective: Objective,
        backend: str,
        precision: str = "float32",
        micro_batch: int | None = None,
    ) -> None:
        self.architecture = architecture
        self.objective = objective
        self.backend = backend
        self.precision = precision
        self.micro_batch = micro_batch
        self._backend = BACKENDS[backend](architecture, objective)
        self._made: dict[tuple[object, ...], int] = {}

    def bytes_made(self, of: Computed, samples: int, *like: Tensor) -> int:
        """The most memory for what a call makes at a time, for each client, in bytes, counted without a call.

        samples: a client's batch has so many. like: x, and y if it takes them, [n, ...].
        """
        if of == "training_gradients" and self.micro_batch is not None:
            samples = min(samples, 2 * self.micro_batch)  # all parts but the first take as much as the second
        shapes = [(2, samples, *each.shape[1:]) for each in like]  # of two clients: one alone is not vmapped
        if (identity := (of, *shapes)) not in self._made:
            flat = torch.empty((2, self.architecture.numel), device="meta")
            batch = [each.new_empty(shape, device="meta") for each, shape in zip(like, shapes, strict=True)]
            self._made[identity] = bytes_made(partial(getattr(self, of), flat, *batch)) // 2
        return self._made[identity]

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Gradient of each client's mean loss over its batch, [N, P]; 0 for untrained parameters."""
        return self.training_gradients(flat, x, y, weights)[0]

    def training_gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients, and what the untrained parameters are after the step, see `Backend.gradients`."""
        with cast(self.precision, flat.device):
            if (pieces := self._pieces(x)) is None:
                return self._backend.gradients(flat, x, y, weights)
            total = torch.zeros_like(flat)
            for piece in pieces:
                of_piece = None if weights is None else weights[:, piece]
                gradient, _ = self._backend.gradients(flat, x[:, piece], y[:, piece], of_piece)
                total.add_(gradient, alpha=y[:, piece].shape[1] / y.shape[1])
            return total, None

    def descend(
        self, flat: Tensor, x: Tensor, y: Tensor, rate: float | Tensor, weights: Tensor | None = None
    ) -> None:
        """One step of plain SGD, in place; rate: one for all, or [N, 1]."""
        if self._pieces(x) is None:
            with cast(self.precision, flat.device):
                self._backend.descend(flat, x, y, rate, weights)
        else:
            flat.sub_(self.gradients(flat, x, y, weights).mul_(rate))

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of each client over its batch, [N]."""
        if self._pieces(x) is not None:
            return self.losses_of_each(flat, x, y).mean(dim=1)
        with cast(self.precision, flat.device):
            return self._backend.losses(flat, x, y).float()

    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Loss of each sample, [N, B]."""
        with cast(self.precision, flat.device):
            return self._of_each(self._backend.losses_of_each, flat, x, y).float()

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Model outputs, e.g. class scores [N, B, K]; x [N, B, ...], or [1, B, ...] where all share it."""
        with cast(self.precision, flat.device):
            return self._of_each(self._backend.outputs, flat, x).float()

    def _of_each(self, compute: Callable[..., Tensor], flat: Tensor, *samples: Tensor) -> Tensor:
        """What is computed of each sample, [N, B, ...], part by part."""
        if (pieces := self._pieces(samples[0])) is None:
            return compute(flat, *samples)
        return torch.cat([compute(flat, *[each[:, piece] for each in samples]) for piece in pieces], dim=1)

    def _pieces(self, x: Tensor) -> list[slice] | None:
        """The parts in which the samples [N, B, ...] are computed; None for all at once."""
        size, count = self.micro_batch, x.shape[1]
        if size is None or count <= size:
            return None
        return [slice(first, first + size) for first in range(0, count, size)]

    def features(self, params: Tensor, x: Tensor) -> Tensor:
        """Features z [B, d_z] of one client's decoupled model [P], in evaluation."""
        with cast(self.precision, params.device):
            return self.architecture.embed(params, x).features.float()
