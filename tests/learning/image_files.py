"""Small files of images, as data sets of images have them."""

import gzip
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (12, 28, 28), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(12) % 10
OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def put(path: Path, content: bytes, suffix: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with OPENERS[suffix](path.with_name(path.name + suffix), "wb") as file:
        file.write(content)


def idx(values: np.ndarray) -> bytes:
    shape = b"".join(length.to_bytes(4, "big") for length in values.shape)
    return bytes([0, 0, 8, values.ndim]) + shape + values.astype(np.uint8).tobytes()


def put_idx_files(folder: Path, suffix: str = "") -> None:
    put(folder / "train-images-idx3-ubyte", idx(GREY), suffix)
    put(folder / "train-labels-idx1-ubyte", idx(LABELS), suffix)
    put(folder / "t10k-images-idx3-ubyte", idx(GREY[:5]), suffix)
    put(folder / "t10k-labels-idx1-ubyte", idx(LABELS[:5]), suffix)


def put_cifar(
    folder: Path, files: dict[str, slice], label_key: bytes, suffix: str = "", **others: Any
) -> None:
    """Batches of some images each; `others` are entries that are other than they should be."""
    for name, rows in files.items():
        batch = {b"data": COLOUR[rows].reshape(-1, 3072), label_key: LABELS[rows].tolist()}
        batch |= {key.encode(): value for key, value in others.items()}
        put(folder / name, pickle.dumps(batch, protocol=2), suffix)


def put_arrays(folder: Path, **others: np.ndarray) -> None:
    """The subset of CIFAR-100 as arrays: nine to train on and three to test on, or some `others`."""
    arrays = {
        "x_train": COLOUR[:9],
        "x_test": COLOUR[9:],
        "y_train": LABELS[:9],
        "y_test": LABELS[9:],
    } | others
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("x_train", "x_test"):
        with lzma.open(folder / f"{part}.npy.xz", "wb") as file:
            np.save(file, arrays[part])
    np.savez(folder / "labels.npz", y_train=arrays["y_train"], y_test=arrays["y_test"])
