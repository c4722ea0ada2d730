"""Helpers of partitions: sizes, clusters, and functions that distribute samples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from sim.errors import UserError
from sim.kernel.random import stream


@dataclass(frozen=True)
class Owners:
    """Owners of the samples, for data sets that define them.

    names: the data's names of clients, in order. train, test, validation: the index in `names` of each
    sample's client, int64 [n]. test is None if test samples have no owners.
    """

    names: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray | None
    validation: np.ndarray


@dataclass(frozen=True)
class Labels:
    """Labels of a data set's parts, and the owners of the samples if the data set defines them.

    Labels are int64 [n] in 0 .. classes - 1, or for a regression float32 [n, classes]."""

    train: np.ndarray
    test: np.ndarray
    classes: int
    validation: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    owners: Owners | None = None


def even_sizes(total: int, parts: int) -> list[int]:
    """Return `total` as a sum of `parts` whole numbers, as equal as possible, in descending order."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def cluster_members(sizes: Sequence[int]) -> list[range]:
    """Return consecutive numbers 0, 1, ... in blocks of these sizes."""
    return [range(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def cluster_by_client(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the cluster of each client, for clusters of these sizes in blocks: sizes 2, 1 give 0, 0, 1."""
    return tuple(k for k, size in enumerate(sizes) for _ in range(size))


def rows_by_class(labels: np.ndarray, classes: int) -> list[np.ndarray]:
    """Return the indices of the samples of each class, ascending."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(1, classes)))


class StatedCount(NamedTuple):
    """A number of samples for each client, and the key of the scenario that states this number."""

    key: str
    number: int


def check_enough(available: int, clients: int, each: StatedCount) -> None:
    """Raise UserError unless `each` is at least 1, and the `available` samples suffice for all clients."""
    if each.number < 1 or clients * each.number > available:
        most = available // clients
        values = "1" if most == 1 else f"from 1 to {most}"
        allowed = f"so the value must be {values}" if most else "too few; use fewer clients"
        raise UserError(
            f"{each.key} = {each.number}: {clients} clients share {available} training samples, {allowed}"
        )


def check_min_samples(least: StatedCount, clients: int, available: int) -> None:
    """Raise UserError if the `available` samples are too few for this many samples per client."""
    if clients * least.number > available:
        raise UserError(
            f"{least.key} = {least.number}: {clients} clients share {available} training samples, which are "
            "too few; use a smaller value or fewer clients"
        )


def deal_repeatedly(rows: np.ndarray, clients: int, each: StatedCount) -> tuple[np.ndarray, ...]:
    """Return the shuffled `rows` in consecutive parts of the given size; the first row follows the last.

    Raises UserError if a client would get a row twice.
    """
    if each.number > len(rows):
        raise UserError(
            f"{each.key} = {each.number}: there are {len(rows)} training samples, and no client may have a "
            f"sample twice; must be at most {len(rows)}"
        )
    indices = np.arange(clients * each.number).reshape(clients, each.number) % len(rows)
    return tuple(np.sort(rows[indices], axis=1))


def deal(rows: np.ndarray, clients: int, each: StatedCount | None) -> tuple[np.ndarray, ...]:
    """Return the shuffled `rows` in consecutive parts: of size `each`; with None, all rows in equal parts.

    Equal parts differ in size by at most 1. Raises UserError if there are too few rows for size `each`.
    """
    if each is None:
        parts = np.array_split(rows, clients)
    else:
        check_enough(len(rows), clients, each)
        parts = [rows[i * each.number : (i + 1) * each.number] for i in range(clients)]
    return tuple(np.sort(part) for part in parts)


class ClassPools:
    """Training samples of each class in random order, which are taken from the front."""

    def __init__(self, labels: Labels, seed: int) -> None:
        self.rows = [
            stream(seed, "partition", "class", label).permutation(rows)
            for label, rows in enumerate(rows_by_class(labels.train, labels.classes))
        ]
        self.left = np.array([len(rows) for rows in self.rows])

    def take(self, label: int, count: int) -> np.ndarray:
        """Return the next `count` samples of the class. Raises UserError if there are fewer."""
        if count > self.left[label]:
            raise UserError(
                f"data.partition: class {label} has {len(self.rows[label])} training samples, "
                f"{self.left[label]} of them not yet taken, but the next client needs {count}; "
                "use fewer clients, or fewer samples for each client"
            )
        start = len(self.rows[label]) - self.left[label]
        self.left[label] -= count
        return self.rows[label][start : start + count]
