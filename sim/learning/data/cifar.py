"""CIFAR-10 and CIFAR-100 as Python batches; CIFAR-100 also as arrays. Files may be compressed.

Of the five training batches of CIFAR-10, only the first is required.

Pickles from the network can run code when they are loaded. The unpickler of this module therefore builds byte
strings, numbers, lists, dicts and numpy arrays, and refuses everything else.
"""

import _codecs
import io
import pickle
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sim.learning.data.images import FolderLayout, ImageArrays, ImageData, ImageFolder

_CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10_FILES = ("data_batch_1", "test_batch")  # the other training batches are optional
_ARRAY_FILES = ("x_train.npy", "x_test.npy", "labels.npz")

# The helper that pickled arrays call. Its module moved between numpy 1 and 2, so it is taken from an array.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_SAFE_GLOBALS: Mapping[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("_codecs", "encode"): _codecs.encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickler that builds plain values and numpy arrays only."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Raise UnpicklingError for names that numpy arrays of numbers do not need."""
        try:
            return _SAFE_GLOBALS[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"the pickle needs {module_name}.{global_name}, which image data does not contain"
            ) from None


def _read_cifar_batch(
    folder: ImageFolder, name: str, label_key: bytes, data: ImageData
) -> tuple[np.ndarray, np.ndarray]:
    file = folder.file(name)

    def parse(content: bytes) -> tuple[np.ndarray, np.ndarray]:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        images, labels = batch[b"data"], batch[label_key]
        # A list may contain one list many times, and nested ones: numpy would expand them to any size.
        if not isinstance(images, np.ndarray) or any(isinstance(each, list) for each in labels):
            raise ValueError("must contain an array of images, and a number for each image")
        return images.reshape(-1, *data.input_shape), np.asarray(labels)

    images, labels = file.parsed(parse, f"a batch of CIFAR, with data and {label_key.decode()}")
    return data.checked(file, images, file, labels, label_key.decode())


def _read_cifar10(folder: ImageFolder, data: ImageData) -> ImageArrays:
    present = [name for name in _CIFAR10_BATCHES if folder.variant(name) is not None]
    batches = [_read_cifar_batch(folder, name, b"labels", data) for name in present]
    train_x, train_y = map(np.concatenate, zip(*batches, strict=True))
    return ImageArrays(train_x, train_y, *_read_cifar_batch(folder, "test_batch", b"labels", data))


def _read_cifar100(folder: ImageFolder, data: ImageData) -> ImageArrays:
    train, test = [_read_cifar_batch(folder, name, b"fine_labels", data) for name in ("train", "test")]
    return ImageArrays(*train, *test)


def _read_cifar100_arrays(folder: ImageFolder, data: ImageData) -> ImageArrays:
    label_file, names = folder.file("labels.npz"), ("y_train", "y_test")
    parts: list[np.ndarray] = []
    for name, labels in zip(names, label_file.arrays(*names), strict=True):
        file = folder.file(f"x{name[1:]}.npy")
        parts += data.checked(file, file.array(), label_file, labels, name)
    return ImageArrays(*parts)


class Cifar10(ImageData):
    """60,000 color images, 32x32 pixels, 10 classes.

    Each channel is standardized: in training it has mean 0 and standard deviation 1.
    """

    classes = 10
    input_shape = (3, 32, 32)
    layouts = (
        FolderLayout("cifar-10-batches-py", _CIFAR10_FILES, _read_cifar10),
        FolderLayout("cifar-10/cifar-10-batches-py", _CIFAR10_FILES, _read_cifar10),
    )
    torchvision = "CIFAR10"

    name: Literal["cifar-10"]
    """Name of the data set."""


class Cifar100(ImageData):
    """60,000 color images, 32x32 pixels, 100 classes.

    Each channel is standardized: in training it has mean 0 and standard deviation 1.
    """

    classes = 100
    input_shape = (3, 32, 32)
    layouts = (
        FolderLayout("cifar-100-python", ("train", "test"), _read_cifar100),
        FolderLayout("cifar-100/cifar-100-python", ("train", "test"), _read_cifar100),
        FolderLayout("cifar-100-subset", _ARRAY_FILES, _read_cifar100_arrays),
    )
    torchvision = "CIFAR100"

    name: Literal["cifar-100"]
    """Name of the data set."""
