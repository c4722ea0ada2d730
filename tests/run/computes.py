"""One simulated client's computing, and short ways to use it in tests."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import torch

from protocols.framework.compute import TrainRequest
from sim.core.client_training import DeviceCompute
from sim.core.learning_settings import LearningSettings
from sim.learning.engine import Engine, Optimizer, Vector
from sim.world.devices.device import CostModel, Device, Slowness
from tests.learning.engines import CLASSES, client_data, new_engine, objective_of, small
from tests.virtual_time import run_virtual

COUNTS = [10, 12, 3]
HELD_BACK = [5, 0, 2]
BATCH_SIZE = 4


def new_data_engine() -> Engine:
    """An engine on the samples of three clients; client 2 has fewer than a batch."""
    return new_engine(client_data(COUNTS, validation=HELD_BACK))


def new_compute(
    engine: Engine | None = None,
    client: int = 0,
    *,
    model: str = "logistic-regression",
    optimizer: Optimizer | None = None,
    cost: CostModel | None = None,
    factor: float = 1.0,
    sampling: str = "shuffled",
    views: int = 1,
) -> DeviceCompute:
    """The computing of one client on a device of its own, whose training step takes 0.25 s."""
    if engine is None:
        engine = new_data_engine()
    architecture = small(model)
    settings = LearningSettings(
        architecture,
        objective_of(model),
        0 if model == "point" else CLASSES,
        optimizer or Optimizer(),
        0.1,
        BATCH_SIZE,
        sampling,
        views=views,
    )
    initial = engine.vector(architecture.initial(torch.Generator().manual_seed(client)))
    device = Device(asyncio.get_running_loop(), Slowness(factor))
    return DeviceCompute(engine, settings, client, device, cost or CostModel(step_time_s=0.25), initial)


def now() -> float:
    return asyncio.get_running_loop().time()


def initial(compute: DeviceCompute) -> Vector:
    start = compute.initial()
    assert isinstance(start, Vector)
    return start


async def gradient(compute: DeviceCompute, at: Vector) -> Any:
    return await compute.gradient(at)


async def train(compute: DeviceCompute, start: Any = None, steps: int = 1, **options: Any) -> Any:
    return await compute.train(TrainRequest(initial(compute) if start is None else start, steps, **options))


def numbers_of(coroutine: Coroutine[Any, Any, np.ndarray]) -> np.ndarray:
    values = run_virtual(coroutine)
    assert values is not None
    return values
