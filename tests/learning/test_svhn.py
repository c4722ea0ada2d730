"""SVHN: read as torchvision reads it, or refused."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from sim.errors import UserError
from sim.files import input_file
from sim.learning import vision
from tests.learning.image_files import COLOUR, put
from tests.learning.sections import read_images

X = COLOUR.transpose(2, 3, 1, 0)  # [32, 32, 3, n]
Y = np.array([1, 10, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2], dtype=np.uint8)[:, None]
TRAIN = "train_32x32.mat"


def mat(contents: Mapping[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, dict(contents), **options)
    return file.getvalue()


def put_svhn(folder: Path, suffix: str = "", **train: Any) -> None:
    put(folder / TRAIN, mat({"X": X, "y": Y} | train, do_compression=True), suffix)
    put(folder / "test_32x32.mat", mat({"X": X[..., :5], "y": Y[:5]}), suffix)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, folder: Path) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(vision, "download", refuse)


@pytest.mark.parametrize("below", ["svhn", "SVHN", "."])
def test_pixels_and_labels_are_torchvisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    put_svhn(tmp_path / below)
    arrays, kind = read_images("svhn", tmp_path), vision.import_torchvision().datasets.SVHN
    monkeypatch.setattr(kind, "_check_integrity", lambda self: True)  # these are not the true ones
    parts = {"train": (arrays.train_x, arrays.train_y), "test": (arrays.test_x, arrays.test_y)}
    for split, (x, y) in parts.items():
        theirs = kind(str(tmp_path / below), split=split)
        assert np.array_equal(x, theirs.data) and np.array_equal(y, theirs.labels)
    assert arrays.train_y.dtype == np.int64 and arrays.train_y.tolist() == [1, 0, *range(3, 10), 0, 1, 2]


def test_packed_files(tmp_path: Path) -> None:
    put_svhn(tmp_path / "svhn", ".xz")
    assert np.array_equal(read_images("svhn", tmp_path).train_x, COLOUR)


class _Split:
    """In place of torchvision's class."""

    def __init__(self, root: str, *, download: bool, split: str) -> None:
        assert download
        put(Path(root) / f"{split}_32x32.mat", mat({"X": X, "y": Y}))


def test_both_splits_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(vision.import_torchvision().datasets, "SVHN", _Split)
    with pytest.raises(UserError, match="this command does not download"):
        read_images("svhn", tmp_path, download=False)
    assert len(read_images("svhn", tmp_path).test_y) == 12


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        ({"y": Y + 1}, "y: number 1 is 11; must be from 0 to 9"),
        ({"y": Y.astype(np.int16) - 2}, "y: number 0 is -1; must be from 0 to 9"),
        ({"y": Y / 2}, "y: have type float64"),
        ({"y": Y[:3]}, r"y: have .* shape \(3,\); must be 12 whole numbers"),
        ({"X": X[:28, :28]}, r"images have .* \(12, 3, 28, 28\); must be .* \(images, 3, 32, 32\)"),
        ({"X": COLOUR}, r"images have .* \(32, 32, 12, 3\); must be"),
        ({"X": X / 255}, "images have type float64"),
        ({"X": X[..., 0]}, "is not a file of SVHN"),
        ({"X": X * 0}, "12 of 12 images have only one color"),
        (
            {"X": np.array([1, "a"], dtype=object)},
            "X: has MATLAB's type cell; must have one of uint8, int8, ",
        ),
        ({"X": "a text"}, "X: has MATLAB's type char"),
        ({"y": np.array(["a text"] * 12)}, "y: has MATLAB's type char"),
        ({"y": {"digits": Y}}, "y: has MATLAB's type struct"),
    ],
)
def test_another_content(tmp_path: Path, train: dict[str, Any], problem: str) -> None:
    put_svhn(tmp_path / "svhn", **train)
    with pytest.raises(UserError, match=rf'^data\.name = "svhn": {tmp_path}/svhn/{TRAIN}.*{problem}'):
        read_images("svhn", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"junk",
        mat({"X": X, "y": Y})[:-5000],
        mat({"X": X}),
        mat({"x": X, "y": Y}),
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n" * 9,
    ],
    ids=["junk", "cut", "without labels", "without images", "of HDF5"],  # the files say when they were made
)
def test_no_such_file_of_matlab(tmp_path: Path, content: bytes) -> None:
    put_svhn(tmp_path / "svhn")
    (tmp_path / "svhn" / TRAIN).write_bytes(content)
    with pytest.raises(
        UserError, match=rf"{TRAIN}: is not a file of SVHN in the format MATLAB 5, with X \[32,"
    ):
        read_images("svhn", tmp_path)


def test_a_small_file_that_becomes_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_svhn(tmp_path / "svhn", X=np.zeros((32, 32, 3, 500), np.uint8))
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 2**20)
    with pytest.raises(UserError, match=r"contains X with shape \(32, 32, 3, 500\), which exceeds the limit"):
        read_images("svhn", tmp_path)


@pytest.mark.long
def test_what_is_in_a_cell_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length is not known before; a small file may have cells of gigabytes."""
    put_svhn(tmp_path / "svhn", X=np.array([X, X], dtype=object))
    monkeypatch.setattr(scipy.io, "loadmat", None)
    with pytest.raises(UserError, match="X: has MATLAB's type cell"):
        read_images("svhn", tmp_path)


def test_a_variable_that_is_there_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both the length counts, as the reader takes the first."""
    put_svhn(tmp_path / "svhn")
    head = 128
    large = mat({"X": np.zeros((32, 32, 3, 500), np.uint8)}, do_compression=True)
    file = tmp_path / "svhn" / TRAIN
    file.write_bytes(large + file.read_bytes()[head:])
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 2**20)
    with pytest.raises(UserError, match=r"contains X with shape \(32, 32, 3, 500\), which exceeds the limit"):
        read_images("svhn", tmp_path)


def test_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no route to host(.|\n)*svhn: train_32x32.mat, test_32x32.mat"):
        read_images("svhn", tmp_path)
