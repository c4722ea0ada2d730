"""Parts of vectors and the mean features of classes: deferred, and against plain numpy and torch."""

import asyncio

import numpy as np
import pytest
import torch

from protocols.framework.vectors import mix
from sim.core.client_training import DeviceCompute
from sim.core.learning_settings import LearningSettings
from sim.learning.engine import Engine, Optimizer
from sim.learning.objectives import cross_entropy
from sim.world.devices.device import CostModel, Device
from tests.learning.engines import CLASSES, Jobs, client_data, generator, new_engine, own_samples
from tests.learning.sections import architecture
from tests.virtual_time import run_virtual

WIDTH = 6
OPTIONS = {"backbone": "small-mlp", "features": 5, "projection_hidden": 4, "parts": ("prototypes",)}
COUNTS = [7, 1100]  # more than are computed at once


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, WIDTH)).astype(np.float32)


def test_parts_are_columns() -> None:
    engine, values = new_engine(), rows(3)
    vectors = [engine.vector(torch.from_numpy(row)) for row in values]
    parts = [engine.part(vector, 2, 3) for vector in vectors]
    assert [part.shape for part in parts] == [(3,)] * 3 and all(part.pending for part in parts)
    np.testing.assert_array_equal(np.stack([part.numpy() for part in parts]), values[:, 2:5])
    changed = engine.with_part(vectors[0], 2, parts[1])
    np.testing.assert_array_equal(changed.numpy(), [*values[0, :2], *values[1, 2:5], values[0, 5]])
    np.testing.assert_array_equal(vectors[0].numpy(), values[0])  # immutable


def test_parts_of_what_is_not_computed_yet() -> None:
    """Training, a mix of parts, and training on what comes of it, in one flush; equal to step by step."""

    def chain(deferred: bool) -> tuple[Engine, np.ndarray]:
        engine = new_engine(deferred=deferred)
        jobs = Jobs(engine)
        trained = [jobs.train(client, jobs.initial(client))[0] for client in (0, 1)]
        mixed = mix([(0.25, engine.part(trained[0], 1, 4)), (0.75, engine.part(trained[1], 1, 4))])
        return engine, jobs.train(0, engine.with_part(trained[0], 1, mixed))[0].numpy()

    lazy, found = chain(True)
    eager, expected = chain(False)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert lazy.statistics.batches < eager.statistics.batches


async def decoupled_compute(client: int) -> DeviceCompute:
    engine = new_engine(client_data(COUNTS, shape=(4,)))
    model = architecture("decoupled", OPTIONS, (4,), CLASSES)
    settings = LearningSettings(model, cross_entropy, CLASSES, Optimizer(), 0.1, 4, "shuffled")
    initial = engine.vector(model.initial(generator(client)))
    device = Device(asyncio.get_running_loop())  # type: ignore[arg-type]
    return DeviceCompute(engine, settings, client, device, CostModel(step_time_s=0.25), initial)


@pytest.mark.parametrize("client", [0, 1])
def test_mean_features_of_each_class(client: int) -> None:
    async def measured() -> None:
        compute = await decoupled_compute(client)
        model = compute.settings.architecture
        params = compute.initial()
        means = await compute.class_features(params)
        x, y = own_samples(compute.engine.data, client)
        features = model.embed(params.tensor().cpu(), x).features
        assert compute.class_counts == {k: int((y == k).sum()) for k in y.unique().tolist()}
        assert means.keys() == compute.class_counts.keys()
        for label, mean in means.items():
            np.testing.assert_allclose(mean.numpy(), features[y == label].mean(dim=0), rtol=1e-4, atol=1e-6)
        # A pass forward costs a third of a training step for each batch of 4.
        assert asyncio.get_running_loop().time() == pytest.approx(COUNTS[client] / 4 * 0.25 / 3)

    run_virtual(measured())


def test_parts_by_name() -> None:
    async def looked_at() -> None:
        compute = await decoupled_compute(0)
        params = compute.initial()
        prototypes = params.numpy()[compute.settings.architecture.part("prototypes")].reshape(CLASSES, 5)
        np.testing.assert_array_equal(compute.part(params, "prototypes", None).numpy(), prototypes.ravel())
        np.testing.assert_array_equal(compute.part(params, "prototypes", 1).numpy(), prototypes[1])
        other = compute.with_part(params, "prototypes", compute.part(params, "prototypes", 0), 2)
        np.testing.assert_array_equal(compute.part(other, "prototypes", 2).numpy(), prototypes[0])
        with pytest.raises(ValueError, match="prototypes has the rows 0 to 2, not 3"):
            compute.part(params, "prototypes", CLASSES)
        with pytest.raises(ValueError, match="a part of 5 numbers cannot replace prototypes, which has 15"):
            compute.with_part(params, "prototypes", compute.part(params, "prototypes", 0), None)
        with pytest.raises(ValueError, match="projection"):
            compute.part(params, "projection", None)

    run_virtual(looked_at())
