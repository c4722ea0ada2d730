"""What a data set is: a section of the scenario, which makes arrays, and who owns which rows of them."""

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
"""Data that are made have no more: 8 GB while they are made."""

_LISTS = 5  # of numbers of samples, each as long as the labels, that a partition makes
_NAMED = 20  # columns in a line

Rows = tuple[np.ndarray, ...]
"""Numbers of samples, int64, of each client."""


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set, as arrays.

    train_x, test_x: float32 [n, *input_shape]; train_y, test_y: classes, int64 [n], or the numbers that a
    regression predicts, float32 [n, T]. outputs: K classes, or T numbers; 0 where samples have neither.
    scaling: mean and standard deviation per channel of images [C, H, W], which hold (pixel - mean) / std with
    pixels in [0, 1]; None for other data. held_back: how many of the training samples, the last ones, are a
    validation part of the data's own. owners: whose the samples are, where the data say so. inputs: the
    shapes of several inputs, whose numbers lie side by side in a sample; None for one. features: what the
    user's own samples were read as, in words. tokenizer: the identity of what made the tokens of texts, whose
    samples x and targets y are int64 [n, T]. notices: what is surely not meant so, a line for each thing.
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    outputs: int
    scaling: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    held_back: int = 0
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
        """The bytes that all samples take, with the lists of who owns which."""
        y_bytes = self.train_y.nbytes + self.test_y.nbytes
        return self.train_x.nbytes + self.test_x.nbytes + _LISTS * y_bytes

    @property
    def labels(self) -> Labels:
        """What a partition may know of the samples."""
        train, held_back = np.split(self.train_y, [len(self.train_y) - self.held_back])
        return Labels(train, self.test_y, self.outputs, held_back, self.owners)


class DataSection(Settings):
    """The section `[data]` with one data set: its keys, what is known of it before it is read, and itself."""

    tasks: ClassVar[tuple[str, ...]]
    """What the data may be for, of `OBJECTIVES`: what is minimised, and what models are judged by."""
    classes: ClassVar[int | None]
    """Number of classes K; 0 where samples have none, None where only the samples say so."""
    input_shape: ClassVar[tuple[int, ...] | None]
    """Shape of one sample; None where the keys or the samples decide it."""

    name: str
    """The data set."""

    @property
    def task(self) -> str:
        """What the data are for: one of `tasks`."""
        return self.tasks[0]

    @property
    def is_images(self) -> bool:
        """Whether a sample is an image [C, H, W]."""
        return self.input_shape is not None and len(self.input_shape) == 3

    @abstractmethod
    def misfits(self, clients: int) -> Iterator[SettingError]:
        """What does not fit so many clients; keys begin with `data`."""

    @abstractmethod
    def load(self, clients: int, seed: int, folder: DataFolder) -> Dataset:
        """The samples. Raises UserError, for missing or unreadable files say; see `data_folder`."""

    @abstractmethod
    def share_out(self, dataset: Dataset, clients: int, seed: int) -> tuple[Partition, Rows]:
        """Who owns which training and test samples, and the rows that each holds back for validation."""


class LabelledData(DataSection):
    """Samples with class labels, which a partition shares out to the clients."""

    tasks: ClassVar[tuple[str, ...]] = ("classification",)

    partition: PartitionKind
    """Who gets which samples: a kind, or a table with its settings."""
    test_samples: Count | None = None
    """At most so many test samples per client."""
    validation_share: ShareBelowOne = 0.0
    """Share of each client's training samples that it holds back for its own validation."""

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
                    f"data.validation_share = {self.validation_share}: who validates on what is said by the "
                    "data or the partition already; leave the key out"
                )
            partition = partition.hold_back(self.validation_share, seed)
        elif dataset.held_back and partition.validation is None:
            raise UserError(
                "data.partition: does not share out the validation part that the data have; must be iid, "
                "natural, or lists of your own (a file, a function)"
            )
        return partition, partition.validation or no_validation(clients)


def memory_misfits(key: str, value: object, clients: int, numbers: int) -> Iterator[SettingError]:
    """What is wrong with a setting of data that are made, if they come to so many `numbers`."""
    if numbers > NUMBERS_MAX:
        problem = (
            f"{clients:,} clients with so many samples make {numbers:,} numbers, which do not fit in memory"
        )
        yield SettingError(key, value, f"{problem}; must be at most {NUMBERS_MAX:,}")


def in_list(names: Sequence[str]) -> str:
    """Names in one line, the first ones of many."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def no_validation(clients: int) -> Rows:
    """No rows for anybody."""
    return (np.empty(0, dtype=np.int64),) * clients
