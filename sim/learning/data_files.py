"""Where the image data sets lie on disk, and how their files are read; nothing here knows tensors or clients.

Three layouts are understood: torchvision's idx files (MNIST, Fashion-MNIST), plain or gzipped; the CIFAR
python batches, plain or as .xz, of which CIFAR-10 may have only some; and a folder of CIFAR-100 arrays
(x_train.npy.xz, x_test.npy.xz, labels.npz). Pickles from the network can run code when loaded, so CIFAR's are
read by an unpickler that builds byte strings, numbers, lists, dicts and numpy arrays and refuses everything
else.
"""

import _codecs
import gzip
import http.client
import lzma
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from sim.data_folder import FOLDER_VARIABLE, data_folder
from sim.errors import UserError
from sim.learning import vision

_DOWNLOAD_ERRORS = (OSError, RuntimeError, http.client.HTTPException)


@dataclass(frozen=True)
class ImageArrays:
    """Raw images uint8 [n, channels, height, width] and labels int64 [n]."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


@dataclass(frozen=True)
class _Layout:
    """One place below the data folder where a data set may lie: the files it must have, and their reader."""

    folder: str
    files: tuple[str, ...]
    read: Callable[[Path], ImageArrays]


def read_images(name: str, data_dir: Path | None, *, download: bool = True) -> ImageArrays:
    """The data set `name` from `data_dir`, else from the folder in COTERIE_DATA, else from ./data.

    A set that is missing is downloaded into that folder. Raises UserError when that is not possible or not
    wanted, and for unreadable files; the message says where the files were looked for and what to put where.
    """
    folder, chosen_by = data_folder(data_dir)
    layout = _find(name, folder)
    failure = "not downloaded, as asked"
    if layout is None and download:
        try:
            vision.download(name, folder)
        except _DOWNLOAD_ERRORS as error:
            failure = f"could not be downloaded ({type(error).__name__}: {error})"
        else:
            layout = _find(name, folder)
            failure = "downloaded, but not found afterwards"
    if layout is None:
        looked_at = "\n".join(
            f"  {folder / place.folder}: {', '.join(place.files)}" for place in _LAYOUTS[name]
        )
        raise UserError(
            f'data.name = "{name}": files not found in {folder} ({chosen_by}), and {failure}.\n'
            "Put the files of one of these lines there (each may be compressed as .gz or .xz), or name "
            f"another folder by --data-dir or {FOLDER_VARIABLE}:\n{looked_at}"
        )
    path = folder / layout.folder
    try:
        return _checked(layout.read(path))
    except Exception as error:  # damaged bytes can make gzip, xz, pickle and numpy fail in any way
        raise UserError(
            f'data.name = "{name}": the files in {path} cannot be read ({type(error).__name__}: {error}); '
            "delete them, and put intact copies there"
        ) from error


def _find(name: str, folder: Path) -> _Layout | None:
    for layout in _LAYOUTS[name]:
        if all(_variant(folder / layout.folder / file) is not None for file in layout.files):
            return layout
    return None


_OPENERS: Mapping[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def _variant(path: Path) -> str | None:
    """The suffix under which the file exists: "" as it is, ".gz", ".xz", or None."""
    return next((suffix for suffix in _OPENERS if path.with_name(path.name + suffix).is_file()), None)


def _open(path: Path) -> IO[bytes]:
    suffix = _variant(path)
    if suffix is None:
        raise FileNotFoundError(f"{path} is missing")
    return _OPENERS[suffix](path.with_name(path.name + suffix), "rb")


def _checked(arrays: ImageArrays) -> ImageArrays:
    for part, x, y in (("train", arrays.train_x, arrays.train_y), ("test", arrays.test_x, arrays.test_y)):
        if len(x) != len(y) or len(x) == 0:
            raise ValueError(f"{len(x)} {part} images with {len(y)} labels")
    return arrays


def _read_idx(path: Path) -> np.ndarray:
    """An idx file of unsigned bytes: 0, 0, 8, number of axes; big-endian uint32 lengths; the bytes."""
    with _open(path) as file:
        content = file.read()
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path.name} is no idx file of unsigned bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _read_idx_folder(folder: Path) -> ImageArrays:
    train_x, train_y, test_x, test_y = (_read_idx(folder / file) for file in _IDX_FILES)
    return ImageArrays(train_x[:, None], train_y.astype(np.int64), test_x[:, None], test_y.astype(np.int64))


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


def _read_cifar_batch(path: Path, label_key: bytes) -> tuple[np.ndarray, np.ndarray]:
    with _open(path) as file:
        batch = _ArrayUnpickler(file, encoding="bytes").load()
    return batch[b"data"].reshape(-1, 3, 32, 32), np.asarray(batch[label_key], dtype=np.int64)


def _read_cifar10(folder: Path) -> ImageArrays:
    present = [folder / file for file in _CIFAR10_BATCHES if _variant(folder / file) is not None]
    batches = [_read_cifar_batch(path, b"labels") for path in present]
    return ImageArrays(
        np.concatenate([x for x, _ in batches]),
        np.concatenate([y for _, y in batches]),
        *_read_cifar_batch(folder / "test_batch", b"labels"),
    )


def _read_cifar100(folder: Path) -> ImageArrays:
    return ImageArrays(
        *_read_cifar_batch(folder / "train", b"fine_labels"),
        *_read_cifar_batch(folder / "test", b"fine_labels"),
    )


def _read_cifar100_arrays(folder: Path) -> ImageArrays:
    with _open(folder / "labels.npz") as label_file, np.load(label_file) as labels:
        train_y, test_y = labels["y_train"].astype(np.int64), labels["y_test"].astype(np.int64)
    with _open(folder / "x_train.npy") as train_file, _open(folder / "x_test.npy") as test_file:
        return ImageArrays(np.load(train_file), train_y, np.load(test_file), test_y)


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
