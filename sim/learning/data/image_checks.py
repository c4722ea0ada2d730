"""What images and labels must be like before anything is computed with them; all else is refused in words."""

from dataclasses import dataclass

import numpy as np

from sim.files.input_file import InputFile


@dataclass(frozen=True)
class ImageKind:
    """What the images of a data set are like: (channels, height, width), classes, and how many there are."""

    shape: tuple[int, int, int]
    classes: int
    train: int
    test: int


def require_images(file: InputFile, images: object, kind: ImageKind) -> np.ndarray:
    """`images` if they are uint8 [n, channels, height, width] of the kind's shape; else UserError."""
    channels, height, width = kind.shape
    wanted = f"must be (images, {channels}, {height}, {width})"
    if not isinstance(images, np.ndarray):
        raise file.refusal(f"its images are {type(images).__name__}; must be an array of bytes (uint8)")
    if images.dtype != np.uint8:
        raise file.refusal(f"its images have the type {images.dtype}; must be bytes (uint8), from 0 to 255")
    if images.shape[1:] == (height, width, channels) and channels != width:
        raise file.refusal(
            f"its images have the shape {images.shape}, so the channels last; {wanted}, the channels first "
            "(images.transpose(0, 3, 1, 2))"
        )
    if images.shape[1:] != kind.shape:
        raise file.refusal(f"its images have the shape {images.shape}; {wanted}")
    if len(images) == 0:
        raise file.refusal("has no image; must have one at least")
    return images


def require_labels(file: InputFile, labels: object, kind: ImageKind, images: int, name: str) -> np.ndarray:
    """`labels` as int64 [images] if they are whole numbers from 0 to classes - 1; else UserError."""
    try:
        found = np.asarray(labels)
    except (ValueError, OverflowError):  # nested lists of different lengths
        raise file.refusal(f"are no list of numbers; must be {images} whole numbers", name) from None
    if found.dtype.kind not in "iu":
        raise file.refusal(f"have the type {found.dtype}; must be whole numbers", name)
    if found.ndim != 1:
        raise file.refusal(f"have the shape {found.shape}; must be ({images},), one for each image", name)
    if len(found) != images:
        raise file.refusal(
            f"are {len(found):,}, beside {images:,} images; must be as many (train and test files swapped?)",
            name,
        )
    bad = np.flatnonzero((found < 0) | (found >= kind.classes))
    if len(bad):
        raise file.refusal(
            f"number {bad[0]} is {found[bad[0]]}; must be from 0 to {kind.classes - 1}, as there are "
            f"{kind.classes} classes",
            name,
        )
    return found.astype(np.int64)


def require_parts(file: InputFile, train: np.ndarray, test: np.ndarray, kind: ImageKind) -> None:
    """UserError for train and test images in each other's place, and for a channel without any difference."""
    if (len(train), len(test)) == (kind.test, kind.train):
        raise file.refusal(
            f"has {len(train):,} training and {len(test):,} test images, the other way around than this data "
            "set; swap its train and test files"
        )
    for channel in range(kind.shape[0]):
        pixels = train[:, channel]
        if pixels.min() == pixels.max():
            raise file.refusal(
                f"channel {channel} is {pixels.flat[0]} in every pixel of all training images; must "
                "differ, or there is nothing to learn from"
            )
