"""Who owns which samples: pure functions from labels to index lists, one per kind of heterogeneity.

Training samples are never shared: each belongs to one client at most. Test samples are: every client is
tested on all test samples that fit its own distribution. Where `samples_per_client` is given, what a client
owns depends on the seed and on the clients before it only, so that adding a client at the end changes nobody
else's data.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.errors import UserError
from sim.kernel.random import stream
from sim.learning.dealing import (
    ClassPools,
    Labels,
    check_enough,
    check_nobody_empty,
    cluster_members,
    cluster_sizes,
    deal,
    even_sizes,
    membership,
    rows_by_class,
)

_DIRICHLET_ATTEMPTS_MAX = 1000


@dataclass(frozen=True)
class Partition:
    """What each client owns, by client number.

    train, test: indices int64 into the data set's parts. clusters: each client's true cluster, None where
    none is defined. label_maps: client i sees the label y as label_maps[i][y] (int64 [K]); None where all see
    the data set's own.
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    clusters: tuple[int, ...] | None = None
    label_maps: tuple[np.ndarray, ...] | None = None

    def cap_test(self, limit: int, seed: int) -> "Partition":
        """The same with at most `limit` test samples per client, drawn at random."""
        drawn = (
            rows
            if len(rows) <= limit
            else np.sort(stream(seed, "partition", "cap-test", i).choice(rows, limit, replace=False))
            for i, rows in enumerate(self.test)
        )
        return replace(self, test=tuple(drawn))

    def hold_back(self, share: float, seed: int) -> tuple["Partition", tuple[np.ndarray, ...]]:
        """Split each client's train samples into (partition with the rest, its own validation samples).

        `share` of the samples (0 < share < 1, rounded, at least one) are held back. Raises UserError if
        nothing is left to train on.
        """
        kept, held_back = [], []
        for i, rows in enumerate(self.train):
            count = max(1, round(share * len(rows)))
            if count >= len(rows):
                raise UserError(
                    f"data.validation_share = {share}: leaves client {i}, who owns {len(rows)} samples, "
                    "none to train on"
                )
            mixed = stream(seed, "partition", "validation", i).permutation(rows)
            held_back.append(np.sort(mixed[:count]))
            kept.append(np.sort(mixed[count:]))
        return replace(self, train=tuple(kept)), tuple(held_back)


def iid(labels: Labels, clients: int, seed: int, *, samples_per_client: int | None = None) -> Partition:
    """Uniformly at random: `samples_per_client` each, or everything in equal parts; tested on everything."""
    rows = stream(seed, "partition", "rows").permutation(len(labels.train))
    return Partition(deal(rows, clients, samples_per_client), (np.arange(len(labels.test)),) * clients)


def dirichlet(
    labels: Labels,
    clients: int,
    seed: int,
    *,
    alpha: float,
    samples_per_client: int | None = None,
    min_samples: int = 2,
) -> Partition:
    """Class mixes from a symmetric Dirichlet distribution; a smaller `alpha` makes clients more different.

    With `samples_per_client`, each client draws its mix of classes from Dir(alpha) over the classes (Hsu, Qi
    and Brown 2019); where a class runs out, the rest is drawn from the others. Without, each class is split
    over the clients by shares from Dir(alpha) over the clients (Yurochkin et al. 2019), and redrawn until
    everyone has `min_samples`. The test samples of a client are as many as can have its train samples' mix of
    classes.
    """
    if alpha <= 0:
        raise UserError(f"data.partition.alpha = {alpha}: allowed are numbers > 0")
    pools = ClassPools(labels, seed)
    if samples_per_client is None:
        train = _split_classes(pools, clients, seed, alpha, min_samples)
    else:
        check_enough(len(labels.train), clients, samples_per_client)
        train = tuple(
            _draw_mix(pools, stream(seed, "partition", "mix", i), alpha, samples_per_client)
            for i in range(clients)
        )
    by_class = rows_by_class(labels.test, labels.classes)
    test = (
        _test_like(by_class, labels.train[rows], stream(seed, "partition", "test", i))
        for i, rows in enumerate(train)
    )
    return Partition(train, tuple(test))


def classes_per_client(
    labels: Labels, clients: int, seed: int, *, classes: int, samples_per_client: int | None = None
) -> Partition:
    """Each client owns `classes` classes drawn at random (the non-iid setting of SCooL).

    `samples_per_client` are spread evenly over them; without it, a class is split evenly over those who own
    it. A class that nobody drew is not used. Tested on all test samples of the own classes.
    """
    if not 1 <= classes <= labels.classes:
        raise UserError(f"data.partition.classes = {classes}: the data allow 1 to {labels.classes}")
    pools = ClassPools(labels, seed)
    owned = [
        np.sort(stream(seed, "partition", "classes", i).choice(labels.classes, classes, replace=False))
        for i in range(clients)
    ]
    if samples_per_client is None:
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for label in range(labels.classes):
            owners = [i for i in range(clients) if label in owned[i]]
            for owner, rows in zip(
                owners, np.array_split(pools.rows[label], max(1, len(owners))), strict=False
            ):
                parts[owner].append(rows)
        train = [np.concatenate(part) for part in parts]
    else:
        counts = even_sizes(samples_per_client, classes)
        train = [
            np.concatenate([pools.take(label, count) for label, count in zip(mine, counts, strict=True)])
            for mine in owned
        ]
    check_nobody_empty(train)
    by_class = rows_by_class(labels.test, labels.classes)
    test = (np.sort(np.concatenate([by_class[label] for label in mine])) for mine in owned)
    return Partition(tuple(np.sort(rows) for rows in train), tuple(test))


def permuted_clusters(
    labels: Labels,
    clients: int,
    seed: int,
    *,
    clusters: int | None = None,
    sizes: Sequence[int] | None = None,
    samples_per_client: int | None = None,
    shift: int | None = None,
) -> Partition:
    """Clusters that disagree on what the classes are called (CoBo, cross-silo).

    Each cluster sees all labels through a permutation of its own, in training and in testing; inputs are
    dealt to all clients at random, as in `iid`, so that only the labels tell the clusters apart. The
    permutations are random and pairwise different, no more: two of them agree on one class on average (on
    none with probability 1/e, about, on all but two at worst). With `shift`, cluster k calls the class y (y +
    shift k) mod K instead, and no two clusters agree on any class; CoBo's code does so on CIFAR-100 with
    shift = 11.

    Give `clusters`, for clusters as equal as possible, or their `sizes`; clients are assigned in blocks.
    """
    resolved_sizes = cluster_sizes(clients, clusters, sizes)
    count = len(resolved_sizes)
    if shift is None:
        maps = _different_permutations(labels.classes, count, seed)
    else:
        if len({shift * k % labels.classes for k in range(count)}) < count:
            raise UserError(
                f"data.partition.shift = {shift}: with {labels.classes} classes, two of {count} clusters "
                "would have the same labels; use a shift without a factor in common with the number of "
                "classes, and no more clusters than classes"
            )
        maps = [(np.arange(labels.classes) + shift * k) % labels.classes for k in range(count)]
    cluster_of = membership(resolved_sizes)
    return replace(
        iid(labels, clients, seed, samples_per_client=samples_per_client),
        clusters=cluster_of,
        label_maps=tuple(maps[k] for k in cluster_of),
    )


def disjoint_clusters(
    labels: Labels,
    clients: int,
    seed: int,
    *,
    clusters: int | None = None,
    sizes: Sequence[int] | None = None,
    samples_per_client: int | None = None,
    relabel: bool = False,
) -> Partition:
    """Clusters that own disjoint blocks of classes (CoBo, cross-device; SCooL's block model).

    Cluster k owns the k-th of equal blocks of consecutive classes, whatever its number of clients, who share
    the block's samples at random. Tested on all test samples of the block. With `relabel`, a class is called
    by its place in its block, 0, 1, ... (CoBo's code), so that clusters also contradict each other.

    Give `clusters`, for clusters as equal as possible, or their `sizes`; clients are assigned in blocks.
    """
    resolved_sizes = cluster_sizes(clients, clusters, sizes)
    if len(resolved_sizes) > labels.classes:
        raise UserError(
            f"data.partition: {len(resolved_sizes)} clusters cannot own disjoint classes of {labels.classes}"
        )
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    maps: list[np.ndarray] = []
    train_by_class = rows_by_class(labels.train, labels.classes)
    test_by_class = rows_by_class(labels.test, labels.classes)
    for k, (block, size) in enumerate(
        zip(cluster_members(even_sizes(labels.classes, len(resolved_sizes))), resolved_sizes, strict=True)
    ):
        rows = stream(seed, "partition", "block", k).permutation(
            np.concatenate(train_by_class[block.start : block.stop])
        )
        train += deal(rows, size, samples_per_client)
        test += [np.sort(np.concatenate(test_by_class[block.start : block.stop]))] * size
        # Foreign classes never reach a client of this cluster; -1 makes an accident visible.
        place = np.full(labels.classes, -1)
        place[block] = np.arange(len(block))
        maps += [place] * size
    return Partition(
        tuple(train), tuple(test), membership(resolved_sizes), label_maps=tuple(maps) if relabel else None
    )


def mapl(
    labels: Labels,
    clients: int,
    seed: int,
    *,
    scenario: int,
    clusters: int = 2,
    images_per_class: int = 300,
    images_per_class_min: int = 100,
    shared_classes: int = 2,
    test_images_per_class: int = 15,
) -> Partition:
    """The four scenarios of MAPL (section 5): clusters of clients with different classes.

    Scenario 1: equal blocks of consecutive classes. Scenario 2: neighbouring blocks overlap in
    `shared_classes` classes (even; 2 as in the paper's figure, classes 0-5 and 4-9; 4 as in the authors'
    code, 0-6 and 3-9). A client owns `images_per_class` of each of its cluster's classes. Scenarios 3 and 4
    are 1 and 2 with a number drawn per client, uniform from `images_per_class_min` to `images_per_class`.
    Tested on `test_images_per_class` of each class, drawn per client. No two clients share an image, which
    the paper leaves open.
    """
    if scenario not in (1, 2, 3, 4):
        raise UserError(f"data.partition.scenario = {scenario}: allowed are 1, 2, 3, 4")
    varied = scenario in (3, 4)
    if varied and images_per_class_min > images_per_class:
        raise UserError(
            f"data.partition.images_per_class_min = {images_per_class_min}: "
            f"allowed are 1 to images_per_class = {images_per_class}"
        )
    if shared_classes < 0 or shared_classes % 2:
        raise UserError(
            f"data.partition.shared_classes = {shared_classes}: allowed are even numbers, 0 or more"
        )
    cluster_of = membership(cluster_sizes(clients, clusters, None))
    margin = shared_classes // 2 if scenario in (2, 4) else 0
    owned = [
        range(max(0, block.start - margin), min(labels.classes, block.stop + margin))
        for block in cluster_members(even_sizes(labels.classes, clusters))
    ]
    pools = ClassPools(labels, seed)
    by_class = rows_by_class(labels.test, labels.classes)
    train, test = [], []
    for i, k in enumerate(cluster_of):
        rng = stream(seed, "partition", "mapl", i)
        count = (
            images_per_class
            if not varied
            else int(rng.integers(images_per_class_min, images_per_class, endpoint=True))
        )
        train.append(np.sort(np.concatenate([pools.take(label, count) for label in owned[k]])))
        seen = [rng.permutation(by_class[label])[:test_images_per_class] for label in owned[k]]
        test.append(np.sort(np.concatenate(seen)))
    return Partition(tuple(train), tuple(test), cluster_of)


PARTITIONS: Mapping[str, Callable[..., Partition]] = {
    "iid": iid,
    "dirichlet": dirichlet,
    "classes-per-client": classes_per_client,
    "permuted-clusters": permuted_clusters,
    "disjoint-clusters": disjoint_clusters,
    "mapl": mapl,
}


def _draw_mix(pools: ClassPools, rng: np.random.Generator, alpha: float, count: int) -> np.ndarray:
    mix = rng.dirichlet(np.full(len(pools.rows), alpha))
    parts = []
    while count:
        weights = np.where(pools.left > 0, mix, 0.0)
        if weights.sum() == 0:  # the client's own classes are all used up
            weights = (pools.left > 0).astype(float)
        drawn = np.minimum(rng.multinomial(count, weights / weights.sum()), pools.left)
        parts += [pools.take(label, int(number)) for label, number in enumerate(drawn) if number]
        count -= int(drawn.sum())
    return np.sort(np.concatenate(parts))


def _split_classes(
    pools: ClassPools, clients: int, seed: int, alpha: float, min_samples: int
) -> tuple[np.ndarray, ...]:
    if clients * min_samples > sum(map(len, pools.rows)):
        raise UserError(
            f"data.partition.min_samples = {min_samples}: {clients} clients share "
            f"{sum(map(len, pools.rows))} training samples, too few for so many each"
        )
    rng = stream(seed, "partition", "shares")
    class_sizes = np.array([len(rows) for rows in pools.rows])
    for _ in range(_DIRICHLET_ATTEMPTS_MAX):
        shares = rng.dirichlet(np.full(clients, alpha), size=len(class_sizes))
        ends = np.rint(np.cumsum(shares, axis=1) * class_sizes[:, None]).astype(int)
        if np.diff(ends, axis=1, prepend=0).sum(axis=0).min() >= min_samples:
            pieces = [np.split(rows, end[:-1]) for rows, end in zip(pools.rows, ends, strict=True)]
            return tuple(np.sort(np.concatenate(part)) for part in zip(*pieces, strict=True))
    raise UserError(
        f"data.partition.alpha = {alpha}: each of {_DIRICHLET_ATTEMPTS_MAX} draws gave one of the "
        f"{clients} clients fewer than min_samples = {min_samples}; "
        "use a larger alpha, a smaller min_samples, or samples_per_client"
    )


def _test_like(
    by_class: Sequence[np.ndarray], train_labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """As many of the test samples as can have the mix of classes in `train_labels`, up to rounding."""
    train_counts = np.bincount(train_labels, minlength=len(by_class))
    test_counts = np.array([len(rows) for rows in by_class])
    mine = np.flatnonzero(train_counts)
    scale = np.min(test_counts[mine] / train_counts[mine])
    wanted = np.rint(train_counts * scale).astype(int)
    drawn = [rng.permutation(by_class[label])[: wanted[label]] for label in mine.tolist()]
    return np.sort(np.concatenate(drawn))


def _different_permutations(classes: int, count: int, seed: int) -> list[np.ndarray]:
    if count > math.factorial(classes):
        raise UserError(f"data.partition: {classes} classes have fewer than {count} different permutations")
    permutations: dict[bytes, np.ndarray] = {}
    for k in range(count):
        rng = stream(seed, "partition", "permutation", k)
        candidate = rng.permutation(classes)
        while candidate.tobytes() in permutations:
            candidate = rng.permutation(classes)
        permutations[candidate.tobytes()] = candidate
    return list(permutations.values())
