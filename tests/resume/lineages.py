"""Runs whose vectors are all kept, to compare models with the sum of their sources."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from sim.core.assembly import Classes
from sim.core.simulation import Simulation
from sim.learning.engine.affine import affine_map
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.nodes import Slot
from sim.learning.engine.graph.operations import Operation, Train
from sim.learning.engine.lineage import ColumnRange, Lineage, Source
from sim.learning.engine.recorded import (
    Computation,
    PendingFactor,
    RecordedEngine,
    RecordedFactor,
    slot_identity,
)
from sim.learning.engine.snapshot import VectorId
from sim.learning.engine.vector_pool import VectorPool
from sim.run.resume.lineage import EvaluatedModelsObserver, ModelAtTime, SimulationWithModels
from sim.run.setup.builder import build
from tests.simulation.worlds import load

ROUNDING = 3e-7  # of a float32 that is left when larger ones cancel
MODELS_TOLERANCE = 1e-5  # of the largest number of a model

CALLS: list[Tensor] = []
"""Gradients that were computed since the last submission, by `capturing`."""


class KeepingEngine(RecordedEngine):
    """Engine that keeps every vector of a run."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.kept: dict[VectorId, Slot] = {}
        self.gradients: dict[int, list[Tensor]] = {}
        """Gradient of each step of a job that was computed when it was submitted, by record."""
        super().__init__(*arguments, **settings)

    def vector(self, values: Any) -> Any:
        vector = super().vector(values)
        self.kept[slot_identity(vector.slot())] = vector.slot()
        return vector

    def submit(
        self, operation: Operation, inputs: tuple[Slot, ...], payload: object, pools: Sequence[VectorPool]
    ) -> list[Slot]:
        CALLS.clear()
        slots = super().submit(operation, inputs, payload, pools)
        self.gradients[len(self.records) - 1] = CALLS.copy()
        self.kept |= {slot_identity(slot): slot for slot in slots}
        return slots

    def values(self, of: VectorId) -> np.ndarray:
        """Numbers of a vector; 0 for the state at which an optimizer starts."""
        slot = self.kept.get(of)
        if slot is None:
            return np.zeros(of.width)
        return slot.pool.data[slot.row].double().cpu().numpy()

    def factors(self) -> dict[int, float]:
        """Values of all scalars, by serial."""
        return {of.serial: float(self.values(of)[0]) for of in self.kept if of.width == 1}


@contextmanager
def kept(folder: Path, text: str, *overrides: str) -> Iterator[Simulation]:
    """A simulation that ran to its end, and kept all of its vectors."""
    classes = Classes(engine=KeepingEngine, simulation=SimulationWithModels)
    with closing(build(load(folder, text, *overrides), device="cpu", classes=classes)) as simulation:
        cast(KeepingEngine, simulation.engine).now = simulation.loop.time
        simulation.run()
        assert [str(failure) for failure in simulation.supervisor.failures] == []
        simulation.engine.flush()
        yield simulation


@contextmanager
def capturing(folder: Path, text: str, *overrides: str) -> Iterator[Simulation]:
    """The same with the gradients of all jobs, which are computed one by one."""
    with pytest.MonkeyPatch.context() as patch:
        original = ModelKernel.training_gradients

        def captured(kernel: ModelKernel, *arguments: Any) -> Any:
            gradient, untrained = original(kernel, *arguments)
            CALLS.append(gradient[0].double().clone())
            return gradient, untrained

        patch.setattr(ModelKernel, "training_gradients", captured)
        with kept(folder, text, "engine.deferred=false", *overrides) as simulation:
            yield simulation


def require_sums(simulation: Simulation) -> int:
    """Each evaluated model is the sum of its sources times their coefficients; returns how many there are."""
    engine, observer = simulation.engine, simulation.observer
    assert isinstance(engine, KeepingEngine) and isinstance(observer, EvaluatedModelsObserver)
    moments = observer.moments
    lineage = Lineage(engine.records, engine.factors())
    built = [np.zeros(width_of(moment)) for moment in moments]
    for source in lineage.sources([moment.terms for moment in moments]):
        values = own_part(engine, source)[source.columns.source :][: source.columns.length]
        for number in np.flatnonzero(source.coefficients):
            first = source.columns.target
            built[number][first : first + source.columns.length] += source.coefficients[number] * values
    for moment, found in zip(moments, built, strict=True):
        expected = sum(value(engine, factor) * engine.values(of) for of, factor in moment.terms)
        scale = np.abs(expected).max()
        assert np.abs(found - expected).max() <= MODELS_TOLERANCE * scale, (moment.client, moment.time_s)
    return len(moments)


def own_part(engine: KeepingEngine, source: Source) -> np.ndarray:
    """Numbers of a source: what a job added itself, or a whole vector."""
    values = engine.values(source.owner)
    if source.record is None:
        return values
    record = engine.records[source.record]
    return (
        values - inherited(engine, record, source.output) if isinstance(record.operation, Train) else values
    )


def inherited(engine: KeepingEngine, record: Computation, output: int) -> np.ndarray:
    """Part of a job's result that comes from its start, its state, and its anchors."""
    operation, job = record.operation, record.payload
    assert isinstance(operation, Train)
    rates = job.learning_rate if isinstance(job.learning_rate, tuple) else [job.learning_rate] * job.steps
    strengths = [value(engine, strength) for strength in record.strengths]
    maps = affine_map(operation.optimizer, rates, job.steps_done, strengths)
    start = sum(
        value(engine, factor) * engine.values(of)
        for factor, of in zip(record.factors, record.inputs, strict=False)
    )
    if maps is None:
        return start if output == 0 else np.zeros(1)
    of_start, of_state, of_anchors = maps[output]
    whole = of_start * start
    rest = record.inputs[len(record.factors) :]
    if operation.optimizer.slots:
        whole = whole + of_state * engine.values(rest[0])
        rest = rest[1:]
    rest = rest[1:] if operation.weighted else rest
    for share, anchor in zip(of_anchors, rest, strict=False):
        whole = whole + share * engine.values(anchor)
    return whole


def value(engine: KeepingEngine, factor: RecordedFactor) -> float:
    if isinstance(factor, PendingFactor):
        return factor.number * float(engine.values(VectorId(1, factor.serial))[0])
    return factor


def width_of(moment: ModelAtTime) -> int:
    return moment.terms[0][0].width


def require_own_parts(simulation: Simulation) -> int:
    """What each job with pulls or momentum added is the damped sum of its gradients, by torch's optimizer."""
    engine, jobs = simulation.engine, 0
    assert isinstance(engine, KeepingEngine)
    for number, record in enumerate(engine.records):
        gradients = engine.gradients[number]
        if not isinstance(record.operation, Train) or not gradients:
            continue
        source = Source(record.outputs[0], number, 0, ColumnRange(0, 0, 0), np.ones(1))
        found, expected = own_part(engine, source), descended(engine, record, gradients)
        rounding = ROUNDING * np.abs(inherited(engine, record, 0)).max()
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max() + rounding, record.payload
        jobs += 1
    return jobs


def require_shares(simulation: Simulation) -> int:
    """The factors of a job's start and anchors add up to 1; returns the number of jobs with pulls.

    Jobs with weight decay or earlier momentum are left out: the sum of their factors is not 1.
    """
    engine, jobs = simulation.engine, 0
    assert isinstance(engine, KeepingEngine)
    for record in engine.records:
        if not isinstance(record.operation, Train) or not record.strengths:
            continue
        optimizer, job = record.operation.optimizer, record.payload
        rates = job.learning_rate if isinstance(job.learning_rate, tuple) else [job.learning_rate] * job.steps
        maps = affine_map(
            optimizer, rates, job.steps_done, [value(engine, strength) for strength in record.strengths]
        )
        assert maps is not None
        if not optimizer.weight_decay and not (optimizer.momentum and job.steps_done):
            of_params = maps[0]
            assert of_params.start + sum(of_params.anchors) == pytest.approx(1, abs=1e-7)
        jobs += 1
    return jobs


def descended(engine: KeepingEngine, record: Computation, gradients: Sequence[Tensor]) -> np.ndarray:
    """Parameters that torch reaches from 0 by these gradients, with the pulls towards 0."""
    operation, job = record.operation, record.payload
    assert isinstance(operation, Train)
    settings = operation.optimizer
    pull = sum(value(engine, strength) for strength in record.strengths)
    params = torch.nn.Parameter(torch.zeros_like(gradients[0]))
    optimizer = torch.optim.SGD(
        [params],
        lr=0.1,
        momentum=settings.momentum,
        dampening=settings.dampening,
        weight_decay=settings.weight_decay,
        nesterov=settings.nesterov,
    )
    if job.steps_done and settings.momentum:
        optimizer.state[params]["momentum_buffer"] = torch.zeros_like(params.data)
    rates = job.learning_rate if isinstance(job.learning_rate, tuple) else [job.learning_rate] * job.steps
    for rate, gradient in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        params.grad = gradient + pull * params.data
        optimizer.step()
    return params.detach().numpy()
