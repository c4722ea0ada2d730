"""Augmentation: torchvision's operations on what was drawn, how it is drawn, and training on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from sim.learning import augmentation as module
from sim.learning.augmentation import Augmentation, Drawn, apply, draw, image_keys, kernel_size
from sim.learning.vision import import_torchvision

# Pixels are in [0, 1] and go through about ten roundings of 6e-8; chroma near 0 enlarges none of them.
TOLERANCE = 3e-6

IDENTITY = Augmentation((1.0, 1.0), (1.0, 1.0), (0.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0, (1.0, 1.0), 0.0)
STRONG = Augmentation(jitter=(0.8, 0.8, 0.8, 0.5), jitter_probability=0.9, grayscale=0.3)


def some_keys(count: int, step: int = 0, client: int = 5) -> np.ndarray:
    return image_keys(np.array([client], np.uint64), np.array([step]), count, 1)[0]


def pixels(count: int = 96, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    image = torch.rand((count, channels, height, width), generator=torch.Generator().manual_seed(1))
    image[0], image[1], image[2] = 0.0, 1.0, 0.5  # gray: without hue
    return image


def of_torchvision(image: Tensor, drawn: Drawn) -> Tensor:
    """What torchvision makes of one image [C, H, W]; `drawn` is about it alone."""
    import_torchvision()
    from torchvision.transforms.v2 import functional as f

    size = list(image.shape[1:])
    one = {name: values[0] for name, values in vars(drawn).items()}
    crop = [int(one[name]) for name in ("top", "left", "height", "width")]
    image = f.resized_crop(image, *crop, size=size, antialias=True)
    if one["jittered"]:
        adjust = (f.adjust_brightness, f.adjust_contrast, f.adjust_saturation, f.adjust_hue)
        for which in np.insert(one["blends"], one["hue_place"], 3):
            image = adjust[which](image, float(one["factors"][which]))
    if one["grayscale"]:
        image = f.rgb_to_grayscale(image, num_output_channels=image.shape[0])
    if one["sigma"]:
        image = f.gaussian_blur(image, [kernel_size(size[1]), kernel_size(size[0])], [float(one["sigma"])])
    return f.horizontal_flip(image) if one["flipped"] else image


def assert_as_torchvision(augmentation: Augmentation, x: Tensor) -> None:
    drawn = draw(augmentation, some_keys(len(x)), (x.shape[2], x.shape[3]))
    expected = [of_torchvision(x[n], drawn[n : n + 1]) for n in range(len(x))]
    assert not torch.allclose(torch.stack(expected), x, atol=1e-3), "something is done"
    torch.testing.assert_close(apply(drawn, x), torch.stack(expected), rtol=0, atol=TOLERANCE)


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
    assert_as_torchvision(ALONE[operation], pixels())


@pytest.mark.parametrize("augmentation", [Augmentation(), STRONG])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 24, 41), (3, 64, 50)])
def test_all_together_are_torchvisions(augmentation: Augmentation, shape: tuple[int, int, int]) -> None:
    assert_as_torchvision(augmentation, pixels(60, *shape))


@pytest.mark.parametrize("operation", ["saturation", "hue", "grayscale"])
def test_one_channel_has_no_colours_to_change(operation: str) -> None:
    x = pixels(channels=1)
    assert torch.equal(apply(draw(ALONE[operation], some_keys(len(x)), (32, 32)), x), x)


def test_without_any_change_images_stay_exactly_as_they_are() -> None:
    x = pixels()
    assert torch.equal(IDENTITY(x, some_keys(len(x))), x)


def test_stored_images_are_scaled_to_pixels_and_back() -> None:
    x, keys = pixels(40), some_keys(40)
    mean, std = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
    middle, width = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
    stored = replace(STRONG, mean=mean, std=std)((x - middle) / width, keys)
    torch.testing.assert_close(stored * width + middle, STRONG(x, keys), rtol=0, atol=TOLERANCE)


def test_what_is_no_image_is_refused() -> None:
    for shape in [(4, 64), (4, 2, 8, 8), (4, 3, 1, 8)]:
        with pytest.raises(ValueError, match=r"images are \[M, 1 or 3"):
            Augmentation()(torch.zeros(shape), some_keys(4))


# --- what is drawn ---


def test_drawn_numbers_have_their_ranges_and_frequencies() -> None:
    count = 20_000
    drawn = draw(Augmentation(), some_keys(count), (32, 32))
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
    orders = np.unique(np.column_stack([drawn.blends, drawn.hue_place]), axis=0, return_counts=True)[1]
    assert len(orders) == 24
    assert np.abs(orders / count - 1 / 24).max() < 5 * np.sqrt(1 / 24 / count)


def assert_uniform(values: np.ndarray, low: float, high: float) -> None:
    assert low <= values.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < values.max() <= high
    assert values.mean() == pytest.approx((low + high) / 2, abs=4 * (high - low) / np.sqrt(12 * len(values)))


def test_factors_are_not_negative() -> None:
    drawn = draw(replace(IDENTITY, jitter=(2.0, 2.0, 2.0, 0.5)), some_keys(5000), (32, 32))
    for which in range(3):
        assert_uniform(drawn.factors[:, which], 0.0, 3.0)


@pytest.mark.parametrize("size", [(32, 32), (28, 40)])
def test_crops_lie_within_the_image_and_have_the_areas_and_ratios(size: tuple[int, int]) -> None:
    drawn = draw(Augmentation(), some_keys(20_000), size)
    assert drawn.top.min() == drawn.left.min() == 0
    assert (drawn.top + drawn.height).max() == size[0]
    assert (drawn.left + drawn.width).max() == size[1]
    area = drawn.height * drawn.width / (size[0] * size[1])
    # Sides are rounded to pixels, which moves areas and ratios by some percent.
    assert 0.17 < area.min() < 0.23
    assert area.max() > 0.95
    ratio = drawn.width / drawn.height
    assert 0.69 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.46
    # A corner is uniform among the places that are left: the middle of all crops is the image's.
    spare = size[0] - drawn.height
    assert (drawn.top[spare > 0] / spare[spare > 0]).mean() == pytest.approx(0.5, abs=0.01)


def test_where_no_rectangle_fits_the_middle_is_taken_at_the_nearest_ratio() -> None:
    wide = draw(replace(IDENTITY, crop_ratio=(0.5, 2.0)), some_keys(3), (10, 40))
    assert (wide.top[0], wide.left[0], wide.height[0], wide.width[0]) == (0, 10, 10, 20)
    tall = draw(replace(IDENTITY, crop_ratio=(0.5, 2.0)), some_keys(3), (40, 10))
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
    torch.testing.assert_close(one_by_one, together, rtol=0, atol=TOLERANCE)
    backwards = STRONG(x.flip(0), keys[::-1].copy()).flip(0)
    torch.testing.assert_close(backwards, together, rtol=0, atol=TOLERANCE)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7 * 4 * x[0].numel())
    torch.testing.assert_close(STRONG(x, keys), together, rtol=0, atol=TOLERANCE)
