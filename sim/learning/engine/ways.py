"""The ways of computing a model, and which one is taken.

All ways compute the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sim.errors import UserError
from sim.learning.architecture import Architecture
from sim.learning.engine.dense import DenseChain
from sim.learning.engine.looped import Looped
from sim.learning.engine.vmapped import Vmapped
from sim.learning.engine.way import Way
from sim.learning.objectives import Objective

WAYS: Mapping[str, type[Way]] = {"dense": DenseChain, "vmap": Vmapped, "loop": Looped}


def possible_ways(architecture: Architecture, objective: Objective) -> tuple[str, ...]:
    """The ways in which this model can be computed."""
    return tuple(name for name, way in WAYS.items() if way.suits(architecture, objective))


def choose_way(way: str, architecture: Architecture, objective: Objective, device: torch.device) -> str:
    """Resolve "auto"; UserError for "dense" where the model is no dense chain, ValueError for another way.

    "auto": matrix products where they do; else, on a CPU, convolutions in a loop, to which they lose under
    vmap; all else gains from batching (docs/benchmarks.md). What is fastest when measured: `choice`.
    """
    if way not in (*WAYS, "auto"):
        raise ValueError(f"the way of computing is one of auto, {', '.join(WAYS)}, not {way!r}")
    possible = possible_ways(architecture, objective)
    if way == "dense" and way not in possible:
        raise UserError(
            f'engine.way = "dense": only for linear layers and ReLUs under cross-entropy, and this model is '
            f'{architecture.key}; use "auto", "fastest", "vmap" or "loop"'
        )
    if way != "auto":
        return way
    if "dense" in possible:
        return "dense"
    return "loop" if device.type == "cpu" and architecture.has_convolution else "vmap"
