"""Damaged and mixed-up image files: each is refused in words that name the file and what is wrong with it."""

import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import UserError
from sim.files import input_file
from sim.learning import vision
from tests.learning.image_files import (
    COLOUR,
    GREY,
    LABELS,
    OPENERS,
    idx,
    put_arrays,
    put_cifar,
    put_idx_files,
)
from tests.learning.sections import read_images

TRAIN_X, TRAIN_Y, TEST_X = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"
BATCHES = {"data_batch_1": slice(0, 6), "test_batch": slice(6, 12)}
PIXELS = COLOUR[:6].reshape(-1, 3072)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, folder: Path) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(vision, "download", refuse)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    put_idx_files(tmp_path / "MNIST/raw")
    return tmp_path / "MNIST/raw"


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        (TRAIN_X, b"", "is empty"),
        (TRAIN_X, b"\0\0\x09\x03\0\0\0\x01x", "starts with the bytes 00 00 09 03; must be 00 00 08 03"),
        (TRAIN_X, b"\0\0\x08\x03\0\0", "must be 00 00 08 03 and 3 lengths"),
        (TRAIN_X, idx(GREY)[:-1], r"has 9,407 bytes after its header; must have 9,408.*\(12, 28, 28\)"),
        (TRAIN_X, idx(LABELS), "with 3 axes .*swapped"),
        (TRAIN_Y, idx(GREY), "with 1 axes .*swapped"),
        (TRAIN_X, idx(GREY[:5]), r"labels: have type uint8 and shape \(12,\); must be 5 whole"),
        (TRAIN_Y, idx(LABELS + 1), "labels: number 9 is 10; must be from 0 to 9"),
        (TEST_X, idx(GREY[:5, :14, :14]), r"shape \(5, 1, 14, 14\); must be .* \(images, 1, 28, 28\)"),
        (TRAIN_X, idx(GREY[:0]), r"shape \(0, 1, 28, 28\); must be"),
    ],
)
def test_spoiled_idx_files(tmp_path: Path, mnist: Path, file: str, content: bytes, problem: str) -> None:
    (mnist / file).write_bytes(content)
    with pytest.raises(UserError, match=problem) as refusal:
        read_images("mnist", tmp_path)
    assert str(refusal.value).startswith(f'data.name = "mnist": {mnist}')


def replaced_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def replaced_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def packed(suffix: str, content: bytes) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        file.with_name(f"{file.name}{suffix}").write_bytes(content)
        file.unlink()

    return spoil


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (replaced_by_folder, "must be a regular file"),
        (replaced_by_pipe, "must be a regular file"),
        (packed(".gz", gzip.compress(idx(GREY))[:-50]), r"ubyte\.gz: cannot be read: Compressed file ended"),
        (packed(".xz", b"junk" * 9), r"ubyte\.xz: cannot be read: Input format not supported"),
    ],
)
def test_what_is_no_intact_file(
    tmp_path: Path, mnist: Path, spoil: Callable[[Path], None], problem: str
) -> None:
    spoil(mnist / TRAIN_X)
    with pytest.raises(UserError, match=problem):
        read_images("mnist", tmp_path)


def test_a_file_without_permission(tmp_path: Path, mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, mode: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(UserError, match=rf"{mnist / TRAIN_X}: cannot be read: Permission denied"):
        read_images("mnist", tmp_path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_small_file_that_becomes_large_is_refused(
    tmp_path: Path, mnist: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 2**20)
    file = mnist / TRAIN_X
    with OPENERS[suffix](file.with_name(file.name + suffix), "wb") as large:
        large.write(bytes(2**20 + 1))
    file.unlink()
    with pytest.raises(UserError, match="exceeds 1 MiB when unpacked; must be smaller"):
        read_images("mnist", tmp_path)


def blank(images: np.ndarray, value: int, share: float) -> np.ndarray:
    spoiled = images.copy()
    spoiled[len(spoiled) - round(share * len(spoiled)) :] = value
    return spoiled


@pytest.mark.parametrize(("value", "share"), [(0, 1.0), (255, 1.0), (0, 0.25), (7, 0.5)])
def test_images_of_one_colour_are_damage(tmp_path: Path, mnist: Path, value: int, share: float) -> None:
    (mnist / TRAIN_X).write_bytes(idx(blank(GREY, value, share)))
    with pytest.raises(UserError, match=rf"{round(12 * share)} of 12 images have only one color"):
        read_images("mnist", tmp_path)


def test_colour_images_of_one_colour_are_damage(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    put_cifar(folder, BATCHES, b"labels", data=blank(PIXELS, 0, 1.0))
    with pytest.raises(UserError, match="6 of 6 images have only one color: the file is damaged"):
        read_images("cifar-10", tmp_path)


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ({"data": PIXELS / 255}, "type float64 .*; must be bytes"),
        ({"data": PIXELS[:, :3000]}, "is not a batch of CIFAR, with data and labels, or is damaged"),
        ({"labels": [0, 1, 2, 3, 4, 10]}, "labels: number 5 is 10; must be from 0 to 9"),
        ({"labels": [0, 1, 2, 3, 4, -1]}, "labels: number 5 is -1; must be from 0 to 9"),
        ({"labels": [0, 1, 2, 3, 4, 2.5]}, "labels: have type float64 .*; must be 6 whole numbers"),
        ({"labels": [[0], [1, 2]]}, "is not a batch of CIFAR"),
        ({"labels": [0, 1]}, r"labels: have .* shape \(2,\); must be 6"),
    ],
)
def test_spoiled_batches_of_cifar(tmp_path: Path, batch: dict[str, Any], problem: str) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    put_cifar(folder, BATCHES, b"labels", **batch)
    with pytest.raises(UserError, match=rf"{folder / 'data_batch_1'}.*{problem}"):
        read_images("cifar-10", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"junk",
        pickle.dumps({b"data": PIXELS}, protocol=2)[:100],
        pickle.dumps({b"data": PIXELS}, protocol=2),
        pickle.dumps([1, 2]),
        # An array of a shape that no memory has room for, and nothing in it.
        b"cnumpy\nndarray\n((I1000000\nI1000000\nI1000000\ntR.",
    ],
)
def test_files_that_are_no_batches(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    put_cifar(folder, BATCHES, b"labels")
    (folder / "data_batch_1").write_bytes(content)
    with pytest.raises(UserError, match="data_batch_1: is not a batch of CIFAR, with data and labels, or"):
        read_images("cifar-10", tmp_path)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x_train": COLOUR[:9].transpose(0, 2, 3, 1)}, r"shape \(9, 32, 32, 3\); must be"),
        ({"x_train": COLOUR[:9].astype(np.float32)}, "type float32 .*; must be bytes"),
        ({"x_test": COLOUR[9:, :, :16, :16]}, r"x_test\.npy\.xz: images have .* shape \(3, 3, 16, 16\)"),
        ({"x_train": COLOUR[:3]}, r"y_train: have .* \(9,\); must be 3 whole numbers.*swapped"),
        ({"y_train": LABELS[:9] + 95}, "y_train: number 5 is 100; must be from 0 to 99"),
        ({"y_test": LABELS[9:, None]}, r"y_test: have .* shape \(3, 1\)"),
        ({"y_test": np.array([0, 1, None])}, "Object arrays cannot be loaded"),
        ({"x_train": np.array([COLOUR, None], dtype=object)}, "Object arrays cannot be loaded"),
    ],
)
def test_spoiled_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], problem: str) -> None:
    put_arrays(tmp_path / "cifar-100-subset", **arrays)
    with pytest.raises(UserError, match=problem):
        read_images("cifar-100", tmp_path)


def test_an_archive_without_an_array(tmp_path: Path) -> None:
    put_arrays(tmp_path / "cifar-100-subset")
    np.savez(tmp_path / "cifar-100-subset" / "labels.npz", y_train=LABELS)
    with pytest.raises(UserError, match=r"labels\.npz: has no array y_test, but y_train; must have"):
        read_images("cifar-100", tmp_path)
