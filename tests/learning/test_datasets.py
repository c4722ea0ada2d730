"""Data sets: where files are looked for, how they are read, what comes out."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from sim.errors import UserError
from sim.files.data_folder import FOLDER_VARIABLE
from sim.learning import vision
from sim.learning.data import digits as digits_module
from sim.learning.data.dataset import Dataset
from sim.learning.data.images import ImageData, channel_statistics
from sim.learning.data.kinds import DATASETS, IMAGE_DATASETS
from sim.learning.partitions.partition import Partition
from tests.learning.image_files import COLOUR, GREY, LABELS, idx, put, put_arrays, put_cifar, put_idx_files
from tests.learning.sections import digits, load_images, quadratic, read_images

REAL_DATA = os.environ.get(FOLDER_VARIABLE)  # taken before the tests hide it


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, folder: Path) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(vision, "download", refuse)
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


@pytest.fixture
def real_data() -> Path:
    if REAL_DATA is None:
        pytest.skip(f"{FOLDER_VARIABLE} names no folder with the real data sets")
    return Path(REAL_DATA)


# Digits ---------------------------------------------------------------------------------------------------


def test_digits_are_split_the_same_way_always() -> None:
    first, second = digits(), digits()
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert (first.train_x.shape, first.test_x.shape) == ((1438, 64), (359, 64))
    assert first.input_shape == DATASETS["digits"].input_shape == (64,)


def test_digits_are_standardised_and_stratified() -> None:
    data = digits()
    assert data.train_x.dtype == np.float32
    assert data.train_y.dtype == np.int64
    assert abs(data.train_x.mean()) < 1e-6
    assert abs(data.train_x.std() - 1) < 1e-5
    test_count, train_count = np.bincount(data.test_y), np.bincount(data.train_y)
    assert np.abs(test_count - (test_count + train_count) / 5).max() <= 0.5


def test_digits_keep_their_images() -> None:
    """Train and test part together are scikit-learn's images, up to order and the one affine map."""
    from sklearn.datasets import load_digits

    data = digits()
    x = np.concatenate([data.train_x, data.test_x])
    scaled = ((x - x.min()) / (x.max() - x.min()) * 16).round()
    ours = np.column_stack([scaled, np.concatenate([data.train_y, data.test_y])])
    bunch = load_digits()
    theirs = np.column_stack([bunch.data, bunch.target])
    assert np.array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_another_file_of_digits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "digits.npz"
    damaged.write_bytes(digits_module.FILE.read_bytes()[:-1] + b"?")
    monkeypatch.setattr(digits_module, "FILE", damaged)
    with pytest.raises(UserError, match="is not the file of digits that comes with coterie"):
        digits()


# Quadratic ------------------------------------------------------------------------------------------------


def rows_of(made: tuple[Dataset, Partition], client: int) -> torch.Tensor:
    data, partition = made
    return torch.from_numpy(data.train_x[partition.train[client]])


def test_quadratic_clients_share_the_optimum_of_their_cluster() -> None:
    made = quadratic(
        clients=7, clusters=3, seed=1, dimension=5, curvatures=(1.0, 0.8), distance=2.0, samples=64
    )
    data, partition = made
    assert partition.clusters == (0, 0, 0, 1, 1, 2, 2)
    assert data.test_x[:, 0].tolist() == pytest.approx([1.0, 0.8, 1.0, 1.0, 0.8, 1.0, 0.8])
    centres = torch.from_numpy(data.test_x[:, 1:])
    torch.testing.assert_close(centres.norm(dim=1), torch.full((7,), 2.0))
    assert torch.equal(centres[0], centres[2])
    assert not torch.equal(centres[2], centres[3])
    for client in range(7):
        rows = rows_of(made, client)
        assert rows.shape == (64, 6)
        assert (rows[:, 0] == data.test_x[client, 0]).all()
        torch.testing.assert_close(rows[:, 1:].mean(dim=0), centres[client], rtol=0, atol=1e-6)
    assert data.input_shape == (6,)


def test_quadratic_gradient_noise_has_the_stated_deviation_whatever_the_curvature() -> None:
    made = quadratic(clients=2, clusters=1, seed=1, curvatures=(4.0, 0.5), noise=0.1, samples=2000)
    for client in range(2):
        rows = rows_of(made, client)
        gradient_at_optimum = rows[:, :1] * (torch.from_numpy(made[0].test_x[client, 1:]) - rows[:, 1:])
        assert gradient_at_optimum.std().item() == pytest.approx(0.1, rel=0.02)


def test_adding_a_quadratic_client_changes_no_noise() -> None:
    few = quadratic(clients=4, clusters=1, seed=3, samples=10)
    many = quadratic(clients=5, clusters=1, seed=3, samples=10)
    assert all(torch.equal(rows_of(few, i), rows_of(many, i)) for i in range(4))


# Files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("mnist", "MNIST/raw"),
        ("mnist", "mnist/MNIST/raw"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("fashion-mnist", "fashion-mnist/FashionMNIST/raw"),
    ],
)
def test_idx_files(tmp_path: Path, name: str, below: str, suffix: str) -> None:
    put_idx_files(tmp_path / below, suffix)
    arrays = read_images(name, tmp_path)
    assert np.array_equal(arrays.train_x, GREY[:, None])
    assert np.array_equal(arrays.test_x, GREY[:5, None])
    assert np.array_equal(arrays.train_y, LABELS)
    assert np.array_equal(arrays.test_y, LABELS[:5])


@pytest.mark.parametrize("suffix", ["", ".xz"])
@pytest.mark.parametrize("below", ["cifar-10-batches-py", "cifar-10/cifar-10-batches-py"])
def test_cifar_10_with_some_of_its_batches(tmp_path: Path, below: str, suffix: str) -> None:
    files = {"data_batch_1": slice(0, 4), "data_batch_3": slice(4, 10), "test_batch": slice(10, 12)}
    put_cifar(tmp_path / below, files, b"labels", suffix)
    arrays = read_images("cifar-10", tmp_path)
    assert np.array_equal(arrays.train_x, COLOUR[:10])
    assert np.array_equal(arrays.train_y, LABELS[:10])
    assert np.array_equal(arrays.test_x, COLOUR[10:])
    assert np.array_equal(arrays.test_y, LABELS[10:])


def test_cifar_100_in_torchvisions_layout(tmp_path: Path) -> None:
    put_cifar(tmp_path / "cifar-100-python", {"train": slice(0, 9), "test": slice(9, 12)}, b"fine_labels")
    arrays = read_images("cifar-100", tmp_path)
    assert np.array_equal(arrays.train_x, COLOUR[:9])
    assert np.array_equal(arrays.test_y, LABELS[9:])


def test_cifar_100_as_arrays(tmp_path: Path) -> None:
    put_arrays(tmp_path / "cifar-100-subset")
    arrays = read_images("cifar-100", tmp_path)
    assert np.array_equal(arrays.train_x, COLOUR[:9])
    assert np.array_equal(arrays.test_x, COLOUR[9:])
    assert arrays.train_y.dtype == np.int64
    assert np.array_equal(arrays.train_y, LABELS[:9])


def test_images_are_normalised_per_channel_by_the_training_part(tmp_path: Path) -> None:
    files = {"data_batch_1": slice(0, 10), "test_batch": slice(10, 12)}
    put_cifar(tmp_path / "cifar-10-batches-py", files, b"labels")
    data = load_images("cifar-10", tmp_path)
    pixels = torch.from_numpy(COLOUR).float() / 255
    std, mean = torch.std_mean(pixels[:10], dim=(0, 2, 3), correction=0, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(data.train_x), (pixels[:10] - mean) / std)
    torch.testing.assert_close(torch.from_numpy(data.test_x), (pixels[10:] - mean) / std)
    assert data.input_shape == DATASETS["cifar-10"].input_shape == (3, 32, 32)


def test_the_named_folder_comes_before_the_environment_and_that_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, images in (("named", 4), ("environment", 5), ("data", 6)):
        raw = tmp_path / folder / "MNIST/raw"
        put_idx_files(raw)
        put(raw / "train-images-idx3-ubyte", idx(GREY[:images]))
        put(raw / "train-labels-idx1-ubyte", idx(LABELS[:images]))
    monkeypatch.chdir(tmp_path)
    assert len(read_images("mnist", None).train_y) == 6
    monkeypatch.setenv(FOLDER_VARIABLE, "environment")
    assert len(read_images("mnist", None).train_y) == 5
    assert len(read_images("mnist", tmp_path / "named").train_y) == 4


def test_missing_files_name_every_folder_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        load_images("cifar-100", tmp_path)
    message = str(refusal.value)
    assert 'data.name = "cifar-100"' in message
    assert "no route to host" in message
    for folder in ("cifar-100-python", "cifar-100/cifar-100-python", "cifar-100-subset"):
        assert f"{tmp_path / folder}: " in message
    assert FOLDER_VARIABLE in message


@pytest.mark.parametrize("missing", ["train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"])
def test_an_incomplete_set_is_missing(tmp_path: Path, missing: str) -> None:
    put_idx_files(tmp_path / "MNIST/raw")
    (tmp_path / "MNIST/raw" / missing).unlink()
    with pytest.raises(UserError, match=missing):
        read_images("mnist", tmp_path)


def test_a_missing_set_is_downloaded_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path]] = []

    def download(name: str, folder: Path) -> None:
        asked.append((name, folder))
        put_idx_files(folder / "FashionMNIST/raw")

    monkeypatch.setattr(vision, "download", download)
    with pytest.raises(UserError, match="this command does not download"):
        read_images("fashion-mnist", tmp_path, download=False)
    assert len(read_images("fashion-mnist", tmp_path).train_y) == 12
    assert len(read_images("fashion-mnist", tmp_path).train_y) == 12
    assert asked == [("FashionMNIST", tmp_path)]


def test_a_folder_that_was_named_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"nowhere \(from --data-dir\): no such folder"):
        read_images("mnist", tmp_path / "nowhere")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"nowhere \(from COTERIE_DATA\): no such folder"):
        read_images("mnist", None)


class _Dangerous:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.marker),)


def test_a_pickle_that_wants_to_run_code_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    put_cifar(folder, {"data_batch_1": slice(0, 4), "test_batch": slice(4, 6)}, b"labels")
    put(folder / "data_batch_1", pickle.dumps({b"data": _Dangerous(tmp_path / "ran"), b"labels": []}))
    with pytest.raises(UserError, match=r"the pickle needs (posix|nt)\.mkdir"):
        read_images("cifar-10", tmp_path)
    assert not (tmp_path / "ran").exists()


# The real files -------------------------------------------------------------------------------------------


def test_real_fashion_mnist(real_data: Path) -> None:
    arrays = read_images("fashion-mnist", real_data)
    assert np.bincount(arrays.train_y).tolist() == [6000] * 10
    assert np.bincount(arrays.test_y).tolist() == [1000] * 10
    mean, std = channel_statistics(arrays.train_x)
    assert (round(float(mean[0]), 4), round(float(std[0]), 4)) == (0.2860, 0.3530)


@pytest.mark.long
def test_real_cifar_10(real_data: Path, tmp_path: Path) -> None:
    """The original files are pickles of Python 2; one of them is enough to see that they can be read."""
    folder = tmp_path / "cifar-10-batches-py"
    put_cifar(folder, {"test_batch": slice(0, 2)}, b"labels")
    original = real_data / "cifar-10/cifar-10-batches-py/data_batch_1.xz"
    (folder / original.name).symlink_to(original.resolve())
    arrays = read_images("cifar-10", tmp_path)
    assert arrays.train_x.shape == (10_000, 3, 32, 32)
    assert np.bincount(arrays.train_y).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]


@pytest.mark.long
def test_real_cifar_100(real_data: Path) -> None:
    data = load_images("cifar-100", real_data)
    assert np.bincount(data.train_y).tolist() == [50] * 100
    assert np.bincount(data.test_y).tolist() == [20] * 100
    assert data.train_x.shape == (5000, 3, 32, 32)


# torchvision ----------------------------------------------------------------------------------------------


def test_torchvision_imports_beside_a_cpu_torch() -> None:
    torchvision = vision.import_torchvision()
    assert vision.import_torchvision() is torchvision
    for kind in map(DATASETS.__getitem__, IMAGE_DATASETS):
        assert issubclass(kind, ImageData)
        assert kind.torchvision is None or hasattr(torchvision.datasets, kind.torchvision)
    assert torchvision.models.resnet18(num_classes=3).fc.out_features == 3
