"""Data sets as tensors: inputs normalised by the training part's mean and standard deviation, per channel."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.data_files import ImageArrays, read_images
from sim.learning.dealing import Labels, cluster_members, even_sizes
from sim.learning.image_checks import IMAGE_KINDS
from sim.learning.partitions import Partition


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set, on the CPU.

    train_x, test_x: float32 [n, *input_shape]; train_y, test_y: int64 [n]. `classes` is the number of classes
    K, 0 for the task "quadratic". `partition` is the split that comes with the data, None where the scenario
    chooses one. scaling: mean and standard deviation per channel of images [C, H, W], which hold
    (pixel - mean) / std with pixels in [0, 1]; None for other data.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    task: Literal["classification", "quadratic"]
    partition: Partition | None = None
    scaling: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train_x.shape[1:])

    @property
    def labels(self) -> Labels:
        """What the partitions need to know."""
        return Labels(self.train_y.numpy(), self.test_y.numpy(), self.classes)


DATASETS = ("digits", *IMAGE_KINDS, "quadratic")


def load_dataset(
    name: str,
    data_dir: Path | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    download: bool = True,
) -> Dataset:
    """The data set `name`, one of DATASETS; `options` are the keyword arguments of `quadratic`, others have
    none.

    Image files are looked for as `read_images` says. Raises UserError for an unknown name, and for missing or
    unreadable files.
    """
    if name == "quadratic":
        return quadratic(**(options or {}))
    if options:
        raise UserError(f'data.{next(iter(options))}: not a setting of data.name = "{name}"')
    if name == "digits":
        return digits()
    if name in IMAGE_KINDS:
        return _from_images(name, read_images(name, data_dir, download=download), IMAGE_KINDS[name].classes)
    raise UserError(f'data.name = "{name}": unknown; allowed: {", ".join(DATASETS)}')


def digits() -> Dataset:
    """scikit-learn's 1,797 handwritten digits, 8x8 pixels as 64 numbers, 10 classes.

    A fixed fifth of every class is the test part, whatever the scenario's seed, so that runs of different
    seeds are tested on the same samples. All pixels share one mean and one standard deviation.
    """
    from sklearn.datasets import load_digits  # takes a second to import, and only this data set needs it

    bunch = load_digits()
    pixels = torch.from_numpy(bunch.data / 16).float()
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    rng = np.random.Generator(np.random.Philox(key=1797))
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        members = rng.permutation(np.flatnonzero(bunch.target == label))
        test[members[: round(len(members) / 5)]] = True
    train = torch.from_numpy(~test)
    std, mean = torch.std_mean(pixels[train], correction=0)
    x = (pixels - mean) / std
    return Dataset("digits", x[train], labels[train], x[~train], labels[~train], 10, "classification")


def _from_images(name: str, arrays: ImageArrays, classes: int) -> Dataset:
    mean, std = channel_statistics(arrays.train_x)
    shape = (1, -1, 1, 1)

    def normalised(images: np.ndarray) -> Tensor:
        x = torch.from_numpy(images.astype(np.float32)).div_(255)
        return x.sub_(torch.tensor(mean).float().view(shape)).div_(torch.tensor(std).float().view(shape))

    return Dataset(
        name,
        normalised(arrays.train_x),
        torch.from_numpy(arrays.train_y),
        normalised(arrays.test_x),
        torch.from_numpy(arrays.test_y),
        classes,
        "classification",
        scaling=(tuple(mean.tolist()), tuple(std.tolist())),
    )


def channel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation per channel, float64 [C], of the pixels / 255 of images uint8 [n, C, H, W].

    Counting the 256 possible values keeps both exact, at a fraction of the memory that floats would take.
    """
    counts = np.stack([np.bincount(channel.reshape(-1), minlength=256) for channel in images.swapaxes(0, 1)])
    values = np.arange(256) / 255
    pixels = counts.sum(axis=1)
    mean = counts @ values / pixels
    return mean, np.sqrt(counts @ values**2 / pixels - mean**2)


def quadratic(
    *,
    clients: int,
    clusters: int,
    seed: int,
    dimension: int = 20,
    curvatures: tuple[float, ...] = (1.0, 0.8),
    distance: float = 2.0,
    noise: float = 0.1,
    samples: int = 256,
) -> Dataset:
    """Quadratic clients f_i(x) = a_i/2 ||x - mu_k||^2, k the cluster of client i (CoBo, Example 2).

    A row is (a, target) in R^(1 + dimension), to be minimised as a/2 ||x - target||^2. Each client has
    `samples` train rows with target = mu_k + (noise/a) e, e standard normal: a batch of one row gives the
    gradient of f_i plus noise of standard deviation `noise` in every coordinate. The e come in pairs of
    opposite sign, so that the mean over a client's rows is f_i up to a constant, not only in expectation. Its
    single test row has the target mu_k.

    mu_k has norm `distance` and a random direction. Clients are split over the clusters as evenly as
    possible, in blocks; within a cluster they take the curvatures in turn. Raises UserError for values
    without meaning.
    """
    if not 1 <= clusters <= clients:
        raise UserError(f"data.clusters = {clusters}: allowed are 1 to clients.count = {clients}")
    if samples < 2 or samples % 2:
        raise UserError(f"data.samples = {samples}: rows come in pairs, so give an even number, at least 2")
    if dimension < 1 or distance < 0 or noise < 0 or not curvatures or min(curvatures) <= 0:
        raise UserError(
            f"data.dimension = {dimension}, data.distance = {distance}, data.noise = {noise}, "
            f"data.curvatures = {list(curvatures)}: allowed are dimension >= 1, distance >= 0, noise >= 0, "
            "curvatures all > 0"
        )
    train, test, owner_cluster = [], [], []
    for cluster, members in enumerate(cluster_members(even_sizes(clients, clusters))):
        direction = stream(seed, "quadratic", "centre", cluster).standard_normal(dimension)
        centre = distance * direction / np.linalg.norm(direction)
        for place, client in enumerate(members):
            a = curvatures[place % len(curvatures)]
            half = stream(seed, "quadratic", "noise", client).standard_normal((samples // 2, dimension))
            targets = centre + noise / a * np.concatenate([half, -half])
            train.append(np.column_stack([np.full(samples, a), targets]))
            test.append(np.concatenate([[a], centre]))
            owner_cluster.append(cluster)
    train_x = torch.from_numpy(np.concatenate(train)).float()
    test_x = torch.from_numpy(np.stack(test)).float()
    partition = Partition(
        train=tuple(np.arange(i * samples, (i + 1) * samples) for i in range(clients)),
        test=tuple(np.array([i]) for i in range(clients)),
        clusters=tuple(owner_cluster),
    )
    labels = torch.zeros(len(train_x), dtype=torch.int64)
    return Dataset("quadratic", train_x, labels, test_x, labels[:clients], 0, "quadratic", partition)
