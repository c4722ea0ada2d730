"""MNIST and what looks like it: idx files, plain or gzipped, as torchvision lays them."""

import math
from typing import Literal

import numpy as np

from sim.files.input_file import InputFile
from sim.learning.data.image_checks import ImageKind, require_images, require_labels
from sim.learning.data.images import ImageArrays, ImageData, ImageFolder, Layout

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _read_idx(file: InputFile, holds: str, axes: int) -> np.ndarray:
    """An idx file of unsigned bytes: 0, 0, 8, number of axes; big-endian uint32 lengths; the bytes."""
    content = file.content()
    if content[:3] != b"\0\0\x08":
        raise file.refusal(
            f"begins with the bytes {content[:3].hex(' ')}; must be 00 00 08, an idx file of unsigned bytes"
        )
    if content[3:4] != bytes([axes]):
        raise file.refusal(
            f"has {content[3] if len(content) > 3 else 'no'} axes; must have {axes}, as it holds {holds} "
            "(image and label files swapped?)"
        )
    begin = 4 + 4 * axes
    if len(content) < begin:
        raise file.refusal(f"is cut off in its head: has {len(content)} bytes, must have {begin} at least")
    shape = tuple(int(length) for length in np.frombuffer(content, ">u4", count=axes, offset=4))
    if len(content) - begin != math.prod(shape):
        raise file.refusal(
            f"has {len(content) - begin:,} bytes behind its head; must have {math.prod(shape):,}, as that "
            f"says {shape} (cut off?)"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def _read_folder(folder: ImageFolder, kind: ImageKind) -> ImageArrays:
    parts = []
    for images_name, labels_name in (_FILES[:2], _FILES[2:]):
        images_file, labels_file = folder.file(images_name), folder.file(labels_name)
        images = require_images(images_file, _read_idx(images_file, "images", 3)[:, None], kind)
        labels = _read_idx(labels_file, "labels", 1)
        parts += [images, require_labels(labels_file, labels, kind, len(images), "labels")]
    return ImageArrays(*parts)


def _layouts(*folders: str) -> tuple[Layout, ...]:
    return tuple(Layout(folder, _FILES, _read_folder) for folder in folders)


class FashionMnist(ImageData):
    """70,000 grey pictures of clothes, 28x28 pixels, 10 classes."""

    classes = 10
    input_shape = (1, 28, 28)
    kind = ImageKind(input_shape, classes, 60_000, 10_000)
    layouts = _layouts("FashionMNIST/raw", "fashion-mnist/FashionMNIST/raw")
    torchvision = "FashionMNIST"

    name: Literal["fashion-mnist"]
    """The data set."""


class Mnist(ImageData):
    """70,000 handwritten digits, 28x28 pixels, 10 classes."""

    classes = 10
    input_shape = (1, 28, 28)
    kind = ImageKind(input_shape, classes, 60_000, 10_000)
    layouts = _layouts("MNIST/raw", "mnist/MNIST/raw")
    torchvision = "MNIST"

    name: Literal["mnist"]
    """The data set."""
