"""Loss and gradient of many clients at once: one model, one backend, one precision.

All backends compute the same values up to rounding.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine.backends.backend import Backend
from sim.learning.engine.backends.dense import Dense
from sim.learning.engine.backends.looped import Looped
from sim.learning.engine.backends.precision import autocast_context
from sim.learning.engine.backends.vmapped import Vmapped
from sim.learning.engine.memory import peak_bytes_of
from sim.learning.objectives import Objective, objective_name

BACKENDS: Mapping[str, type[Backend]] = {"dense": Dense, "vmap": Vmapped, "loop": Looped}

Computed = Literal["training_gradients", "losses", "outputs"]
"""Result of a `ModelKernel` for a batch."""


def possible_backends(architecture: Architecture, objective: Objective) -> tuple[str, ...]:
    """Return the backends that can compute this model."""
    return tuple(name for name, backend in BACKENDS.items() if backend.suits(architecture, objective))


def choose_backend(
    backend: str, architecture: Architecture, objective: Objective, device: torch.device
) -> str:
    """Return `backend`, or the choice of "auto". Raises UserError if `backend` cannot compute the model.

    "auto" chooses "dense" if that backend can compute the model. Otherwise it chooses "loop" for models with
    recurrent layers, and on a CPU also for models with convolutions, which are slower under vmap; for all
    other models it chooses "vmap" (docs/benchmarks.md). `autotune` measures which backend is the fastest.
    """
    possible = possible_backends(architecture, objective)
    if backend != "auto":
        if backend not in possible:
            allowed = ", ".join(f'"{way}"' for way in ("auto", "fastest", *possible[:-1]))
            raise UserError(
                f'engine.way = "{backend}" {BACKENDS[backend].limits}, but the model is {architecture.key} '
                f'and the loss is {objective_name(objective)}; use {allowed} or "{possible[-1]}"'
            )
        return backend
    if "dense" in possible:
        return "dense"
    in_loop = architecture.is_recurrent or (device.type == "cpu" and architecture.has_convolution)
    return "loop" if in_loop else "vmap"


class ModelKernel:
    """One architecture and objective, computed by one `backend`; arguments as in `Backend`.

    All inputs and outputs are float32; `precision` is one of `PRECISIONS`, the precision of products in
    between. ("tf32" is float32 here; `tensor_cores` sets it for the whole process.) micro_batch: number of
    samples of a batch that are computed at once, for models without untrained parameters; None for all.
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

    def step_context(self) -> AbstractContextManager[object]:
        """Return the context for a training step or a gradient.

        If the backend needs no autograd, torch does not prepare for it, which takes a sixth of the time of
        small operations. Tensors made inside cannot be used by autograd, and cannot be changed outside.
        """
        return nullcontext() if self._backend.uses_autograd else torch.inference_mode()

    def is_exact(self, of: Computed) -> bool:
        """Return True if no bit of a client's results depends on the other clients in the call."""
        return self._backend.is_exact(of) and self.precision != "bfloat16"

    def bytes_made(self, of: Computed, samples: int, *like: Tensor) -> int:
        """Return the estimated peak memory of a call, in bytes per client.

        samples: number of samples in a client's batch. like: x, and y if the call takes it, [n, ...].
        """
        if of == "training_gradients" and self.micro_batch is not None:
            samples = min(samples, 2 * self.micro_batch)  # later parts need as much as the second one
        shapes = [(2, samples, *each.shape[1:]) for each in like]  # one client would not be vmapped
        if (identity := (of, *shapes)) not in self._made:
            flat = torch.empty((2, self.architecture.numel), device="meta")
            batch = [each.new_empty(shape, device="meta") for each, shape in zip(like, shapes, strict=True)]
            self._made[identity] = peak_bytes_of(partial(getattr(self, of), flat, *batch)) // 2
        return self._made[identity]

    def gradients(self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the gradient of each client's mean loss, [N, P]; 0 for untrained parameters."""
        return self.training_gradients(flat, x, y, weights)[0]

    def training_gradients(
        self, flat: Tensor, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients, and the untrained parameters after the step, see `Backend.gradients`."""
        with autocast_context(self.precision, flat.device):
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
        """Compute one step of plain SGD, in place; rate: one for all clients, or [N, 1]."""
        if self._pieces(x) is None:
            with autocast_context(self.precision, flat.device):
                self._backend.descend(flat, x, y, rate, weights)
        else:
            flat.sub_(self.gradients(flat, x, y, weights).mul_(rate))

    def losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of each client over its batch, [N]."""
        if self._pieces(x) is not None:
            return self.losses_of_each(flat, x, y).mean(dim=1)
        with autocast_context(self.precision, flat.device):
            return self._backend.losses(flat, x, y).float()

    def losses_of_each(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, [N, B]."""
        with autocast_context(self.precision, flat.device):
            return self._of_each(self._backend.losses_of_each, flat, x, y).float()

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Return the outputs, for example class scores [N, B, K]; x [N, B, ...], or [1, B, ...] if shared."""
        with autocast_context(self.precision, flat.device):
            return self._of_each(self._backend.outputs, flat, x).float()

    def _of_each(self, compute: Callable[..., Tensor], flat: Tensor, *samples: Tensor) -> Tensor:
        """Return the results of each sample, [N, B, ...], computed part by part."""
        if (pieces := self._pieces(samples[0])) is None:
            return compute(flat, *samples)
        return torch.cat([compute(flat, *[each[:, piece] for each in samples]) for piece in pieces], dim=1)

    def _pieces(self, x: Tensor) -> list[slice] | None:
        """Return the parts in which the samples [N, B, ...] are computed; None for all at once."""
        size, count = self.micro_batch, x.shape[1]
        if size is None or count <= size:
            return None
        return [slice(first, first + size) for first in range(0, count, size)]

    def features(self, params: Tensor, x: Tensor) -> Tensor:
        """Return the features z [B, d_z] of one client's decoupled model [P], in evaluation mode."""
        with autocast_context(self.precision, params.device):
            return self.architecture.embed(params, x).features.float()
