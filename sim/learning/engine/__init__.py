"""Deferred, batched computation: pending jobs of all clients are computed together when a number is read."""

from sim.learning.engine.engine import Engine
from sim.learning.engine.graph.samples import ClientData
from sim.learning.engine.handles import Scalar, Vector
from sim.learning.engine.optimizers import Optimizer
from sim.learning.engine.vector_pool import checksums

__all__ = ["ClientData", "Engine", "Optimizer", "Scalar", "Vector", "checksums"]
