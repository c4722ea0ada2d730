"""Clients with different classes: a mixture of all classes, or a few classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import PositiveFloat, model_validator

from actors.settings.base import SettingError
from actors.settings.quantities import Count, Within
from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.partitions.dealing import (
    ClassPools,
    Labels,
    StatedCount,
    check_enough,
    check_min_samples,
    even_sizes,
    rows_by_class,
)
from sim.learning.partitions.partition import Partition, SampledPartition, more_than_classes_error

_ATTEMPTS_MAX = 1000


class Dirichlet(SampledPartition):
    """Each client's mixture of classes is drawn from a Dirichlet distribution."""

    kind: Literal["dirichlet"]
    alpha: Annotated[PositiveFloat, Within(0.001, 1_000_000)]
    """Concentration: a small value gives few classes per client, and a large value approaches iid."""
    min_samples: Count = 2
    """Smallest number of training samples of a client, if `samples_per_client` is not set."""
    class_clusters: Count | None = None
    """Number of random clusters of classes, as equal as possible, that are mixed instead of single
    classes."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> Dirichlet:
        each = self.samples_per_client
        if each is not None and "min_samples" in self.model_fields_set and self.min_samples > each:
            problem = f"must be at most samples_per_client = {each}, the number for all clients"
            raise SettingError("min_samples", self.min_samples, problem)
        return self

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        if self.class_clusters is not None and self.class_clusters > classes:
            yield more_than_classes_error("class_clusters", self.class_clusters, classes, data)

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Draw class mixes from a symmetric Dirichlet distribution; a smaller `alpha` separates clients more.

        With `samples_per_client`, each client draws its mix of classes from Dir(alpha) over the classes (Hsu,
        Qi and Brown 2019); if a class runs out, the remaining samples are drawn from the others. Without it,
        each class is split over the clients by shares from Dir(alpha) over the clients (Yurochkin et al.
        2019); all shares are redrawn until each client has `min_samples`. A client gets as many test samples
        as possible with the mix of classes of its training samples.

        With `class_clusters`, all classes of a cluster count as one (FedEM; FedeRiCo with 4 and alpha = 0.4).
        """
        if self.class_clusters is not None:
            labels = _label_by_cluster(labels, self.class_clusters, seed)
        pools = ClassPools(labels, seed)
        if (each := self.of_each) is None:
            train = _split_classes(pools, clients, seed, self.alpha, self.min_samples)
        else:
            check_enough(len(labels.train), clients, each)
            train = tuple(
                _draw_mix(pools, stream(seed, "partition", "mix", i), self.alpha, each.number)
                for i in range(clients)
            )
        by_class = rows_by_class(labels.test, labels.classes)
        test = (
            _draw_matching_test(by_class, labels.train[rows], stream(seed, "partition", "test", i))
            for i, rows in enumerate(train)
        )
        return Partition(train, tuple(test))


def _label_by_cluster(labels: Labels, clusters: int, seed: int) -> Labels:
    """Return the same samples, each labeled by the cluster of its class."""
    mixed = stream(seed, "partition", "class-clusters").permutation(labels.classes)
    cluster_of = np.empty(labels.classes, dtype=np.int64)
    for cluster, members in enumerate(np.array_split(mixed, clusters)):
        cluster_of[members] = cluster
    return Labels(cluster_of[labels.train], cluster_of[labels.test], clusters)


def _draw_mix(pools: ClassPools, rng: np.random.Generator, alpha: float, count: int) -> np.ndarray:
    mix = rng.dirichlet(np.full(len(pools.rows), alpha))
    parts = []
    while count:
        weights = np.where(pools.left > 0, mix, 0.0)
        if weights.sum() == 0:  # all classes of the client are used up
            weights = (pools.left > 0).astype(float)
        drawn = np.minimum(rng.multinomial(count, weights / weights.sum()), pools.left)
        parts += [pools.take(label, int(number)) for label, number in enumerate(drawn) if number]
        count -= int(drawn.sum())
    return np.sort(np.concatenate(parts))


def _split_classes(
    pools: ClassPools, clients: int, seed: int, alpha: float, min_samples: int
) -> tuple[np.ndarray, ...]:
    check_min_samples(
        StatedCount("data.partition.min_samples", min_samples), clients, sum(map(len, pools.rows))
    )
    rng = stream(seed, "partition", "shares")
    class_sizes = np.array([len(rows) for rows in pools.rows])
    for _ in range(_ATTEMPTS_MAX):
        shares = rng.dirichlet(np.full(clients, alpha), size=len(class_sizes))
        ends = np.rint(np.cumsum(shares, axis=1) * class_sizes[:, None]).astype(int)
        if np.diff(ends, axis=1, prepend=0).sum(axis=0).min() >= min_samples:
            pieces = [np.split(rows, end[:-1]) for rows, end in zip(pools.rows, ends, strict=True)]
            return tuple(np.sort(np.concatenate(part)) for part in zip(*pieces, strict=True))
    raise UserError(
        f"data.partition.alpha = {alpha}: in each of {_ATTEMPTS_MAX} draws, one of the "
        f"{clients} clients got fewer than min_samples = {min_samples}; "
        "use a larger alpha, a smaller min_samples, or samples_per_client"
    )


def _draw_matching_test(
    by_class: Sequence[np.ndarray], train_labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return as many test samples as possible with the mix of classes in `train_labels`, up to rounding.

    Classes without test samples do not count.
    """
    train_counts = np.bincount(train_labels, minlength=len(by_class))
    test_counts = np.array([len(rows) for rows in by_class])
    mine = np.flatnonzero((train_counts > 0) & (test_counts > 0))
    if not mine.size:
        return np.empty(0, dtype=np.int64)
    scale = np.min(test_counts[mine] / train_counts[mine])
    wanted = np.rint(train_counts * scale).astype(int)
    drawn = [rng.permutation(by_class[label])[: wanted[label]] for label in mine.tolist()]
    return np.sort(np.concatenate(drawn))


class ClassesPerClient(SampledPartition):
    """Each client has samples of a few classes, drawn at random."""

    kind: Literal["classes-per-client"]
    classes: Count
    """Number of classes of each client."""

    def misfits(self, clients: int, classes: int, data: str) -> Iterator[SettingError]:
        if self.classes > classes:
            yield more_than_classes_error("classes", self.classes, classes, data)

    def deal(self, labels: Labels, clients: int, seed: int) -> Partition:
        """Give each client `classes` classes drawn at random (the non-iid setting of SCooL).

        `samples_per_client` are spread evenly over these classes; without it, a class is split evenly over
        the clients that own it. A class that no client drew is not used. Clients are tested on all test
        samples of their classes.
        """
        pools = ClassPools(labels, seed)
        draws = [stream(seed, "partition", "classes", i) for i in range(clients)]
        owned = [np.sort(rng.choice(labels.classes, self.classes, replace=False)) for rng in draws]
        if self.samples_per_client is None:
            parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
            for label, rows in enumerate(pools.rows):
                owners = [part for part, mine in zip(parts, owned, strict=True) if label in mine]
                for owner, piece in zip(owners, np.array_split(rows, max(1, len(owners))), strict=False):
                    owner.append(piece)
        else:
            counts = even_sizes(self.samples_per_client, self.classes)
            parts = [
                [pools.take(label, count) for label, count in zip(mine, counts, strict=True)]
                for mine in owned
            ]
        train = [np.concatenate(part) for part in parts]
        by_class = rows_by_class(labels.test, labels.classes)
        test = (np.sort(np.concatenate([by_class[label] for label in mine])) for mine in owned)
        return Partition(tuple(np.sort(rows) for rows in train), tuple(test))
