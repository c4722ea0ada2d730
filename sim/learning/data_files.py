"""Where the image data sets lie on disk, and how their files are read; nothing here knows tensors or clients.

Three layouts are understood: torchvision's idx files (MNIST, Fashion-MNIST), plain or gzipped; the CIFAR
python batches, plain or as .xz, of which CIFAR-10 may have only some; and a folder of CIFAR-100 arrays
(x_train.npy.xz, x_test.npy.xz, labels.npz). Pickles from the network can run code when loaded, so CIFAR's are
read by an unpickler that builds byte strings, numbers, lists, dicts and numpy arrays and refuses everything
else.
"""

import _codecs
import http.client
import io
import math
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import UserError
from sim.files.data_folder import FOLDER_VARIABLE, data_folder
from sim.files.input_file import InputFile
from sim.learning import vision
from sim.learning.image_checks import (
    IMAGE_KINDS,
    ImageKind,
    require_images,
    require_labels,
    require_parts,
)

_DOWNLOAD_ERRORS = (OSError, RuntimeError, http.client.HTTPException)


@dataclass(frozen=True)
class ImageArrays:
    """Raw images uint8 [n, channels, height, width] and labels int64 [n]."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


@dataclass(frozen=True)
class _Folder:
    """A folder with the files of a data set, any of which may be compressed as .gz or .xz."""

    key: str
    path: Path

    def file(self, name: str) -> InputFile:
        """The file called so, compressed or not."""
        return InputFile(self.key, _variant(self.path / name) or self.path / name)


@dataclass(frozen=True)
class _Layout:
    """One place below the data folder where a data set may lie: the files it must have, and their reader."""

    folder: str
    files: tuple[str, ...]
    read: Callable[[_Folder, ImageKind], ImageArrays]


def read_images(name: str, data_dir: Path | None, *, download: bool = True) -> ImageArrays:
    """The data set `name` from `data_dir`, else from the folder in COTERIE_DATA, else from ./data.

    A set that is missing is downloaded into that folder. Raises UserError when that is not possible or not
    wanted, and for files that are damaged or not this data set's; the message says where the files were
    looked for and what to put where, or which file has what that may not be there.
    """
    folder, chosen_by = data_folder(data_dir)
    layout = _find(name, folder)
    failure = "nothing is downloaded here (coterie run downloads it)"
    if layout is None and download:
        try:
            with _leaving_no_empty_folders(folder):
                vision.download(name, folder)
        except _DOWNLOAD_ERRORS as error:
            failure = f"it could not be downloaded ({type(error).__name__}: {error})"
        else:
            layout = _find(name, folder)
            failure = "it was downloaded, but not found afterwards"
    if layout is None:
        looked_at = "\n".join(
            f"  {folder / place.folder}: {', '.join(place.files)}" for place in _LAYOUTS[name]
        )
        raise UserError(
            f'data.name = "{name}": files not found in {folder} ({chosen_by}), and {failure}.\n'
            "Put the files of one of these lines there (each may be compressed as .gz or .xz), or name "
            f"another folder by --data-dir or {FOLDER_VARIABLE}:\n{looked_at}"
        )
    found, kind = _Folder(f'data.name = "{name}"', folder / layout.folder), IMAGE_KINDS[name]
    arrays = layout.read(found, kind)
    require_parts(InputFile(found.key, found.path), arrays.train_x, arrays.test_x, kind)
    return arrays


@contextmanager
def _leaving_no_empty_folders(root: Path) -> Iterator[None]:
    """Where this fails, folders at `root` that it made and left without a file are removed."""
    before = {root, *root.rglob("*")} if root.is_dir() else set()
    try:
        yield
    except BaseException:
        for folder in sorted({root, *root.rglob("*")} - before, reverse=True):  # the deepest first
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise


def _find(name: str, folder: Path) -> _Layout | None:
    for layout in _LAYOUTS[name]:
        if all(_variant(folder / layout.folder / file) is not None for file in layout.files):
            return layout
    return None


def _variant(path: Path) -> Path | None:
    """The path under which the file exists: as it is, with .gz, or with .xz."""
    variants = (path.with_name(path.name + suffix) for suffix in ("", ".gz", ".xz"))
    return next((variant for variant in variants if os.path.exists(variant)), None)


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


def _read_idx_folder(folder: _Folder, kind: ImageKind) -> ImageArrays:
    parts = []
    for images_name, labels_name in (_IDX_FILES[:2], _IDX_FILES[2:]):
        images_file, labels_file = folder.file(images_name), folder.file(labels_name)
        images = require_images(images_file, _read_idx(images_file, "images", 3)[:, None], kind)
        labels = _read_idx(labels_file, "labels", 1)
        parts += [images, require_labels(labels_file, labels, kind, len(images), "labels")]
    return ImageArrays(*parts)


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


def _read_cifar10(folder: _Folder, kind: ImageKind) -> ImageArrays:
    present = [name for name in _CIFAR10_BATCHES if _variant(folder.path / name) is not None]
    batches = [_read_cifar_batch(folder.file(name), b"labels", kind) for name in present]
    return ImageArrays(
        np.concatenate([x for x, _ in batches]),
        np.concatenate([y for _, y in batches]),
        *_read_cifar_batch(folder.file("test_batch"), b"labels", kind),
    )


def _read_cifar100(folder: _Folder, kind: ImageKind) -> ImageArrays:
    return ImageArrays(
        *_read_cifar_batch(folder.file("train"), b"fine_labels", kind),
        *_read_cifar_batch(folder.file("test"), b"fine_labels", kind),
    )


def _read_cifar100_arrays(folder: _Folder, kind: ImageKind) -> ImageArrays:
    label_file = folder.file("labels.npz")
    labels = label_file.arrays("y_train", "y_test")
    parts = []
    for part, name, own in zip(("train", "test"), ("y_train", "y_test"), labels, strict=True):
        image_file = folder.file(f"x_{part}.npy")
        images = require_images(image_file, image_file.array(), kind)
        parts += [images, require_labels(label_file, own, kind, len(images), name)]
    return ImageArrays(*parts)


_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10_FILES = ("data_batch_1", "test_batch")  # the other train batches are read where they are there
_ARRAY_FILES = ("x_train.npy", "x_test.npy", "labels.npz")
_LAYOUTS: Mapping[str, tuple[_Layout, ...]] = {
    "mnist": (
        _Layout("MNIST/raw", _IDX_FILES, _read_idx_folder),
        _Layout("mnist/MNIST/raw", _IDX_FILES, _read_idx_folder),
    ),
    "fashion-mnist": (
        _Layout("FashionMNIST/raw", _IDX_FILES, _read_idx_folder),
        _Layout("fashion-mnist/FashionMNIST/raw", _IDX_FILES, _read_idx_folder),
    ),
    "cifar-10": (
        _Layout("cifar-10-batches-py", _CIFAR10_FILES, _read_cifar10),
        _Layout("cifar-10/cifar-10-batches-py", _CIFAR10_FILES, _read_cifar10),
    ),
    "cifar-100": (
        _Layout("cifar-100-python", ("train", "test"), _read_cifar100),
        _Layout("cifar-100/cifar-100-python", ("train", "test"), _read_cifar100),
        _Layout("cifar-100-subset", _ARRAY_FILES, _read_cifar100_arrays),
    ),
}
