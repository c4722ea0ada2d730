"""Random augmentation of images: crop and resize, color jitter, grayscale, blur and flip, in this order.

It applies torchvision's RandomResizedCrop, RandomApply([ColorJitter]), RandomGrayscale,
RandomApply([GaussianBlur]) and RandomHorizontalFlip (MAPL, appendix A.3, table 8) to the images of all
clients at once. Differences from torchvision:

- The random numbers of an image are a pure function of its 64-bit key (`batches.image_keys`).
- Images keep their size. A crop is only ever enlarged, where antialiasing makes no difference.
- The side of the blur's kernel is a tenth of the image's side (`kernel_size`), as in SimCLR; torchvision has
  no default.

As in torchvision, saturation, hue and grayscale do not change images with one channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from sim.kernel.random import splitmix64_array

CROP_TRIES = 10
"""Number of rectangles that are drawn until one fits in the image, before the centered crop is used."""

_NUMBERS = 2 * CROP_TRIES + 12  # drawn per image
_BLENDS = np.array(list(permutations(range(3))))  # brightness 0, contrast 1, saturation 2
_CONTRAST, _SATURATION = 1, 2
_GRAY = (0.2989, 0.587, 0.114)  # ITU-R 601-2, as torchvision rounds it
# On a CPU, images are processed in chunks that stay in the cache.
_CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images, and the scaling of their pixels.

    crop_scale: share of the image's area that is cropped. crop_ratio: width over height of the crop, drawn
    uniformly on a logarithmic scale. jitter: strengths for brightness, contrast, saturation and hue. The
    first three are multiplied by a factor uniform in [max(0, 1 - strength), 1 + strength]; the hue is turned
    by [-strength, strength] of the circle; all in random order, with `jitter_probability`. grayscale, blur,
    flip: probabilities. blur_sigma: range of the standard deviation, in pixels. mean, std: mean and standard
    deviation of each channel, or one for all channels; images contain (pixel - mean) / std, pixel in [0, 1].
    """

    crop_scale: tuple[float, float] = (0.2, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_probability: float = 0.8
    grayscale: float = 0.2
    blur: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    flip: float = 0.5
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, x: Tensor, keys: np.ndarray) -> Tensor:
        """Return changed images of x [M, C, H, W] float32, C = 1 or 3, a new tensor. keys: uint64 [M]."""
        changes = draw_change_parameters(self, keys, (x.shape[2], x.shape[3]))
        at_once = len(x) if x.device.type != "cpu" else max(1, _CHUNK_BYTES // (4 * x[:1].numel()))
        if len(x) <= at_once:
            return self._changed(x, changes)
        changed = torch.empty_like(x)
        for first in range(0, len(x), at_once):
            rows = slice(first, first + at_once)
            changed[rows] = self._changed(x[rows], changes[rows])
        return changed

    def _changed(self, x: Tensor, changes: ImageChangeParameters) -> Tensor:
        mean, std = (torch.tensor(each, device=x.device).view(-1, 1, 1) for each in (self.mean, self.std))
        return apply(changes, x, mean, std).sub_(mean).div_(std)


@dataclass(frozen=True)
class ImageChangeParameters:
    """Changes of each of M images; arrays of length M.

    top, left, height, width: the crop, in pixels. jittered: True if colors are jittered. factors [M, 4]:
    factors of brightness, contrast and saturation, and the turn of the hue. blends [M, 3]: the order of the
    first three (0, 1, 2). blends_before_hue: number of blends before the hue (0 to 3). grayscale, flipped:
    True if applied. sigma: standard deviation of the blur, 0 for no blur.
    """

    top: np.ndarray
    left: np.ndarray
    height: np.ndarray
    width: np.ndarray
    jittered: np.ndarray
    factors: np.ndarray
    blends: np.ndarray
    blends_before_hue: np.ndarray
    grayscale: np.ndarray
    sigma: np.ndarray
    flipped: np.ndarray

    def __getitem__(self, rows: slice | np.ndarray) -> ImageChangeParameters:
        return ImageChangeParameters(*[getattr(self, field.name)[rows] for field in fields(self)])


# Drawing --------------------------------------------------------------------------------------------------


def draw_change_parameters(
    augmentation: Augmentation, keys: np.ndarray, size: tuple[int, int]
) -> ImageChangeParameters:
    """Return the changes of images with these keys, uint64 [M], of this height and width."""
    bits = splitmix64_array(keys[:, None], np.arange(_NUMBERS, dtype=np.uint64))
    uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53  # in [0, 1)
    crop, rest = uniform[:, :-10], uniform[:, -10:].T
    top, left, height, width = _crops(augmentation, crop, size)
    strength = np.array(augmentation.jitter)
    low, high = np.maximum(0, 1 - strength), 1 + strength
    low[3], high[3] = -strength[3], strength[3]
    order = (24 * rest[5]).astype(np.int64)
    return ImageChangeParameters(
        top=top,
        left=left,
        height=height,
        width=width,
        jittered=rest[0] < augmentation.jitter_probability,
        factors=low + (high - low) * rest[1:5].T,
        blends=_BLENDS[order // 4],
        blends_before_hue=order % 4,
        grayscale=rest[6] < augmentation.grayscale,
        sigma=np.where(rest[7] < augmentation.blur, _scale_to_limits(rest[8], augmentation.blur_sigma), 0.0),
        flipped=rest[9] < augmentation.flip,
    )


def _scale_to_limits(uniform: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    return limits[0] + (limits[1] - limits[0]) * uniform


def _crops(augmentation: Augmentation, uniform: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Return top, left, height and width of rectangles, from uniform [M, 2 * CROP_TRIES + 2]."""
    area = size[0] * size[1] * _scale_to_limits(uniform[:, :CROP_TRIES], augmentation.crop_scale)
    logarithms = (math.log(augmentation.crop_ratio[0]), math.log(augmentation.crop_ratio[1]))
    ratio = np.exp(_scale_to_limits(uniform[:, CROP_TRIES:-2], logarithms))
    widths, heights = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (widths > 0) & (widths <= size[1]) & (heights > 0) & (heights <= size[0])
    one = (np.arange(len(uniform)), fits.argmax(axis=1))
    found = fits[one]
    whole = _largest_crop_size(size, augmentation.crop_ratio)
    height = np.where(found, heights[one], whole[0]).astype(np.int64)
    width = np.where(found, widths[one], whole[1]).astype(np.int64)
    spare = (size[0] - height, size[1] - width)
    top, left = ((uniform[:, axis - 2] * (spare[axis] + 1)).astype(np.int64) for axis in (0, 1))
    return np.where(found, top, spare[0] // 2), np.where(found, left, spare[1] // 2), height, width


def _largest_crop_size(size: tuple[int, int], ratio: tuple[float, float]) -> tuple[int, int]:
    """Return height and width of the largest rectangle of an allowed ratio."""
    height, width = size
    if width / height < ratio[0]:
        return round(width / ratio[0]), width
    if width / height > ratio[1]:
        return height, round(height * ratio[1])
    return size


# Changing -------------------------------------------------------------------------------------------------


def apply(
    changes: ImageChangeParameters, x: Tensor, mean: float | Tensor = 0.0, std: float | Tensor = 1.0
) -> Tensor:
    """Return images x [M, C, H, W] with these changes, as pixels in [0, 1], a new tensor.

    x = (pixel - mean) / std; mean and std broadcast to [C, H, W].
    """
    # Sorted by the hue's position among the blends: each step then changes a slice, in place.
    blends_before = np.where(changes.jittered, changes.blends_before_hue, 4)
    order = np.argsort(blends_before, kind="stable")
    blends_before, changes = blends_before[order], changes[order]
    rows = _crop_matrices(changes.top, changes.height, np.zeros(len(x), dtype=bool), x.shape[2], x.device)
    # Blur and color changes commute with a flip, which is free here.
    columns = _crop_matrices(changes.left, changes.width, changes.flipped, x.shape[3], x.device)
    image = _resampled(x.index_select(0, _to_device(order, x.device)), rows, columns)
    image.mul_(std).add_(mean).clamp_(0, 1)  # only rounding leaves the range
    _jitter(image, changes, blends_before)
    if x.shape[1] == 3:
        gray = _to_device(np.flatnonzero(changes.grayscale), x.device)
        image.index_copy_(0, gray, _gray(image.index_select(0, gray)).expand(-1, 3, -1, -1))
    blurred = np.flatnonzero(changes.sigma)
    if blurred.size:
        chosen = _to_device(blurred, x.device)
        sigma = _to_device(changes.sigma[blurred].astype(np.float32), x.device)
        down, across = (_blur_matrices(sigma, side) for side in x.shape[2:])
        image.index_copy_(0, chosen, _resampled(image.index_select(0, chosen), down, across))
    return image.index_select(0, _to_device(np.argsort(order), x.device))


def _to_device(values: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device, non_blocking=True)


def _resampled(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return x [M, C, H, W] with matrices [M, H, H] and [M, W, W] applied to its columns and its rows."""
    count, channels, height, width = x.shape
    across = torch.bmm(x.reshape(count, channels * height, width), columns.transpose(1, 2))
    repeated = rows.unsqueeze(1).expand(count, channels, height, height).reshape(-1, height, height)
    return torch.bmm(repeated, across.view(-1, height, width)).view(x.shape)


def _crop_matrices(
    first: np.ndarray, length: np.ndarray, flipped: np.ndarray, side: int, device: torch.device
) -> Tensor:
    """Return bilinear interpolations of pixels `first` to first + length - 1, [M, side, side]."""
    points = np.where(flipped[:, None], np.arange(side)[::-1], np.arange(side))
    # Center of each new pixel in the crop, clipped to its outer pixels.
    source = (points + 0.5) * (length[:, None] / side) - 0.5
    source = np.clip(source, 0, length[:, None] - 1) + first[:, None]
    position = _to_device(source.astype(np.float32), device).unsqueeze(2)
    return (1 - (position - torch.arange(side, device=device)).abs_()).clamp_(min=0)


def kernel_size(side: int) -> int:
    """Return the side of the blur kernel in pixels: a tenth of the image's side, but odd and at least 3."""
    return max(3, side // 10 | 1)


def _blur_matrices(sigma: Tensor, side: int) -> Tensor:
    """Return a Gaussian filter of kernel_size(side), with reflection at the borders, [M, side, side]."""
    distance = torch.arange(kernel_size(side) // 2 + 1, device=sigma.device)
    weights = torch.exp(-(distance**2) / (2 * sigma[:, None] ** 2))
    weights /= weights[:, :1] + 2 * weights[:, 1:].sum(dim=1, keepdim=True)
    total = torch.zeros((len(sigma), side, side), device=sigma.device)
    for weight, neighbours in zip(weights.T, _reflected_distance_counts(side, sigma.device), strict=True):
        total.addcmul_(weight[:, None, None], neighbours)
    return total


@lru_cache(maxsize=32)
def _reflected_distance_counts(side: int, device: torch.device) -> Tensor:
    """Return the number of times that pixel j is at distance d from pixel i, [d, i, j]; borders reflect."""
    radius, pixels = kernel_size(side) // 2, np.arange(side)
    counts = np.zeros((radius + 1, side, side), dtype=np.float32)
    for offset in range(-radius, radius + 1):
        there = np.abs(pixels + offset)
        there = np.where(there < side, there, 2 * (side - 1) - there)
        counts[abs(offset), pixels, there] += 1
    return torch.from_numpy(counts).to(device)


def _jitter(image: Tensor, changes: ImageChangeParameters, blends_before: np.ndarray) -> None:
    """Jitter colors in place. blends_before [M], ascending: number of blends before the hue, 4: no jitter."""
    upto = np.searchsorted(
        blends_before, [0, 1, 2, 3], side="right"
    ).tolist()  # images with at most 0 to 3 blends first
    jittered, channels = upto[3], image.shape[1]
    if not jittered:
        return
    matrix, to_mean = (_to_device(part, image.device) for part in _blends(changes[:jittered], channels))
    for turn in range(3):
        rows = slice(upto[turn], jittered)
        _blend(image[rows], matrix[rows, turn], to_mean[rows, turn])
    if channels == 3:
        _turn_hue(
            image[:jittered], _to_device(changes.factors[:jittered, 3].astype(np.float32), image.device)
        )
    for turn in range(3):
        rows = slice(upto[turn])
        _blend(image[rows], matrix[rows, turn], to_mean[rows, turn])


def _blends(changes: ImageChangeParameters, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the three blends of each image, in order, for `_blend`: [M, 3, C, C] and [M, 3, C].

    factor * pixel + (1 - factor) * black (brightness), mean gray (contrast) or the pixel's gray (saturation).
    """
    gray = np.array(_GRAY if channels == 3 else (1.0,))
    factor = np.take_along_axis(changes.factors, changes.blends, axis=1)
    if channels == 1:
        factor[changes.blends == _SATURATION] = 1
    to_gray = np.where(changes.blends == _SATURATION, 1 - factor, 0)[..., None, None] * gray
    matrix = factor[..., None, None] * np.eye(channels) + to_gray
    to_mean = np.where(changes.blends == _CONTRAST, 1 - factor, 0)[..., None] * gray
    return matrix.astype(np.float32), to_mean.astype(np.float32)


def _blend(image: Tensor, matrix: Tensor, to_mean: Tensor) -> None:
    """Multiply each pixel by matrix [M, C, C], and add to_mean [M, C] times the mean pixel, in place."""
    if len(image):
        pixels = image.flatten(2)
        constant = (pixels.mean(dim=2) * to_mean).sum(dim=1).view(-1, 1, 1)
        torch.clamp(torch.baddbmm(constant, matrix, pixels), 0, 1, out=pixels)


def _gray(image: Tensor) -> Tensor:
    """Return gray images [M, 1, H, W] of [M, 3, H, W]."""
    red, green, blue = image.unbind(dim=1)
    return (red * _GRAY[0]).add_(green, alpha=_GRAY[1]).add_(blue, alpha=_GRAY[2]).unsqueeze(1)


def _turn_hue(image: Tensor, turn: Tensor) -> None:
    """Turn the hue of images [M, 3, H, W] in place by `turn` [M], in shares of the circle.

    Value and saturation of HSV do not change. In sixths of the circle (0 red, 2 green, 4 blue) the hue is,
    modulo 6, 1 + (green + blue - red - min) / (max - min), with the sign of green - blue: one formula
    for the usual six cases.
    """
    red, green, blue = image.unbind(dim=1)
    value = torch.maximum(red, green)
    least = torch.minimum(red, green)
    torch.maximum(value, blue, out=value)
    torch.minimum(least, blue, out=least)
    chroma = value - least
    hue = (green + blue).sub_(red).sub_(least).div_(chroma.clamp(min=1e-12)).add_(1)
    hue.copysign_(green - blue).add_(6 * turn.view(-1, 1, 1))
    hue.sub_((hue / 6).floor_(), alpha=6)
    for channel, peak in ((0, 3), (1, 2), (2, 4)):
        # Share of the chroma that a channel lacks; for red, the complement.
        part = (hue - peak).abs_().sub_(1).clamp_(0, 1)
        if channel == 0:
            torch.addcmul(least, chroma, part, out=red)
        else:
            torch.addcmul(value, chroma, part, value=-1, out=(red, green, blue)[channel])
    image.clamp_(0, 1)
