"""MNIST and data sets in its format: idx files, plain or gzipped, in the folders of torchvision."""

import math
from typing import Literal

import numpy as np

from sim.files.input_file import InputFile
from sim.learning.data.images import FolderLayout, ImageArrays, ImageData, ImageFolder

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _read_idx(file: InputFile, axes: int) -> np.ndarray:
    """Read an idx file of unsigned bytes: 0, 0, 8, number of axes; big-endian uint32 lengths; the bytes."""
    content, begin = file.content(), 4 + 4 * axes
    if content[:4] != bytes([0, 0, 8, axes]) or len(content) < begin:
        raise file.refusal(
            f"starts with the bytes {content[:4].hex(' ')}; must be 00 00 08 0{axes} and {axes} lengths: "
            f"an idx file of unsigned bytes with {axes} axes (image and label files swapped?)"
        )
    shape = tuple(int(length) for length in np.frombuffer(content, ">u4", count=axes, offset=4))
    if len(content) - begin != math.prod(shape):
        raise file.refusal(
            f"has {len(content) - begin:,} bytes after its header; must have {math.prod(shape):,}, as the "
            f"header states {shape} (truncated?)"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def _read_folder(folder: ImageFolder, data: ImageData) -> ImageArrays:
    parts: list[np.ndarray] = []
    for files in (_FILES[:2], _FILES[2:]):
        images, labels = map(folder.file, files)
        parts += data.checked(images, _read_idx(images, 3)[:, None], labels, _read_idx(labels, 1), "labels")
    return ImageArrays(*parts)


def _layouts(*folders: str) -> tuple[FolderLayout, ...]:
    return tuple(FolderLayout(folder, _FILES, _read_folder) for folder in folders)


class FashionMnist(ImageData):
    """70,000 gray images of clothes, 28x28 pixels, 10 classes.

    All pixels are standardized: in training they have mean 0 and standard deviation 1.
    """

    classes = 10
    input_shape = (1, 28, 28)
    layouts = _layouts("FashionMNIST/raw", "fashion-mnist/FashionMNIST/raw")
    torchvision = "FashionMNIST"

    name: Literal["fashion-mnist"]
    """Name of the data set."""


class Mnist(ImageData):
    """70,000 handwritten digits, 28x28 pixels, 10 classes.

    All pixels are standardized: in training they have mean 0 and standard deviation 1.
    """

    classes = 10
    input_shape = (1, 28, 28)
    layouts = _layouts("MNIST/raw", "mnist/MNIST/raw")
    torchvision = "MNIST"

    name: Literal["mnist"]
    """Name of the data set."""
