"""Engine that records every submitted computation, for the lineage of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from sim.learning.engine.engine import Engine
from sim.learning.engine.graph.nodes import Coefficient, Factor, Slot, Terms
from sim.learning.engine.graph.operations import Mix, Operation, Train
from sim.learning.engine.graph.sampler import TrainJob
from sim.learning.engine.handles import Vector
from sim.learning.engine.snapshot import VectorId
from sim.learning.engine.vector_pool import VectorPool


class PendingFactor(NamedTuple):
    """Factor that is `number` times a scalar of the engine, named by the serial of its slot."""

    number: float
    serial: int


RecordedFactor = float | PendingFactor
RecordedTerms = tuple[tuple[VectorId, RecordedFactor], ...]
"""Linear combination: vectors with their factors."""


class Computation(NamedTuple):
    """Submitted computation, without references to its vectors, which would keep them in memory.

    factors: coefficients of the first inputs of a sum or of the start of a training job. strengths:
    coefficients of the proximal terms of a job.
    """

    time_s: float
    operation: Operation
    inputs: tuple[VectorId, ...]
    outputs: tuple[VectorId, ...]
    payload: Any
    factors: tuple[RecordedFactor, ...] = ()
    strengths: tuple[RecordedFactor, ...] = ()


class RecordedEngine(Engine):
    """Engine that appends each computation to `records`, in the order of submission.

    A replay submits the same computations as the run, and its vectors have the same serials.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.records: list[Computation] = []
        self.given: dict[VectorId, float] = {}
        """Vectors with known values, such as initial models, and the times at which they were given."""
        self.now: Callable[[], float] = _zero_time
        """Returns the virtual time in seconds."""
        super().__init__(*arguments, **settings)

    def vector(self, values: Tensor) -> Vector:
        vector = super().vector(values)
        self.given[slot_identity(vector.slot())] = self.now()
        return vector

    def submit(
        self, operation: Operation, inputs: tuple[Slot, ...], payload: object, pools: Sequence[VectorPool]
    ) -> list[Slot]:
        slots = super().submit(operation, inputs, payload, pools)
        factors: tuple[Factor, ...] = ()
        strengths: tuple[Factor, ...] = ()
        stated: Any = payload
        if isinstance(operation, Mix):
            stated, factors = None, stated
        elif isinstance(operation, Train):
            job, factors = stated
            stated, strengths = job._replace(strengths=()), job.strengths
        self.records.append(
            Computation(
                self.now(),
                operation,
                tuple(map(slot_identity, inputs)),
                tuple(map(slot_identity, slots)),
                stated,
                tuple(map(recorded_factor, factors)),
                tuple(map(recorded_factor, strengths)),
            )
        )
        return slots


def slot_identity(slot: Slot) -> VectorId:
    """Return the identity of a slot, which stays valid when the slot no longer exists."""
    return VectorId(slot.pool.width, slot.serial)


def recorded_terms(terms: Terms) -> RecordedTerms:
    """Return a linear combination without references to its slots."""
    return tuple([(slot_identity(slot), recorded_factor(factor)) for slot, factor in terms.items()])


def recorded_factor(factor: Factor) -> RecordedFactor:
    if isinstance(factor, Coefficient):
        return PendingFactor(factor.number, factor.scalar.serial)
    return factor


def training_steps(record: Computation) -> int:
    """Return the number of training steps of a record; a gradient counts as one."""
    return record.payload.steps if isinstance(record.payload, TrainJob) else 1


def _zero_time() -> float:
    return 0.0
