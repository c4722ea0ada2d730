"""Augmentation: torchvision's operations on what was drawn, how it is drawn, and training on it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from protocols.framework.compute import TrainRequest
from sim.core.client_training import DeviceCompute
from sim.core.learning_settings import LearningSettings
from sim.files.data_folder import DataFolder
from sim.learning import augmentation as module
from sim.learning.augmentation import (
    Augmentation,
    ImageChangeParameters,
    apply,
    draw_change_parameters,
    kernel_size,
)
from sim.learning.engine import ClientData, Engine, Optimizer
from sim.learning.engine.graph.batches import image_keys
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob, TrainJob
from sim.learning.objectives import cross_entropy
from sim.learning.vision import import_torchvision
from sim.run.setup.learning import load_learning
from sim.run.setup.plan import plan_run
from sim.scenario.scenario import load_scenario
from sim.world.devices.device import CostModel, Device, Slowness
from tests.learning.engines import CLASSES, SHAPES, client_data, new_engine, small
from tests.learning.test_datasets import put_idx_files
from tests.run.computes import initial, new_compute, now
from tests.scenario.texts import SMALL, changed, write
from tests.virtual_time import run_virtual

# Of pixels in [0, 1], for one operation. Factors up to 1.8, one after the other, enlarge what is rounded
# before them: of all operations together torchvision's own result is 1e-5 away from that in double precision.
TOLERANCE = 3e-6
TOLERANCE_OF_ALL = 3e-5

IDENTITY = Augmentation((1.0, 1.0), (1.0, 1.0), (0.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0, (1.0, 1.0), 0.0)
STRONG = Augmentation(jitter=(0.8, 0.8, 0.8, 0.5), jitter_probability=0.9, grayscale=0.3)


def some_keys(count: int, step: int = 0, client: int = 5) -> np.ndarray:
    return image_keys(np.array([client], np.uint64), np.array([step]), count, 1)[0]


def pixels(count: int = 96, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    image = torch.rand((count, channels, height, width), generator=torch.Generator().manual_seed(1))
    image[0], image[1], image[2] = 0.0, 1.0, 0.5  # gray: without hue
    return image


def of_torchvision(image: Tensor, drawn: ImageChangeParameters) -> Tensor:
    """What torchvision makes of one image [C, H, W]; `drawn` is about it alone."""
    import_torchvision()
    from torchvision.transforms.v2 import functional as f

    size = list(image.shape[1:])
    one = {name: values[0] for name, values in vars(drawn).items()}
    crop = [int(one[name]) for name in ("top", "left", "height", "width")]
    image = f.resized_crop(image, *crop, size=size, antialias=True)
    if one["jittered"]:
        adjust = (f.adjust_brightness, f.adjust_contrast, f.adjust_saturation, f.adjust_hue)
        for which in np.insert(one["blends"], one["blends_before_hue"], 3):
            image = adjust[which](image, float(one["factors"][which]))
    if one["grayscale"]:
        image = f.rgb_to_grayscale(image, num_output_channels=image.shape[0])
    if one["sigma"]:
        image = f.gaussian_blur(image, [kernel_size(size[1]), kernel_size(size[0])], [float(one["sigma"])])
    return f.horizontal_flip(image) if one["flipped"] else image


def assert_as_torchvision(augmentation: Augmentation, x: Tensor, tolerance: float) -> None:
    drawn = draw_change_parameters(augmentation, some_keys(len(x)), (x.shape[2], x.shape[3]))
    expected = [of_torchvision(x[n], drawn[n : n + 1]) for n in range(len(x))]
    assert not torch.allclose(torch.stack(expected), x, atol=1e-3), "something is done"
    torch.testing.assert_close(apply(drawn, x), torch.stack(expected), rtol=0, atol=tolerance)


ALONE = {
    "crop": replace(IDENTITY, crop_scale=(0.05, 1.0), crop_ratio=(0.5, 2.0)),
    "brightness": replace(IDENTITY, jitter=(0.9, 0, 0, 0), jitter_probability=1.0),
    "contrast": replace(IDENTITY, jitter=(0, 0.9, 0, 0), jitter_probability=1.0),
    "saturation": replace(IDENTITY, jitter=(0, 0, 0.9, 0), jitter_probability=1.0),
    "hue": replace(IDENTITY, jitter=(0, 0, 0, 0.5), jitter_probability=1.0),
    "grayscale": replace(IDENTITY, grayscale=0.5),
    "blur": replace(IDENTITY, blur=0.7, blur_sigma=(0.1, 2.0)),
    "flip": replace(IDENTITY, flip=0.5),
}


@pytest.mark.parametrize("operation", ALONE)
def test_each_operation_is_torchvisions(operation: str) -> None:
    assert_as_torchvision(ALONE[operation], pixels(), TOLERANCE)


@pytest.mark.parametrize("augmentation", [Augmentation(), STRONG])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 24, 41), (3, 64, 50)])
def test_all_together_are_torchvisions(augmentation: Augmentation, shape: tuple[int, int, int]) -> None:
    assert_as_torchvision(augmentation, pixels(60, *shape), TOLERANCE_OF_ALL)


@pytest.mark.parametrize("operation", ["saturation", "hue", "grayscale"])
def test_one_channel_has_no_colours_to_change(operation: str) -> None:
    x = pixels(channels=1)
    assert torch.equal(apply(draw_change_parameters(ALONE[operation], some_keys(len(x)), (32, 32)), x), x)


def test_without_any_change_images_stay_exactly_as_they_are() -> None:
    x = pixels()
    assert torch.equal(IDENTITY(x, some_keys(len(x))), x)


def test_stored_images_are_scaled_to_pixels_and_back() -> None:
    x, keys = pixels(40), some_keys(40)
    mean, std = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
    middle, width = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
    stored = replace(STRONG, mean=mean, std=std)((x - middle) / width, keys)
    torch.testing.assert_close(stored * width + middle, STRONG(x, keys), rtol=0, atol=TOLERANCE_OF_ALL)


# --- what is drawn ---


def test_drawn_numbers_have_their_ranges_and_frequencies() -> None:
    count = 20_000
    drawn = draw_change_parameters(Augmentation(), some_keys(count), (32, 32))
    for values, probability in [
        (drawn.jittered, 0.8),
        (drawn.grayscale, 0.2),
        (drawn.sigma > 0, 0.5),
        (drawn.flipped, 0.5),
    ]:
        assert values.mean() == pytest.approx(probability, abs=4 * np.sqrt(0.25 / count))
    for which, (low, high) in enumerate([(0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1)]):
        assert_uniform(drawn.factors[:, which], low, high)
    assert_uniform(drawn.sigma[drawn.sigma > 0], 0.1, 2.0)
    orders = np.unique(np.column_stack([drawn.blends, drawn.blends_before_hue]), axis=0, return_counts=True)[
        1
    ]
    assert len(orders) == 24
    assert np.abs(orders / count - 1 / 24).max() < 5 * np.sqrt(1 / 24 / count)


def assert_uniform(values: np.ndarray, low: float, high: float) -> None:
    assert low <= values.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < values.max() <= high
    assert values.mean() == pytest.approx((low + high) / 2, abs=4 * (high - low) / np.sqrt(12 * len(values)))


def test_factors_are_not_negative() -> None:
    drawn = draw_change_parameters(replace(IDENTITY, jitter=(2.0, 2.0, 2.0, 0.5)), some_keys(5000), (32, 32))
    for which in range(3):
        assert_uniform(drawn.factors[:, which], 0.0, 3.0)


@pytest.mark.parametrize("size", [(32, 32), (28, 40)])
def test_crops_lie_within_the_image_and_have_the_areas_and_ratios(size: tuple[int, int]) -> None:
    drawn = draw_change_parameters(Augmentation(), some_keys(20_000), size)
    assert drawn.top.min() == drawn.left.min() == 0
    assert (drawn.top + drawn.height).max() == size[0]
    assert (drawn.left + drawn.width).max() == size[1]
    area = drawn.height * drawn.width / (size[0] * size[1])
    # Sides are rounded to pixels, which moves areas and ratios by some percent.
    assert 0.17 < area.min() < 0.23
    assert area.max() > 0.9
    ratio = drawn.width / drawn.height
    assert 0.69 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.46
    # A corner is uniform among the places that are left: the middle of all crops is the image's.
    spare = size[0] - drawn.height
    assert (drawn.top[spare > 0] / spare[spare > 0]).mean() == pytest.approx(0.5, abs=0.01)


def test_where_no_rectangle_fits_the_middle_is_taken_at_the_nearest_ratio() -> None:
    wide = draw_change_parameters(replace(IDENTITY, crop_ratio=(0.5, 2.0)), some_keys(3), (10, 40))
    assert (wide.top[0], wide.left[0], wide.height[0], wide.width[0]) == (0, 10, 10, 20)
    tall = draw_change_parameters(replace(IDENTITY, crop_ratio=(0.5, 2.0)), some_keys(3), (40, 10))
    assert (tall.top[0], tall.left[0], tall.height[0], tall.width[0]) == (10, 0, 20, 10)


def test_keys_differ_by_client_step_place_and_view_and_by_nothing_else() -> None:
    clients, steps = np.array([7, 7, 8], np.uint64), np.array([0, 1, 0])
    keys = image_keys(clients, steps, 4, 2)
    assert keys.shape == (3, 8)
    assert len(np.unique(keys)) == 24
    alone = image_keys(clients[1:2], steps[1:2], 2, 3)  # another batch size, and more views
    np.testing.assert_array_equal(alone.reshape(3, 2)[:2], keys[1].reshape(2, 4)[:, :2])


def test_an_image_does_not_depend_on_the_others_or_on_how_many_are_done_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, keys = pixels(50), some_keys(50)
    together = STRONG(x, keys)
    one_by_one = torch.cat([STRONG(x[n : n + 1], keys[n : n + 1]) for n in range(50)])
    torch.testing.assert_close(one_by_one, together, rtol=0, atol=TOLERANCE_OF_ALL)
    backwards = STRONG(x.flip(0), keys[::-1].copy()).flip(0)
    torch.testing.assert_close(backwards, together, rtol=0, atol=TOLERANCE_OF_ALL)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7 * 4 * x[0].numel())
    torch.testing.assert_close(STRONG(x, keys), together, rtol=0, atol=TOLERANCE_OF_ALL)


# --- training ---

COUNTS = [6, 9, 7]
BATCH = 4


def image_data(counts: list[int] = COUNTS) -> ClientData:
    return client_data(counts, shape=SHAPES["cnn"], validation=[2] * len(counts))


def samples(draw: BatchSampler, engine: Engine, client: int, step: int) -> tuple[Tensor, Tensor]:
    """One client's batch number `step`, for training."""
    job = GradientOrLossJob(client, engine.draw_key(client, "train"), step)
    x, y = draw.samples(draw.batches([job], 0, 1), 0, 1)
    return x[0].cpu(), y[0].cpu()


def trained(backend: str, clients: list[int], *, deferred: bool, augmentation: Augmentation | None) -> Tensor:
    """Three steps of each client with two views of each sample, submitted together: [clients, P]."""
    engine = new_engine(image_data(), backend=backend, deferred=deferred)
    model = small("cnn")
    draw = BatchSampler(engine.data.train, BATCH, "shuffled", augmentation, views=2)
    operation = engine.training(engine.kernel(model, cross_entropy), Optimizer(), draw)
    start = engine.vector(model.initial(torch.Generator().manual_seed(0)))
    jobs = [TrainJob(n, engine.draw_key(n, "train"), 5, 3, 0.1, 0, ()) for n in clients]
    return engine.rows([engine.train(operation, start, job)[0] for job in jobs])


def test_training_is_on_the_same_images_together_and_alone_and_in_every_way() -> None:
    together = trained("vmap", [0, 1, 2], deferred=True, augmentation=STRONG)
    plain = trained("vmap", [0, 1, 2], deferred=True, augmentation=None)
    assert (together - plain).abs().amax(dim=1).min() > 1e-3
    for backend, deferred in [("vmap", False), ("loop", True), ("loop", False)]:
        other = trained(backend, [0, 1, 2], deferred=deferred, augmentation=STRONG)
        torch.testing.assert_close(other, together, rtol=1e-3, atol=1e-5)
    without_the_others = trained("vmap", [1], deferred=True, augmentation=STRONG)
    torch.testing.assert_close(without_the_others, together[1:2], rtol=1e-3, atol=1e-5)


def test_a_step_is_one_on_what_the_draw_makes_of_its_batch() -> None:
    engine = new_engine(image_data())
    draw = BatchSampler(engine.data.train, BATCH, "shuffled", STRONG, views=2)
    model, objective = small("cnn"), cross_entropy
    start = model.initial(torch.Generator().manual_seed(0))
    expected = start.clone()
    for step in (5, 6, 7):
        x, y = samples(draw, engine, 2, step)
        flat = expected.requires_grad_()
        gradient = torch.autograd.grad(objective(model, flat, x, y), flat)[0]
        expected = (flat - 0.1 * gradient).detach()
    got = trained("loop", [0, 1, 2], deferred=True, augmentation=STRONG)[2]
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-5)


def test_views_follow_each_other_and_differ_only_by_augmentation() -> None:
    engine = new_engine(image_data())
    plain, y = samples(BatchSampler(engine.data.train, BATCH, "shuffled"), engine, 1, 3)
    equal, labels = samples(BatchSampler(engine.data.train, BATCH, "shuffled", views=2), engine, 1, 3)
    assert torch.equal(equal, torch.cat([plain, plain]))
    assert torch.equal(labels, torch.cat([y, y]))
    both, labels = samples(BatchSampler(engine.data.train, BATCH, "shuffled", STRONG, 2), engine, 1, 3)
    assert torch.equal(labels, torch.cat([y, y]))
    one = samples(BatchSampler(engine.data.train, BATCH, "shuffled", STRONG), engine, 1, 3)[0]
    torch.testing.assert_close(both[:BATCH], one, rtol=0, atol=TOLERANCE_OF_ALL)
    assert (both[:BATCH] - both[BATCH:]).abs().amax(dim=(1, 2, 3)).min() > 0.01


def test_gradients_are_augmented_and_losses_are_not() -> None:
    async def check() -> None:
        engine = new_engine(image_data())
        model = small("cnn")
        settings = LearningSettings(
            model, cross_entropy, CLASSES, Optimizer(), 0.1, BATCH, "shuffled", augmentation=STRONG, views=2
        )
        at = engine.vector(model.initial(torch.Generator().manual_seed(0)))
        device = Device(asyncio.get_running_loop(), Slowness(1.0))
        computes = [
            DeviceCompute(engine, chosen, 0, device, CostModel(step_time_s=1.0), at)
            for chosen in (settings, replace(settings, augmentation=None, views=1))
        ]
        for on in ("batch", "train", "validation"):
            augmented, plain = [await compute.loss(at, on) for compute in computes]
            assert float(augmented) == pytest.approx(float(plain), rel=1e-5)
        augmented, plain = [await compute.gradient(at) for compute in computes]
        assert np.abs(augmented.numpy() - plain.numpy()).max() > 1e-3
        moved, _ = [await compute.train(TrainRequest(at, 2)) for compute in computes]
        alone = computes[0].train_alone(engine)
        assert alone is not None
        np.testing.assert_allclose(alone.numpy(), moved.numpy(), rtol=1e-4, atol=1e-6)

    run_virtual(check())


def test_each_view_costs_its_operations() -> None:
    async def seconds(cost: CostModel, views: int) -> tuple[float, float]:
        compute = new_compute(cost=cost, views=views)
        await compute.gradient(initial(compute))
        trained = now()
        await compute.loss(initial(compute), "train")
        return trained, now() - trained

    by_speed, by_step = CostModel(flops_per_s=1e6), CostModel(step_time_s=1.0)
    one, two = (run_virtual(seconds(by_speed, views)) for views in (1, 2))
    assert two == pytest.approx((2 * one[0], 2 * one[1]))
    assert run_virtual(seconds(by_step, 1)) == run_virtual(seconds(by_step, 2))


def test_a_scenario_s_augmentation_knows_how_images_are_stored(tmp_path: Path) -> None:
    put_idx_files(tmp_path / "MNIST" / "raw")
    text = changed(SMALL, 'name = "digits"', 'name = "mnist"').replace(
        "samples_per_client = 20", "samples_per_client = 2"
    )
    section = "batch_size = 2\n[training.augmentation]\nblur = 0.0\ncrop_scale = [0.5, 1.0]"
    scenario = load_scenario(write(tmp_path, changed(text, "batch_size = 4", section)))
    plan = plan_run(scenario, DataFolder(tmp_path))
    learning = load_learning(scenario, plan.learning, torch.device("cpu"))
    augmentation = learning.settings[0].augmentation
    assert augmentation is not None
    assert (augmentation.blur, augmentation.crop_scale, augmentation.flip) == (0.0, (0.5, 1.0), 0.5)
    stored = learning.data.train.x
    image = stored * augmentation.std[0] + augmentation.mean[0]
    torch.testing.assert_close(image.amin(), torch.tensor(0.0))
    torch.testing.assert_close(image.amax(), torch.tensor(1.0))
    hash(augmentation)
