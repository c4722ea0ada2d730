"""Data sets: the section of the scenario, the arrays, and the owners of their rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import Count, ShareBelowOne
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.partitions.dealing import Labels, Owners
from sim.learning.partitions.kinds import PartitionKind
from sim.learning.partitions.partition import Partition

NUMBERS_MAX = 3 * 10**8
"""Largest count of numbers in generated data: 8 GB while they are generated."""

_LISTS = 5  # lists of sample numbers in a partition, each as long as the labels
_NAMED = 20  # names in a line

Rows = tuple[np.ndarray, ...]
"""Sample numbers, int64, of each client."""


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set, as arrays.

    train_x, test_x: float32 [n, *input_shape]; train_y, test_y: classes, int64 [n], or the targets of a
    regression, float32 [n, T]. outputs: K classes, or T numbers; 0 if samples have neither. scaling: mean and
    standard deviation per channel of images [C, H, W], which are (pixel - mean) / std with pixels in [0, 1];
    None for other data. validation_count: size of the data's validation part, which is the last part of the
    training samples. owners: owners of the samples, if the data defines them. inputs: shapes of several
    inputs, which are concatenated in a sample; None for one input. features: description of the user's
    samples as they were read. tokenizer: identity of the tokenizer of texts, whose samples x and targets y
    are int64 [n, T]. notices: one line for each property of the data that is surely unintended.
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    outputs: int
    scaling: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    validation_count: int = 0
    owners: Owners | None = None
    inputs: tuple[tuple[int, ...], ...] | None = None
    features: str = ""
    tokenizer: str = ""
    notices: tuple[str, ...] = ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.train_x.shape[1:]

    @property
    def size_bytes(self) -> int:
        """Bytes of all samples, with the lists of their owners."""
        y_bytes = self.train_y.nbytes + self.test_y.nbytes
        return self.train_x.nbytes + self.test_x.nbytes + _LISTS * y_bytes

    @property
    def labels(self) -> Labels:
        """Labels and owners of the samples, for a partition."""
        train, validation = np.split(self.train_y, [len(self.train_y) - self.validation_count])
        return Labels(train, self.test_y, self.outputs, validation, self.owners)


class DataSection(Settings):
    """Section `[data]` with one data set: its keys, its properties before it is read, and its reader."""

    tasks: ClassVar[tuple[str, ...]]
    """Tasks of the data, from `OBJECTIVES`: the training loss, and the metrics of models."""
    classes: ClassVar[int | None]
    """Number of classes K; 0 if samples have no classes, None if only the samples state the number."""
    input_shape: ClassVar[tuple[int, ...] | None]
    """Shape of one sample; None if the keys or the samples determine it."""

    name: str
    """Name of the data set."""

    @property
    def task(self) -> str:
        """Task of the data: one of `tasks`."""
        return self.tasks[0]

    @property
    def is_images(self) -> bool:
        """True if a sample is an image [C, H, W]."""
        return self.input_shape is not None and len(self.input_shape) == 3

    @abstractmethod
    def misfits(self, clients: int) -> Iterator[SettingError]:
        """Yield settings that are impossible for this number of clients; their keys start with `data`."""

    @abstractmethod
    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """Return the samples. Raises UserError, for example for missing files; see `data_folder`."""

    @abstractmethod
    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """Return the owners of training and test samples, and each client's rows for validation."""


class LabelledData(DataSection):
    """Samples with class labels, which a partition distributes to the clients."""

    tasks: ClassVar[tuple[str, ...]] = ("classification",)

    partition: PartitionKind
    """Partition of the samples among the clients: a kind, or a table with its settings."""
    test_samples: Count | None = None
    """Largest number of test samples of a client."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's training samples that it holds out for validation."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        assert self.classes is not None
        return self.partition.misfits(clients, self.classes, self.name)

    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        partition = self.partition.deal(dataset.labels, clients, seed)
        if self.partition.tests == "all":
            partition = replace(partition, test=(np.arange(len(dataset.test_y)),) * clients)
        if self.test_samples is not None:
            partition = partition.cap_test(self.test_samples, seed)
        if self.validation_share:
            if partition.validation is not None:
                raise UserError(
                    f"data.validation_share = {self.validation_share}: the data or the partition already "
                    "defines the validation samples; remove the key"
                )
            partition = partition.hold_back(self.validation_share, seed)
        elif dataset.validation_count and partition.validation is None:
            raise UserError(
                "data.partition: does not distribute the validation part of the data; use iid, natural, or "
                "your own lists (a file or a function)"
            )
        return partition, partition.validation or empty_validation_rows(clients)


def memory_misfits(key: str, value: object, clients: int, numbers: int) -> Iterator[SettingError]:
    """Yield an error for a setting of generated data if the data would have too many `numbers`."""
    if numbers > NUMBERS_MAX:
        problem = f"with this value, {clients:,} clients have {numbers:,} numbers, which do not fit in memory"
        yield SettingError(key, value, f"{problem}; must be at most {NUMBERS_MAX:,} numbers")


def names_in_one_line(names: Sequence[str]) -> str:
    """Return names in one line, shortened if there are many."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def empty_validation_rows(clients: int) -> Rows:
    """Return empty validation rows for each client."""
    return (np.empty(0, dtype=np.int64),) * clients
