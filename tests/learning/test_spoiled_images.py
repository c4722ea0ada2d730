"""Damaged and mixed-up image files: each is refused in words that name the file and what is wrong with it."""

import gzip
import lzma
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
from sim.learning.data.image_checks import ImageKind
from sim.learning.data.mnist import Mnist
from tests.learning.sections import read_images

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(6, dtype=np.uint8)
TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, folder: Path) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(vision, "download", refuse)


def idx(values: np.ndarray) -> bytes:
    shape = b"".join(length.to_bytes(4, "big") for length in values.shape)
    return bytes([0, 0, 8, values.ndim]) + shape + values.astype(np.uint8).tobytes()


def mnist(root: Path) -> Path:
    folder = root / "MNIST/raw"
    folder.mkdir(parents=True)
    for name, values in ((TRAIN_X, GREY), (TRAIN_Y, LABELS), (TEST_X, GREY[:3]), (TEST_Y, LABELS[:3])):
        (folder / name).write_bytes(idx(values))
    return folder


def cifar10(root: Path, **batch: Any) -> Path:
    """CIFAR-10 with a training batch in which some entries are others."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    whole = {b"data": COLOUR.reshape(-1, 3072), b"labels": LABELS.tolist()}
    spoiled = whole | {key.encode(): value for key, value in batch.items()}
    spoiled = {key: value for key, value in spoiled.items() if value is not None}
    (folder / "data_batch_1").write_bytes(pickle.dumps(spoiled, protocol=2))
    (folder / "test_batch").write_bytes(pickle.dumps(whole, protocol=2))
    return folder


def cifar100(root: Path, **arrays: np.ndarray) -> Path:
    """CIFAR-100 as arrays, some of them others."""
    folder = root / "cifar-100-subset"
    folder.mkdir(parents=True)
    whole = {"x_train": COLOUR, "x_test": COLOUR[:3], "y_train": LABELS, "y_test": LABELS[:3]} | arrays
    for part in ("x_train", "x_test"):
        np.save(folder / f"{part}.npy", whole[part])
    np.savez(folder / "labels.npz", y_train=whole["y_train"], y_test=whole["y_test"])
    return folder


# --- idx files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        (TRAIN_X, b"", "is empty"),
        (TRAIN_X, b"\0\0\x09\x01\0\0\0\x01x", "begins with the bytes 00 00 09; must be 00 00 08"),
        (TRAIN_X, b"\0\0\x08", "has no axes; must have 3"),
        (TRAIN_X, b"\0\0\x08\x03\0\0", "cut off in its head"),
        (TRAIN_X, idx(GREY)[:-1], r"has 4,703 bytes behind its head; must have 4,704.*\(6, 28, 28\)"),
        (TRAIN_X, idx(GREY) + b"more", "has 4,708 bytes behind its head"),
        (TRAIN_X, idx(GREY[:5]), "labels: are 6, beside 5 images"),
        (TRAIN_X, idx(LABELS), "has 1 axes; must have 3, as it holds images.*swapped"),
        (TRAIN_Y, idx(GREY), "has 3 axes; must have 1, as it holds labels.*swapped"),
        (TRAIN_Y, idx(LABELS[:3]), "labels: are 3, beside 6 images; must be as many .*swapped"),
        (TRAIN_Y, idx(LABELS + 6), "labels: number 4 is 10; must be from 0 to 9, as there are 10 classes"),
        (TEST_Y, idx(np.full(3, 11)), "labels: number 0 is 11; must be from 0 to 9"),
        (TEST_X, idx(GREY[:3, :14, :14]), r"shape \(3, 1, 14, 14\); must be \(images, 1, 28, 28\)"),
        (TRAIN_X, idx(GREY[:0]), "has no image"),
        (TRAIN_X, idx(np.zeros_like(GREY)), "channel 0 is 0 in every pixel of all training images"),
        (TRAIN_X, b"\0\0\x08\x03" + b"\xff" * 12, "bytes behind its head; must have 79,228"),
    ],
)
def test_spoiled_idx_files(tmp_path: Path, file: str, content: bytes, problem: str) -> None:
    (mnist(tmp_path) / file).write_bytes(content)
    with pytest.raises(UserError, match=problem) as refusal:
        read_images("mnist", tmp_path)
    assert str(refusal.value).startswith(f'data.name = "mnist": {tmp_path / "MNIST/raw"}')


def replaced_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def replaced_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def cut_off_gz(file: Path) -> None:
    file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes())[:-50])
    file.unlink()


def junk_xz(file: Path) -> None:
    file.with_name(file.name + ".xz").write_bytes(b"junk" * 9)
    file.unlink()


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (replaced_by_folder, "must be a regular file"),
        (replaced_by_pipe, "must be a regular file"),
        (cut_off_gz, r"train-images-idx3-ubyte\.gz: cannot be read: Compressed file ended"),
        (junk_xz, r"train-images-idx3-ubyte\.xz: cannot be read: Input format not supported"),
    ],
)
def test_what_is_no_intact_file(tmp_path: Path, spoil: Callable[[Path], None], problem: str) -> None:
    spoil(mnist(tmp_path) / TRAIN_X)
    with pytest.raises(UserError, match=problem):
        read_images("mnist", tmp_path)


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = mnist(tmp_path)

    def denied(path: Path, mode: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(UserError, match=rf"{folder / TRAIN_X}: cannot be read: Permission denied"):
        read_images("mnist", tmp_path)


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_a_small_file_that_becomes_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, opener: Callable[..., Any]
) -> None:
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 2**20)
    file = mnist(tmp_path) / TRAIN_X
    with opener(file.with_name(file.name + suffix), "wb") as packed:
        packed.write(bytes(2**20 + 1))
    file.unlink()
    with pytest.raises(UserError, match="has more than 1 MiB, unpacked; must have less"):
        read_images("mnist", tmp_path)


def test_a_whole_set_whose_parts_are_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ImageKind((1, 28, 28), 10, train=3, test=6)
    monkeypatch.setattr(Mnist, "kind", small)
    mnist(tmp_path)
    with pytest.raises(UserError, match="6 training and 3 test images, the other way around"):
        read_images("mnist", tmp_path)


# --- CIFAR --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ({"data": COLOUR.reshape(-1, 3072) / 255}, "type float64; must be bytes"),
        ({"data": COLOUR.reshape(-1, 3072).astype(complex)}, "type complex128; must be bytes"),
        ({"data": COLOUR}, r"data have the shape \(6, 3, 32, 32\); must be \(images, 3072\)"),
        ({"data": COLOUR.reshape(-1, 3072)[:, :3000]}, r"data have the shape \(6, 3000\)"),
        ({"data": COLOUR.reshape(-1, 3072).tolist()}, "its images are list; must be an array"),
        ({"data": None}, "has no data; must have data and labels"),
        ({"labels": None}, "has no labels; must have data and labels"),
        ({"labels": [0, 1, 2, 3, 4, 10]}, "labels: number 5 is 10; must be from 0 to 9"),
        ({"labels": [0, 1, 2, 3, 4, -1]}, "labels: number 5 is -1; must be from 0 to 9"),
        ({"labels": [0, 1, 2, 3, 4, 2.5]}, "labels: have the type float64; must be whole numbers"),
        ({"labels": [0, 1, 2, 3, 4, float("nan")]}, "labels: have the type float64"),
        ({"labels": [0, 1, 2, 3, 4, "cat"]}, "labels: have the type <U.*; must be whole numbers"),
        ({"labels": [0, 1, 2, 3, 4, 10**30]}, "labels: have the type object"),
        ({"labels": [[0], [1], [2], [3], [4], [5]]}, r"labels: have the shape \(6, 1\); must be \(6,\)"),
        ({"labels": [[0], [1, 2]]}, "labels: are no list of numbers"),
        ({"labels": [0, 1]}, "labels: are 2, beside 6 images"),
        ({"labels": True}, "labels: have the type bool"),
    ],
)
def test_spoiled_batches_of_cifar(tmp_path: Path, batch: dict[str, Any], problem: str) -> None:
    folder = cifar10(tmp_path, **batch)
    with pytest.raises(UserError, match=rf"{folder / 'data_batch_1'}.*{problem}"):
        read_images("cifar-10", tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"junk", "is not a batch of CIFAR, or damaged"),
        (pickle.dumps({b"data": COLOUR.reshape(-1, 3072)}, protocol=2)[:100], "or damaged"),
        (pickle.dumps({b"data": COLOUR, b"labels": []}) + b"more", "4 bytes more behind its end"),
        (pickle.dumps([1, 2]), "holds a list; must be a table with data and labels"),
        # An array of a shape that no memory has room for, and nothing in it.
        (b"cnumpy\nndarray\n((I1000000\nI1000000\nI1000000\ntR.", "is not a batch of CIFAR, or damaged"),
    ],
)
def test_files_that_are_no_batches(tmp_path: Path, content: bytes, problem: str) -> None:
    (cifar10(tmp_path) / "data_batch_1").write_bytes(content)
    with pytest.raises(UserError, match=rf"data_batch_1: .*{problem}"):
        read_images("cifar-10", tmp_path)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"x_train": COLOUR.transpose(0, 2, 3, 1)}, r"\(6, 32, 32, 3\), so the channels last; must be"),
        ({"x_train": COLOUR.astype(np.float32)}, "type float32; must be bytes"),
        ({"x_train": COLOUR[0]}, r"shape \(3, 32, 32\)"),
        ({"x_test": COLOUR[:3, :, :16, :16]}, r"x_test\.npy: its images have the shape \(3, 3, 16, 16\)"),
        ({"x_test": COLOUR[:, :1]}, r"shape \(6, 1, 32, 32\)"),
        ({"x_train": np.array(3, dtype=np.uint8)}, r"shape \(\); must be"),
        ({"x_train": np.array([b"a", b"b"])}, r"type \|S1; must be bytes"),
        ({"x_train": COLOUR[:3], "x_test": COLOUR}, "y_train: are 6, beside 3 images; .*swapped"),
        ({"y_train": LABELS + 95}, "y_train: number 5 is 100; must be from 0 to 99"),
        ({"y_train": LABELS.astype(float)}, "y_train: have the type float64; must be whole numbers"),
        ({"y_test": LABELS[:3, None]}, r"y_test: have the shape \(3, 1\)"),
        ({"y_test": np.array([0, 1, None])}, "Object arrays cannot be loaded"),
        ({"x_train": np.array([COLOUR, None], dtype=object)}, "Object arrays cannot be loaded"),
    ],
)
def test_spoiled_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], problem: str) -> None:
    cifar100(tmp_path, **arrays)
    with pytest.raises(UserError, match=problem):
        read_images("cifar-100", tmp_path)


def test_an_archive_without_an_array(tmp_path: Path) -> None:
    folder = cifar100(tmp_path)
    np.savez(folder / "labels.npz", y_train=LABELS)
    with pytest.raises(UserError, match=r"labels\.npz: has no array y_test, but y_train; must have"):
        read_images("cifar-100", tmp_path)


def test_an_archive_where_an_array_is_expected(tmp_path: Path) -> None:
    folder = cifar100(tmp_path)
    with (folder / "x_train.npy").open("wb") as file:
        np.savez(file, COLOUR)
    with pytest.raises(UserError, match=r"x_train\.npy: is an archive of arrays; must be a \.npy file"):
        read_images("cifar-100", tmp_path)


# --- downloads ----------------------------------------------------------------------------------------------


def test_a_failed_download_leaves_no_empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, folder: Path) -> None:
        (folder / "MNIST" / "raw").mkdir(parents=True)
        raise OSError("no route to host")

    monkeypatch.setattr(vision, "download", fail)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    with pytest.raises(UserError, match="no route to host"):
        read_images("mnist", None)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_download_takes_away_nothing_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, folder: Path) -> None:
        (folder / "MNIST" / "raw").mkdir(parents=True)
        (folder / "MNIST" / "part").write_bytes(b"begun")
        raise OSError("no route to host")

    monkeypatch.setattr(vision, "download", fail)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="no route to host"):
        read_images("mnist", tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "MNIST",
        "MNIST/part",
        "mine",
    ]
