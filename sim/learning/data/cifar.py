"""CIFAR-10 and CIFAR-100: python batches, plain or as .xz, of which CIFAR-10 may have only some; or arrays.

Pickles from the network can run code when loaded, so CIFAR's are read by an unpickler that builds byte
strings, numbers, lists, dicts and numpy arrays and refuses everything else.
"""

import _codecs
import io
import math
import pickle
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sim.files.input_file import InputFile
from sim.learning.data.image_checks import ImageKind, require_images, require_labels
from sim.learning.data.images import ImageArrays, ImageData, ImageFolder, Layout

_CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10_FILES = ("data_batch_1", "test_batch")  # the other train batches are read where they are there
_ARRAY_FILES = ("x_train.npy", "x_test.npy", "labels.npz")

# The helper that pickled arrays call: its module moved between numpy 1 and 2, so an array is asked for it.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_SAFE_GLOBALS: Mapping[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("_codecs", "encode"): _codecs.encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Builds plain values and numpy arrays only."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Raises UnpicklingError for anything that numpy arrays of numbers do not need."""
        try:
            return _SAFE_GLOBALS[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"the pickle asks for {module_name}.{global_name}, which image data does not need"
            ) from None


def _unpickled(content: bytes) -> Any:
    stream = io.BytesIO(content)
    found = _ArrayUnpickler(stream, encoding="bytes").load()
    if behind := len(content) - stream.tell():
        raise ValueError(f"{behind:,} bytes more behind its end")
    return found


def _read_cifar_batch(file: InputFile, label_key: bytes, kind: ImageKind) -> tuple[np.ndarray, np.ndarray]:
    batch = file.parsed(_unpickled, "a batch of CIFAR")
    if not isinstance(batch, dict):
        raise file.refusal(f"holds a {type(batch).__name__}; must be a table with data and labels")
    for key in (b"data", label_key):
        if key not in batch:
            raise file.refusal(f"has no {key.decode()}; must have data and {label_key.decode()}")
    rows = batch[b"data"]
    numbers = math.prod(kind.shape)
    if isinstance(rows, np.ndarray) and (rows.ndim != 2 or rows.shape[1] != numbers):
        raise file.refusal(f"data have the shape {rows.shape}; must be (images, {numbers})")
    images = rows.reshape(-1, *kind.shape) if isinstance(rows, np.ndarray) else rows
    images = require_images(file, images, kind)
    labels = require_labels(file, batch[label_key], kind, len(images), label_key.decode())
    return np.ascontiguousarray(images), labels


def _read_cifar10(folder: ImageFolder, kind: ImageKind) -> ImageArrays:
    present = [name for name in _CIFAR10_BATCHES if folder.variant(name) is not None]
    batches = [_read_cifar_batch(folder.file(name), b"labels", kind) for name in present]
    return ImageArrays(
        np.concatenate([x for x, _ in batches]),
        np.concatenate([y for _, y in batches]),
        *_read_cifar_batch(folder.file("test_batch"), b"labels", kind),
    )


def _read_cifar100(folder: ImageFolder, kind: ImageKind) -> ImageArrays:
    return ImageArrays(
        *_read_cifar_batch(folder.file("train"), b"fine_labels", kind),
        *_read_cifar_batch(folder.file("test"), b"fine_labels", kind),
    )


def _read_cifar100_arrays(folder: ImageFolder, kind: ImageKind) -> ImageArrays:
    label_file = folder.file("labels.npz")
    labels = label_file.arrays("y_train", "y_test")
    parts = []
    for part, name, own in zip(("train", "test"), ("y_train", "y_test"), labels, strict=True):
        image_file = folder.file(f"x_{part}.npy")
        images = require_images(image_file, image_file.array(), kind)
        parts += [images, require_labels(label_file, own, kind, len(images), name)]
    return ImageArrays(*parts)


class Cifar10(ImageData):
    """60,000 coloured pictures, 32x32 pixels, 10 classes."""

    classes = 10
    input_shape = (3, 32, 32)
    kind = ImageKind(input_shape, classes, 50_000, 10_000)
    layouts = (
        Layout("cifar-10-batches-py", _CIFAR10_FILES, _read_cifar10),
        Layout("cifar-10/cifar-10-batches-py", _CIFAR10_FILES, _read_cifar10),
    )
    torchvision = "CIFAR10"

    name: Literal["cifar-10"]
    """The data set."""


class Cifar100(ImageData):
    """60,000 coloured pictures, 32x32 pixels, 100 classes."""

    classes = 100
    input_shape = (3, 32, 32)
    kind = ImageKind(input_shape, classes, 50_000, 10_000)
    layouts = (
        Layout("cifar-100-python", ("train", "test"), _read_cifar100),
        Layout("cifar-100/cifar-100-python", ("train", "test"), _read_cifar100),
        Layout("cifar-100-subset", _ARRAY_FILES, _read_cifar100_arrays),
    )
    torchvision = "CIFAR100"

    name: Literal["cifar-100"]
    """The data set."""
