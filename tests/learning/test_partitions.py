"""Partitions: training samples have one owner, adding clients moves nobody's, each kind keeps its word."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import UserError
from sim.learning.partitions.dealing import (
    Labels,
    StatedCount,
    check_enough,
    check_min_samples,
    cluster_members,
    deal_repeatedly,
    even_sizes,
)
from sim.learning.partitions.kinds import PARTITIONS
from sim.learning.partitions.partition import Partition
from tests.draws import examples
from tests.learning.sections import partition as partition_of
from tests.lists import require_listed

OF_OTHERS = ("natural", "file")
"""Kinds that share out what somebody else says: tests/own/test_partitions.py."""
KINDS = {kind: partition_of(kind) for kind in PARTITIONS if kind not in OF_OTHERS}
iid, dirichlet, classes_per_client = map(KINDS.__getitem__, ("iid", "dirichlet", "classes-per-client"))
permuted_clusters, disjoint_clusters = map(KINDS.__getitem__, ("permuted-clusters", "disjoint-clusters"))
mapl, quantity = map(KINDS.__getitem__, ("mapl", "quantity"))

TEN = Labels(np.tile(np.arange(10), 600), np.tile(np.arange(10), 40), 10)
HUNDRED = Labels(np.repeat(np.arange(100), 50), np.repeat(np.arange(100), 20), 100)
ALL: list[tuple[Callable[..., Partition], dict[str, Any]]] = [
    (iid, {}),
    (iid, {"samples_per_client": 30}),
    (quantity, {"alpha": 0.5}),
    (dirichlet, {"alpha": 0.5}),
    (dirichlet, {"alpha": 0.1, "samples_per_client": 30}),
    (dirichlet, {"alpha": 0.4, "class_clusters": 4}),
    (dirichlet, {"alpha": 0.4, "class_clusters": 3, "samples_per_client": 30}),
    (classes_per_client, {"classes": 3}),
    (classes_per_client, {"classes": 3, "samples_per_client": 31}),
    (permuted_clusters, {"clusters": 2}),
    (permuted_clusters, {"clusters": 2, "samples_per_client": 30}),
    (disjoint_clusters, {"clusters": 2}),
    (disjoint_clusters, {"clusters": 2, "samples_per_client": 30}),
    *((mapl, {"scenario": n, "images_per_class": 30, "images_per_class_min": 10}) for n in (1, 2, 3, 4)),
]
TESTED_ON_OTHER_CLASSES = (iid, quantity, permuted_clusters, disjoint_clusters)
"""Kinds that may test a client on classes that it does not train on."""


def same(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> bool:
    return len(left) == len(right) and all(map(np.array_equal, left, right))


def counts(labels: np.ndarray, rows: np.ndarray, classes: int = 10) -> list[int]:
    return np.bincount(labels[rows], minlength=classes).tolist()


def test_every_kind_is_covered() -> None:
    covered = [name for name, make in KINDS.items() if any(make is each for each, _ in ALL)]
    where = f"ALL in {__file__} (with its options), or to OF_OTHERS where the data say who owns a sample"
    require_listed(KINDS, covered, where)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_states_whether_it_needs_classes(name: str) -> None:
    """A regression refuses kinds that need classes. A kind that only sorts its targets need not."""
    others = Labels(np.roll(TEN.train, 7).repeat(2)[: len(TEN.train)], np.sort(TEN.test), 10)
    kinds = [(make, options) for make, options in ALL if make is KINDS[name]]
    found = [[make(labels, 4, 3, **options) for labels in (TEN, others)] for make, options in kinds]
    uses_targets = any(
        one.label_maps is not None or not same(one.train, other.train) or not same(one.test, other.test)
        for one, other in found
    )
    kind = PARTITIONS[name].__name__
    if PARTITIONS[name].needs_classes:
        assert uses_targets, f"state needs_classes = False in {kind}: the same samples are dealt in any case"
        return
    numbers = Labels(np.sin(TEN.train)[:, None], np.sin(TEN.test)[:, None], 1)  # a regression's targets
    for make, options in kinds:
        rows = np.concatenate(make(numbers, 4, 3, **options).train)
        state = f"state needs_classes = True in {kind}: it cannot deal the targets of a regression"
        assert len(np.unique(rows)) == len(rows) > 0, state


@examples(30)
@given(st.integers(1, 40), st.integers(1, 300), st.integers(0, 2**31))
def test_samples_dealt_over_and_over_are_enough_for_any_number_of_clients(
    each: int, clients: int, seed: int
) -> None:
    labels = Labels(np.arange(40) % 10, np.arange(10), 10)
    dealt = iid(labels, clients, seed, samples_per_client=each, repeat=True)
    assert len(dealt.train) == len(dealt.test) == clients
    assert all(len(set(rows.tolist())) == each for rows in dealt.train), "no client has one twice"
    owners = np.bincount(np.concatenate(dealt.train), minlength=40)
    assert owners.max() - owners.min() <= 1, "all as often"
    assert same(dealt.train, iid(labels, clients + 1, seed, samples_per_client=each, repeat=True).train[:-1])
    if clients * each <= 40:
        assert same(dealt.train, iid(labels, clients, seed, samples_per_client=each).train)


def test_what_cannot_be_dealt_over_and_over_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="needs samples_per_client; also set this key"):
        PARTITIONS["iid"].model_validate({"kind": "iid", "repeat": True})
    with pytest.raises(UserError, match=r"samples_per_client = 6001: .* no client may have a sample twice"):
        iid(TEN, 3, 0, samples_per_client=6001, repeat=True)
    with pytest.raises(ValueError, match="repeat"):
        PARTITIONS["dirichlet"].model_validate({"kind": "dirichlet", "alpha": 1, "repeat": True})


@pytest.mark.parametrize("validation", [None, (np.arange(2), np.arange(0))])
def test_no_kind_can_leave_a_client_without_samples(validation: tuple[np.ndarray, ...] | None) -> None:
    train = (np.arange(3), np.arange(0 if validation is None else 2))
    with pytest.raises(UserError, match=r"no (validation )?sample is left for client 1"):
        Partition(train, train, validation=validation)


@examples(60)
@given(st.sampled_from(ALL), st.integers(2, 12), st.integers(0, 2**31))
def test_train_samples_have_one_owner_and_test_samples_fit_them(
    kind: tuple[Callable[..., Partition], dict[str, Any]], clients: int, seed: int
) -> None:
    make, options = kind
    partition = make(TEN, clients, seed, **options)
    assert len(partition.train) == len(partition.test) == clients
    owned = np.concatenate(partition.train)
    assert len(np.unique(owned)) == len(owned)
    assert owned.min() >= 0
    assert owned.max() < len(TEN.train)
    for train, test in zip(partition.train, partition.test, strict=True):
        assert train.dtype == test.dtype == np.int64
        assert len(train) == options.get("samples_per_client", len(train)) > 0
        assert 0 < len(np.unique(test)) == len(test)
        # A client of a disjoint cluster is tested on its whole block, of which it may lack a class by chance.
        # So may one of a mix of clusters of classes.
        if make not in TESTED_ON_OTHER_CLASSES and "class_clusters" not in options:
            assert set(TEN.test[test].tolist()) <= set(TEN.train[train].tolist()), (
                f"add {make.__name__} to TESTED_ON_OTHER_CLASSES if clients of this kind are tested on "
                "classes that they do not train on"
            )
    if make is disjoint_clusters:
        assert partition.clusters is not None
        blocks: dict[int, set[int]] = {}
        for cluster, train, test in zip(partition.clusters, partition.train, partition.test, strict=True):
            blocks.setdefault(cluster, set()).update(TEN.train[train].tolist(), TEN.test[test].tolist())
        assert sum(len(block) for block in blocks.values()) == len(set().union(*blocks.values()))
    again = make(TEN, clients, seed, **options)
    assert same(again.train, partition.train)
    assert same(again.test, partition.test)
    assert again.clusters == partition.clusters


@pytest.mark.parametrize(
    ("make", "options"),
    [kind for kind in ALL if "samples_per_client" in kind[1] and "clusters" not in kind[1]],
)
def test_adding_a_client_at_the_end_changes_nobodys_data(
    make: Callable[..., Partition], options: dict[str, Any]
) -> None:
    few, many = make(TEN, 5, 1, **options), make(TEN, 6, 1, **options)
    assert same(few.train, many.train[:5])
    assert same(few.test, many.test[:5])


@pytest.mark.parametrize("make", [permuted_clusters, disjoint_clusters])
def test_a_larger_last_cluster_changes_nobodys_data(make: Callable[..., Partition]) -> None:
    few, many = (make(TEN, 4 + n, 1, sizes=(2, 2 + n), samples_per_client=30) for n in (0, 1))
    assert same(few.train, many.train[:4])
    assert few.clusters == (0, 0, 1, 1)
    assert many.clusters == (0, 0, 1, 1, 1)


@pytest.mark.parametrize(("make", "options"), ALL)
def test_another_seed_gives_another_partition(
    make: Callable[..., Partition], options: dict[str, Any]
) -> None:
    assert not same(make(TEN, 4, 1, **options).train, make(TEN, 4, 2, **options).train)


def test_iid_shares_out_everything() -> None:
    partition = iid(TEN, 7, 0)
    assert [len(rows) for rows in partition.train] == [858, 857, 857, 857, 857, 857, 857]
    assert np.array_equal(np.sort(np.concatenate(partition.train)), np.arange(6000))
    assert all(np.array_equal(rows, np.arange(400)) for rows in partition.test)
    assert partition.clusters is None
    assert partition.label_maps is None


# Dirichlet ------------------------------------------------------------------------------------------------


def mean_largest_share(partition: Partition) -> float:
    return float(np.mean([max(counts(TEN.train, rows)) / len(rows) for rows in partition.train]))


@pytest.mark.parametrize("samples_per_client", [None, 100])
def test_dirichlet_alpha_sets_the_heterogeneity(samples_per_client: int | None) -> None:
    shares = [
        mean_largest_share(dirichlet(TEN, 10, 0, alpha=alpha, samples_per_client=samples_per_client))
        for alpha in (0.05, 1.0, 1000.0)
    ]
    assert shares[0] > 0.6
    assert 0.2 < shares[1] < 0.5
    assert shares[2] < 0.2


def test_clusters_of_classes_are_dealt_as_wholes() -> None:
    """In whatever share a client has a cluster, it has all classes of the cluster in that share."""
    partition = dirichlet(TEN, 8, 3, alpha=0.4, class_clusters=4)
    assert partition.clusters is None
    shares = np.array([counts(TEN.train, rows) for rows in partition.train]) / 600
    np.testing.assert_allclose(shares.sum(axis=0), 1.0)
    groups: list[list[int]] = []
    for label in range(10):
        like = [group for group in groups if np.abs(shares[:, group[0]] - shares[:, label]).max() < 0.08]
        assert len(like) <= 1
        if like:
            like[0].append(label)
        else:
            groups.append([label])
    assert sorted(map(len, groups)) == [2, 2, 3, 3]
    assert any(group != list(range(group[0], group[0] + len(group))) for group in groups), "drawn at random"
    for train, test in zip(partition.train, partition.test, strict=True):
        # Of each cluster as much beside the others in the test as in the training.
        mine = np.array(counts(TEN.train, train), dtype=float), np.array(counts(TEN.test, test), dtype=float)
        for group in groups:
            assert mine[0][group].sum() / len(train) == pytest.approx(
                mine[1][group].sum() / len(test), abs=0.02
            )


def test_dirichlet_keeps_its_minimum_and_shares_out_everything() -> None:
    partition = dirichlet(TEN, 20, 0, alpha=0.3, min_samples=50)
    assert min(map(len, partition.train)) >= 50
    assert np.array_equal(np.sort(np.concatenate(partition.train)), np.arange(6000))


def test_dirichlet_can_use_up_the_data() -> None:
    partition = dirichlet(TEN, 6, 0, alpha=0.05, samples_per_client=1000)
    assert np.array_equal(np.sort(np.concatenate(partition.train)), np.arange(6000))


def test_dirichlet_tests_with_the_mix_of_the_training_samples() -> None:
    partition = dirichlet(TEN, 10, 0, alpha=1.0, samples_per_client=100)
    for train, test in zip(partition.train, partition.test, strict=True):
        train_counts, test_counts = np.array(counts(TEN.train, train)), np.array(counts(TEN.test, test))
        assert test_counts.max() == 40  # the class of which most are needed is used completely
        assert np.abs(test_counts - train_counts * 40 / train_counts.max()).max() <= 0.5


# Classes per client ---------------------------------------------------------------------------------------


def test_each_client_has_its_number_of_classes_in_equal_parts() -> None:
    partition = classes_per_client(TEN, 8, 0, classes=3, samples_per_client=31)
    mine = [set(TEN.train[rows].tolist()) for rows in partition.train]
    assert {len(classes) for classes in mine} == {3}
    assert len(set(map(frozenset, mine))) > 1
    for rows, test, classes in zip(partition.train, partition.test, mine, strict=True):
        assert sorted(count for count in counts(TEN.train, rows) if count) == [10, 10, 11]
        assert np.array_equal(test, np.flatnonzero(np.isin(TEN.test, list(classes))))


def test_without_a_number_a_class_is_shared_by_all_who_own_it() -> None:
    partition = classes_per_client(TEN, 8, 0, classes=3)
    for label in range(10):
        shares = [counts(TEN.train, rows)[label] for rows in partition.train]
        owners = [share for share in shares if share]
        assert sum(owners) == (600 if owners else 0)
        assert max(owners, default=0) - min(owners, default=0) <= 1


# Clusters -------------------------------------------------------------------------------------------------


@examples(50)
@given(st.integers(0, 2**31), st.integers(2, 4), st.data())
def test_permutations_are_pairwise_different(seed: int, classes: int, data: st.DataObject) -> None:
    clusters = data.draw(st.integers(1, math.factorial(classes)))
    labels = Labels(np.arange(96) % classes, np.arange(8) % classes, classes)
    partition = permuted_clusters(labels, clusters, seed, clusters=clusters)
    assert partition.label_maps is not None
    assert len({tuple(labels) for labels in partition.label_maps}) == clusters
    assert all(sorted(labels) == list(range(classes)) for labels in partition.label_maps)


def test_permuted_clusters_differ_by_their_labels_only() -> None:
    partition = permuted_clusters(TEN, 12, 5, clusters=4)
    unpermuted = iid(TEN, 12, 5)
    assert same(partition.train, unpermuted.train)
    assert same(partition.test, unpermuted.test)
    assert partition.clusters == (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
    assert partition.label_maps is not None
    for k, members in enumerate(cluster_members([3] * 4)):
        assert all(partition.label_maps[i] is partition.label_maps[members[0]] for i in members), k
    assert all(labels.dtype == np.int64 for labels in partition.label_maps)


def test_shifted_labels() -> None:
    partition = permuted_clusters(HUNDRED, 4, 0, clusters=4, shift=11)
    assert partition.label_maps is not None
    assert [labels[95] for labels in partition.label_maps] == [95, 6, 17, 28]


def test_disjoint_clusters_as_in_cobo_cross_device() -> None:
    sizes = (10, 10, 9, 9, 8, 8, 7, 7, 6, 6)
    partition = disjoint_clusters(HUNDRED, 80, 0, sizes=sizes, relabel=True)
    assert partition.clusters == tuple(np.repeat(np.arange(10), sizes).tolist())
    assert np.array_equal(np.sort(np.concatenate(partition.train)), np.arange(5000))
    assert partition.label_maps is not None
    for k, train, test, renamed in zip(
        partition.clusters, partition.train, partition.test, partition.label_maps, strict=True
    ):
        assert set(HUNDRED.train[train] // 10) == {k}
        assert abs(len(train) - 500 / sizes[k]) < 1
        assert np.array_equal(test, np.flatnonzero(HUNDRED.test // 10 == k))
        assert np.array_equal(renamed[HUNDRED.train[train]], HUNDRED.train[train] % 10)


def test_disjoint_clusters_keep_the_labels_unless_asked() -> None:
    partition = disjoint_clusters(TEN, 5, 0, clusters=3)
    assert partition.label_maps is None
    assert partition.clusters == (0, 0, 1, 1, 2)
    assert [sorted(set(TEN.train[rows].tolist())) for rows in partition.train] == [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [4, 5, 6],
        [4, 5, 6],
        [7, 8, 9],
    ]


# MAPL -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "options", "first", "second"),
    [
        (1, {}, range(5), range(5, 10)),
        (2, {}, range(6), range(4, 10)),
        (2, {"shared_classes": 4}, range(7), range(3, 10)),
        (3, {}, range(5), range(5, 10)),
        (4, {}, range(6), range(4, 10)),
    ],
)
def test_mapl_classes(scenario: int, options: dict[str, Any], first: range, second: range) -> None:
    partition = mapl(TEN, 4, 0, scenario=scenario, images_per_class=100, **options)
    assert partition.clusters == (0, 0, 1, 1)
    for k, train, test in zip(partition.clusters, partition.train, partition.test, strict=True):
        mine = (first, second)[k]
        assert counts(TEN.test, test) == [15 * (label in mine) for label in range(10)]
        assert counts(TEN.train, train) == [100 * (label in mine) for label in range(10)]


def test_mapl_amounts_vary_between_clients_in_scenarios_3_and_4() -> None:
    labels = Labels(np.tile(np.arange(10), 6000), TEN.test, 10)
    partition = mapl(labels, 20, 0, scenario=3)
    amounts: list[int] = []
    for k, rows in zip(partition.clusters or (), partition.train, strict=True):
        per_class = set(counts(labels.train, rows)[5 * k : 5 * k + 5])
        assert len(per_class) == 1
        amounts += per_class
    assert all(100 <= amount <= 300 for amount in amounts)
    assert len(set(amounts)) > 10
    equal = mapl(labels, 20, 0, scenario=1)
    assert {len(rows) for rows in equal.train} == {1500}


# Parts of a client's data ---------------------------------------------------------------------------------


def test_capped_test_samples_are_a_stable_subset() -> None:
    partition = disjoint_clusters(TEN, 4, 0, clusters=2)
    capped = partition.cap_test(50, seed=0)
    assert same(capped.train, partition.train)
    for few, many in zip(capped.test, partition.test, strict=True):
        assert len(np.unique(few)) == 50
        assert set(few) <= set(many)
    assert not np.array_equal(capped.test[0], capped.test[1])
    assert same(capped.test, partition.cap_test(50, seed=0).test)
    assert same(partition.cap_test(200, seed=0).test, partition.test)


@given(st.floats(0.001, 0.9), st.integers(0, 2**31))
@examples(20)
def test_held_back_samples_are_split_from_the_training_samples(share: float, seed: int) -> None:
    partition = iid(TEN, 3, seed, samples_per_client=20)
    rest = partition.hold_back(share, seed)
    assert rest.validation is not None
    for whole, train, validation in zip(partition.train, rest.train, rest.validation, strict=True):
        assert np.array_equal(np.sort(np.concatenate([train, validation])), whole)
        assert len(validation) == max(1, round(share * 20))


def test_holding_back_everything_is_refused() -> None:
    partition = iid(TEN, 3, 0, samples_per_client=2)
    with pytest.raises(UserError, match=r"0\.9: client 0 has 2 training samples, .*; use a smaller share"):
        partition.hold_back(0.9, 0)
    with pytest.raises(UserError, match=r"client 0 has 1 training sample, .* client needs at least two"):
        iid(TEN, 3, 0, samples_per_client=1).hold_back(0.5, 0)


@given(st.integers(0, 100), st.integers(1, 20))
def test_even_sizes(total: int, parts: int) -> None:
    sizes = even_sizes(total, parts)
    assert (sum(sizes), len(sizes)) == (total, parts)
    assert max(sizes) - min(sizes) <= 1
    assert [i for block in cluster_members(sizes) for i in block] == list(range(total))


@pytest.mark.parametrize(
    ("make", "clients", "options", "message"),
    [
        (
            iid,
            6001,
            {"samples_per_client": 1},
            "6001 clients share 6000 .*too few; use fewer clients",
        ),
        (iid, 10, {"samples_per_client": 601}, r"samples_per_client = 601: .*must be from 1 to 600"),
        (iid, 7000, {}, "no sample is left for client 6000"),
        (dirichlet, 100, {"alpha": 0.001}, r"alpha = 0\.001: in each of 1000 draws"),
        (dirichlet, 10, {"alpha": 1.0, "samples_per_client": 601}, "samples_per_client = 601"),
        (
            classes_per_client,
            10,
            {"classes": 10, "samples_per_client": 610},
            "class 0 has 600 training samples",
        ),
        (permuted_clusters, 4, {"clusters": 4, "shift": 5}, r"shift = 5: with 10 classes"),
        (disjoint_clusters, 4, {"clusters": 2, "samples_per_client": 1501}, "must be from 1 to 1500"),
        (mapl, 20, {"scenario": 1}, "class 0 has 600 training samples, 0 of them not yet taken"),
    ],
)
def test_what_cannot_be_dealt_is_refused(
    make: Callable[..., Partition], clients: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make(TEN, clients, 0, **options)


@pytest.mark.parametrize("problem", [check_enough, check_min_samples, None])
def test_errors_name_the_key_of_their_kind(problem: Callable[..., None] | None) -> None:
    """A new kind of partition, whose key has another name."""
    each = StatedCount("data.partition.per_hospital", 31)
    with pytest.raises(UserError, match=r"^data\.partition\.per_hospital = 31: "):
        if problem is check_enough:
            check_enough(30, 1, each)
        elif problem is check_min_samples:
            check_min_samples(each, 1, 30)
        else:
            deal_repeatedly(np.arange(30), 2, each)


def quantities(alpha: float, clients: int = 5, seed: int = 3, **more: Any) -> list[int]:
    return [len(rows) for rows in quantity(TEN, clients, seed, alpha=alpha, **more).train]


@examples(60)
@given(st.floats(0.001, 1e6), st.integers(1, 40), st.integers(1, 100), st.integers(0, 2**31))
def test_quantities_are_all_samples_and_at_least_the_least(
    alpha: float, clients: int, least: int, seed: int
) -> None:
    sizes = quantities(alpha, clients, seed, min_samples=least)
    assert sum(sizes) == len(TEN.train) and min(sizes) >= least


@pytest.mark.long
def test_quantities_of_a_seed_are_the_same_for_ever_and_of_the_distribution_that_is_stated() -> None:
    assert quantities(0.5) == [24, 2837, 2, 110, 3027]
    many = np.array([quantities(2.0, 4, seed) for seed in range(2000)]) / len(TEN.train)
    variance = (1 / 4) * (3 / 4) / (4 * 2.0 + 1)  # of a share from Dir(alpha) over 4 clients
    np.testing.assert_allclose(many.mean(axis=0), 1 / 4, atol=0.01)
    np.testing.assert_allclose(many.var(axis=0), variance, rtol=0.15)


def test_the_limits_of_quantities_are_all_alike_and_one_with_everything() -> None:
    alike, alone = quantities(1e6), quantities(0.001, min_samples=7)
    assert max(alike) - min(alike) < 0.01 * len(TEN.train)
    assert sorted(alone) == [7, 7, 7, 7, len(TEN.train) - 4 * 7]


def test_quantities_say_nothing_of_the_classes() -> None:
    for rows in quantity(TEN, 3, 1, alpha=1.0, min_samples=1000).train:
        shares = np.array(counts(TEN.train, rows)) / len(rows)
        np.testing.assert_allclose(shares, 0.1, atol=0.04)


def test_too_few_samples_for_the_least_quantity_are_refused() -> None:
    problem = r"min_samples = 2000: 4 clients share 6000 training samples, which are too few"
    with pytest.raises(UserError, match=problem):
        quantity(TEN, 4, 1, alpha=1.0, min_samples=2000)


def test_a_class_without_test_samples_takes_no_others_away() -> None:
    """Client 0 of one has a single sample of class 2, which has no test sample."""
    train = np.array([0] * 50 + [1] * 50 + [2])
    partition = dirichlet(Labels(train, np.array([0] * 20 + [1] * 20), 3), 1, 0, alpha=1.0)
    assert len(partition.test[0]) == 40
    alone = dirichlet(Labels(np.array([1] * 10), np.array([0] * 5), 2), 1, 0, alpha=1.0)
    assert len(alone.test[0]) == 0
