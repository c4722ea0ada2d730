"""Deferred, batched computation: pending jobs of all clients are computed together when a value is read."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names for editors and type checkers
    from sim.learning.engine.engine import Engine
    from sim.learning.engine.graph.samples import ClientData
    from sim.learning.engine.handles import Scalar, Vector
    from sim.learning.engine.optimizers import Optimizer
    from sim.learning.engine.vector_pool import checksums

__all__ = ["ClientData", "Engine", "Optimizer", "Scalar", "Vector", "checksums"]

_MODULES = {
    "ClientData": "graph.samples",
    "Engine": "engine",
    "Optimizer": "optimizers",
    "Scalar": "handles",
    "Vector": "handles",
    "checksums": "vector_pool",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: the planning of a run needs no torch."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
