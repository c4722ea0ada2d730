"""The engine of a run, and how it computes."""

from __future__ import annotations

from dataclasses import replace

import torch

from sim.build.learning import Learning
from sim.compute import LearningSettings
from sim.errors import UserError
from sim.learning.engine import Engine
from sim.learning.engine.choice import fastest_way
from sim.learning.engine.draws import Draw
from sim.learning.engine.kernels import choose_way
from sim.scenario import Scenario


def require_precision(scenario: Scenario, device: torch.device) -> None:
    """Refuse with a UserError what the device does not have."""
    if scenario.engine.precision == "tf32" and device.type != "cuda":
        raise UserError(
            'engine.precision = "tf32": a number format of CUDA devices, and this run is on a CPU; must be '
            '"float32" or "bfloat16" there'
        )


def decided(scenario: Scenario, learning: Learning) -> Scenario:
    """The scenario with the way of computing that is taken, found by measuring for "fastest".

    A run of what it says takes the same way without measuring. UserError for a way that the model has not.
    """
    ways = {_way(scenario, learning, settings) for settings in learning.kinds.values()}
    # Different models may go different ways; "auto" names the same ones in every run on such a device.
    return with_engine(scenario, way=ways.pop() if len(ways) == 1 else "auto")


def _way(scenario: Scenario, learning: Learning, settings: LearningSettings) -> str:
    """The way in which one model is computed."""
    train = learning.data.train
    if scenario.engine.way != "fastest":
        return choose_way(scenario.engine.way, settings.architecture, settings.objective, train.x.device)
    return fastest_way(
        settings.architecture,
        settings.objective,
        settings.optimizer,
        Draw(train, settings.batch_size, settings.sampling, settings.augmentation, settings.views),
        scenario.clients.count,
        scenario.engine.precision,
    )


def make_engine(scenario: Scenario, learning: Learning) -> Engine:
    """The engine that a decided scenario asks for."""
    return Engine(
        learning.data,
        seed=scenario.run.seed,
        device=learning.data.train.x.device,
        way=scenario.engine.way,
        precision=scenario.engine.precision,
        deferred=scenario.engine.deferred,
        pending_limit_bytes=scenario.engine.pending_limit,
    )


def with_engine(scenario: Scenario, **settings: str) -> Scenario:
    """The scenario with other, valid settings of its engine."""
    return replace(scenario, engine=scenario.engine.model_copy(update=settings))
