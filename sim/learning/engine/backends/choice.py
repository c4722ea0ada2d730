"""The backends that can compute a model, and which one is taken.

All backends compute the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine.backends.backend import Backend
from sim.learning.engine.backends.dense import DenseChain
from sim.learning.engine.backends.looped import Looped
from sim.learning.engine.backends.vmapped import Vmapped
from sim.learning.objectives import Objective

BACKENDS: Mapping[str, type[Backend]] = {"dense": DenseChain, "vmap": Vmapped, "loop": Looped}


def possible_backends(architecture: Architecture, objective: Objective) -> tuple[str, ...]:
    """The backends that can compute this model."""
    return tuple(name for name, backend in BACKENDS.items() if backend.suits(architecture, objective))


def choose_backend(
    backend: str, architecture: Architecture, objective: Objective, device: torch.device
) -> str:
    """Resolve "auto"; UserError for "dense" where the model is no dense chain, ValueError for another.

    "auto": matrix products where they do; else, on a CPU, convolutions in a loop, to which they lose under
    vmap; all else gains from batching (docs/benchmarks.md). What is fastest when measured: `choice`.
    """
    if backend not in (*BACKENDS, "auto"):
        raise ValueError(f"the way of computing is one of auto, {', '.join(BACKENDS)}, not {backend!r}")
    possible = possible_backends(architecture, objective)
    if backend == "dense" and backend not in possible:
        raise UserError(
            f'engine.way = "dense": only for linear layers and ReLUs under cross-entropy, and this model is '
            f'{architecture.key}; use "auto", "fastest", "vmap" or "loop"'
        )
    if backend != "auto":
        return backend
    if "dense" in possible:
        return "dense"
    return "loop" if device.type == "cpu" and architecture.has_convolution else "vmap"
