"""The engine of a run, and how it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from sim.errors import UserError
from sim.learning.engine import Engine
from sim.learning.engine.backends.autotune import fastest_backend, fastest_threads, training_step
from sim.learning.engine.backends.kernels import Kernel, choose_backend
from sim.learning.engine.graph.sampler import BatchSampler
from sim.run.live.compute import LearningSettings
from sim.run.setup.learning import Learning
from sim.scenario.scenario import Scenario


def require_precision(scenario: Scenario, device: torch.device) -> None:
    """Refuse with a UserError what the device does not have."""
    if scenario.engine.precision == "tf32" and device.type != "cuda":
        raise UserError(
            'engine.precision = "tf32": a number format of CUDA devices, and this run is on a CPU; must be '
            '"float32" or "bfloat16" there'
        )


def decided(scenario: Scenario, learning: Learning) -> Scenario:
    """The scenario with the backend and the threads that are taken, measured for "fastest".

    The threads are measured for that backend, which is the fastest with as many as torch uses now. A run of
    what the scenario says takes the same without measuring. UserError for a backend that the model has not.
    """
    backends = {name: _backend(scenario, learning, settings) for name, settings in learning.kinds.items()}
    threads = scenario.engine.threads
    if threads == "fastest":
        steps = [
            _training_step(scenario, learning, learning.kinds[name], backend)
            for name, backend in backends.items()
        ]
        threads = fastest_threads(steps, learning.data.train.x.device)
    # Different models may have different backends; "auto" names the same ones in every run on such a device.
    taken = set(backends.values())
    return with_engine(scenario, way=taken.pop() if len(taken) == 1 else "auto", threads=threads)


def _backend(scenario: Scenario, learning: Learning, settings: LearningSettings) -> str:
    """The backend of one model."""
    train = learning.data.train
    if scenario.engine.way != "fastest":
        return choose_backend(scenario.engine.way, settings.architecture, settings.objective, train.x.device)
    return fastest_backend(
        settings.architecture,
        settings.objective,
        settings.optimizer,
        _sampler(learning, settings),
        scenario.clients.count,
        scenario.engine.precision,
    )


def _training_step(
    scenario: Scenario, learning: Learning, settings: LearningSettings, backend: str
) -> Callable[[], object]:
    kernel = Kernel(settings.architecture, settings.objective, backend, scenario.engine.precision)
    return training_step(kernel, settings.optimizer, _sampler(learning, settings), scenario.clients.count)


def _sampler(learning: Learning, settings: LearningSettings) -> BatchSampler:
    """Batches like those that clients with these settings train on."""
    return BatchSampler(
        learning.data.train, settings.batch_size, settings.sampling, settings.augmentation, settings.views
    )


def make_engine(scenario: Scenario, learning: Learning) -> Engine:
    """The engine that a decided scenario asks for."""
    return Engine(
        learning.data,
        seed=scenario.run.seed,
        device=learning.data.train.x.device,
        backend=scenario.engine.way,
        precision=scenario.engine.precision,
        deferred=scenario.engine.deferred,
        pending_limit_bytes=scenario.engine.pending_limit,
    )


def with_engine(scenario: Scenario, **settings: str | int) -> Scenario:
    """The scenario with other, valid settings of its engine."""
    return replace(scenario, engine=scenario.engine.model_copy(update=settings))
