"""The collaboration equilibrium against the paper's definitions, over all subsets and all partitions."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.learn_to_collaborate.equilibrium import (
    Benefits,
    affected_by_arrival,
    affected_by_departure,
    benefit_graph,
    equilibrium,
    equilibrium_at_once,
    is_stable,
    stable_coalitions,
    without_coalitions_of,
)

Client = int
Subset = frozenset[Client]
Table = Mapping[tuple[Client, Subset], float]


def subsets(clients: Subset) -> Iterator[Subset]:
    """All that are not empty."""
    for size in range(1, len(clients) + 1):
        yield from map(frozenset, combinations(sorted(clients), size))


def partitions(clients: list[Client]) -> Iterator[list[Subset]]:
    if not clients:
        yield []
        return
    first, *rest = clients
    for partition in partitions(rest):
        yield [frozenset([first]), *partition]
        for place, block in enumerate(partition):
            yield [*partition[:place], block | {first}, *partition[place + 1 :]]


class Brute:
    """The definitions, word for word."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.known: dict[tuple[Client, Subset], float] = {}

    def maximum(self, client: Client, clients: Subset) -> float:
        if (client, clients) not in self.known:
            within = [self.table[client, subset] for subset in subsets(clients) if client in subset]
            self.known[client, clients] = max(within)
        return self.known[client, clients]

    def stable(self, coalition: Subset, clients: Subset) -> bool:
        """Definition 3."""
        content = all(self.maximum(i, coalition) == self.maximum(i, clients) for i in coalition)
        return content and self.inner_agreement([coalition])

    def inner_agreement(self, partition: list[Subset]) -> bool:
        """Axiom 1."""
        return all(
            any(self.maximum(i, part) < self.maximum(i, coalition) for i in part)
            for coalition in partition
            for part in subsets(coalition)
            if part != coalition
        )

    def outer_agreement(self, partition: list[Subset]) -> bool:
        """Axiom 2."""
        own = {client: coalition for coalition in partition for client in coalition}
        return all(
            any(self.maximum(i, other) <= self.maximum(i, own[i]) for i in other)
            for other in subsets(frozenset(own))
            if other not in partition
        )


@st.composite
def tables(draw: st.DrawFn, *, ties: bool, most: int = 7) -> tuple[int, Table]:
    """Utilities of up to `most` clients: all different, or from a few numbers only."""
    count = draw(st.integers(1, most))
    keys = [(i, s) for s in subsets(frozenset(range(count))) for i in sorted(s)]
    rng = draw(st.randoms(use_true_random=False))
    if ties:
        levels = draw(st.integers(1, 4))
        return count, {key: float(rng.randrange(levels)) for key in keys}
    # Small sets are often the best, as otherwise hardly anybody would ever be content with a few.
    order = [(rng.random() - 0.12 * len(key[1]), key) for key in keys]
    return count, {
        key: float(place) for place, (_, key) in enumerate(sorted(order, key=lambda pair: pair[0]))
    }


@st.composite
def collaborator_sets(draw: st.DrawFn, most: int = 7) -> dict[Client, Subset]:
    count = draw(st.integers(1, most))
    clients = st.integers(0, count - 1)
    return {i: draw(st.frozensets(clients, max_size=3)) | {i} for i in range(count)}


def preferring(wanted: Mapping[Client, Subset]) -> Table:
    """Utilities by which each client's optimal set is the one given, and of the rest what is left of it."""
    clients = frozenset(wanted)
    return {
        (i, s): 2.0 * len(s & wanted[i]) - len(s - wanted[i]) for s in subsets(clients) for i in sorted(s)
    }


class KnownUtilities(Benefits[Client]):
    """Benefits by a utility, as the paper defines them, which is asked for every subset."""

    def __init__(self, utility: Callable[[Client, Subset], float]) -> None:
        self.utility = cache(utility)

    def maximum(self, client: Client, clients: Subset) -> float:
        """U_max, the maximum achievable utility (definition 1)."""
        return self.utility(client, self.collaborators(client, clients))

    def collaborators(self, client: Client, clients: Subset) -> Subset:
        mine = [subset for subset in subsets(clients) if client in subset]
        return max(
            mine, key=lambda subset: self.utility(client, subset)
        )  # the first of several: the smallest

    def satisfied(self, client: Client, coalition: Subset, clients: Subset) -> bool:
        return self.maximum(client, coalition) >= self.maximum(client, clients)


def by_table(table: Table) -> KnownUtilities:
    return KnownUtilities(lambda client, clients: table[client, clients])


def flat(stages: list[list[tuple[Client, ...]]]) -> list[Subset]:
    return [frozenset(coalition) for stage in stages for coalition in stage]


@pytest.mark.long
@given(tables(ties=False))
def test_stable_coalitions_are_exactly_those_of_definition_3(drawn: tuple[int, Table]) -> None:
    count, table = drawn
    everybody, brute = frozenset(range(count)), Brute(table)
    expected = [subset for subset in subsets(everybody) if brute.stable(subset, everybody)]
    found = stable_coalitions(by_table(table), everybody)
    assert sorted(map(sorted, expected)) == sorted(map(sorted, found))
    for subset in subsets(everybody):
        assert is_stable(by_table(table), subset, everybody) == (subset in expected)


@pytest.mark.long
@given(tables(ties=True, most=6))
def test_with_ties_what_is_called_stable_is_what_definition_3_says(drawn: tuple[int, Table]) -> None:
    count, table = drawn
    everybody, brute, benefits = frozenset(range(count)), Brute(table), by_table(table)
    for subset in subsets(everybody):
        assert is_stable(benefits, subset, everybody) == brute.stable(subset, everybody)
    found = stable_coalitions(benefits, everybody)
    assert found and all(brute.stable(frozenset(coalition), everybody) for coalition in found)


@pytest.mark.long
@given(st.one_of(tables(ties=False), tables(ties=True)))
def test_the_equilibrium_is_one_of_the_partitions_that_satisfy_both_axioms(drawn: tuple[int, Table]) -> None:
    count, table = drawn
    brute = Brute(table)
    found = flat(equilibrium(by_table(table), range(count)))
    assert sorted(client for coalition in found for client in coalition) == list(range(count))
    assert brute.inner_agreement(found) and brute.outer_agreement(found)


@pytest.mark.long
@given(tables(ties=False, most=5))
def test_among_all_partitions_only_those_in_equilibrium_satisfy_the_axioms(drawn: tuple[int, Table]) -> None:
    """And in each of them that does, no stable coalition is broken up so that all of it would gain."""
    count, table = drawn
    everybody, brute = frozenset(range(count)), Brute(table)
    agreed = [
        p for p in partitions(list(range(count))) if brute.inner_agreement(p) and brute.outer_agreement(p)
    ]
    assert set(flat(equilibrium(by_table(table), range(count)))) in map(set, agreed)
    for partition in agreed:
        own = {client: coalition for coalition in partition for client in coalition}
        for coalition in stable_coalitions(by_table(table), everybody):
            assert any(brute.maximum(i, own[i]) == brute.maximum(i, everybody) for i in coalition)


@pytest.mark.long
@given(collaborator_sets())
def test_random_benefit_graphs(wanted: dict[Client, Subset]) -> None:
    """Under assumption 1 both algorithms agree, with each other and with the utilities behind the graph."""
    table = preferring(wanted)
    brute, benefits = Brute(table), by_table(table)
    assert set(benefit_graph(benefits, wanted).edges) == {
        (j, i) for i, helpers in wanted.items() for j in helpers if j != i
    }
    by_stages = flat(equilibrium(benefits, wanted))
    assert set(by_stages) == set(map(frozenset, equilibrium_at_once(benefits, wanted)))
    assert set(by_stages) == set(flat(equilibrium(Benefits(wanted), wanted)))
    assert brute.inner_agreement(by_stages) and brute.outer_agreement(by_stages)


@pytest.mark.long
@given(tables(ties=False, most=6), st.data())
def test_after_a_departure_only_those_whom_it_affects_are_settled_anew(
    drawn: tuple[int, Table], data: st.DataObject
) -> None:
    count, table = drawn
    benefits, gone = by_table(table), data.draw(st.integers(0, count - 1))
    stages = equilibrium(benefits, range(count))
    pool = affected_by_departure(stages, gone)
    found = flat(without_coalitions_of(stages, [gone, *pool])) + flat(equilibrium(benefits, pool))
    scratch = flat(equilibrium(benefits, [i for i in range(count) if i != gone]))
    assert set(found) == set(scratch) and len(found) == len(scratch)


@pytest.mark.long
@given(tables(ties=False, most=6), st.data())
def test_after_an_arrival_only_those_whom_it_affects_are_settled_anew(
    drawn: tuple[int, Table], data: st.DataObject
) -> None:
    count, table = drawn
    benefits, new = by_table(table), data.draw(st.integers(0, count - 1))
    rest = frozenset(i for i in range(count) if i != new)
    stages = equilibrium(benefits, rest)
    wanting = []
    for stage in stages:
        there = rest | {new}
        wanting += [i for c in stage for i in c if new in benefits.collaborators(i, there)]
        rest = rest.difference(*stage)
    pool = affected_by_arrival(stages, wanting)
    found = flat(without_coalitions_of(stages, pool)) + flat(equilibrium(benefits, [*pool, new]))
    scratch = flat(equilibrium(benefits, range(count)))
    assert set(found) == set(scratch) and len(found) == len(scratch)


def test_figure_2() -> None:
    """I1, I2, I3 need each other in a ring, I5 and I6 each other; I4 wants I2 and I5, who do not want it."""
    wanted = {1: {1, 2}, 2: {2, 3}, 3: {3, 1}, 4: {2, 4, 5}, 5: {5, 6}, 6: {5, 6}}
    table = preferring({i: frozenset(helpers) for i, helpers in wanted.items()})
    benefits, brute = by_table(table), Brute(table)
    assert sorted(benefit_graph(benefits, wanted).edges) == [
        (1, 3), (2, 1), (2, 4), (3, 2), (5, 4), (5, 6), (6, 5),
    ]  # fmt: skip
    assert stable_coalitions(benefits, wanted) == [(1, 2, 3), (5, 6)]
    assert equilibrium(benefits, wanted) == [[(1, 2, 3), (5, 6)], [(4,)]]
    assert equilibrium_at_once(benefits, wanted) == [(1, 2, 3), (4,), (5, 6)]
    assert not brute.inner_agreement([frozenset({1, 2, 3, 4}), frozenset({5, 6})]), "section 3.2 says so"


def test_figure_1() -> None:
    """Once {I1, I2, I3} are gone, I4 finds I5 instead of I3, and a coalition arises that was none before.

    Of the arrows the text tells I1 -> I3, that I3 helps I4, and the new one from I5 to I4; that I6 needs I4,
    and I5 needs I6, is the simplest benefit graph in which {I1, I2, I3} is the only stable coalition at first
    and I4, I5, I6 are left together, as it says of figure 1 (b) and (c).
    """
    wanted = {1: {1, 2}, 2: {2, 3}, 3: {3, 1}, 4: {3, 4}, 5: {5, 6}, 6: {4, 6}}
    table = dict(preferring({i: frozenset(helpers) for i, helpers in wanted.items()}))
    for (client, clients), utility in table.items():
        if client == 4 and 5 in clients and 3 not in clients:
            table[client, clients] = utility + 2  # second best, where I3 is not to be had
    benefits = by_table(table)
    assert benefits.collaborators(4, frozenset(wanted)) == {3, 4}
    assert benefits.collaborators(4, frozenset({4, 5, 6})) == {4, 5}
    assert stable_coalitions(benefits, wanted) == [(1, 2, 3)]
    assert equilibrium(benefits, wanted) == [[(1, 2, 3)], [(4, 5, 6)]]
    assert equilibrium_at_once(benefits, wanted) == [(1, 2, 3), (4,), (5,), (6,)], "assumption 1 fails here"


def test_who_has_more_of_the_same_data_needs_nobody() -> None:
    """No benefit, no collaboration: D1 in D2 in D3 (section 3.1)."""
    benefits = KnownUtilities(lambda client, clients: float(max(clients)))
    assert equilibrium(benefits, [1, 2, 3]) == [[(3,)], [(2,)], [(1,)]]


def test_figure_5_the_hospitals() -> None:
    """I0 and I3 need each other, I9 helps nobody, all others are one coalition that I0 and I3 do not need."""
    others = [1, 2, 4, 5, 6, 7, 8]
    wanted = {i: frozenset({i, others[place - 1], 0}) for place, i in enumerate(others)}
    wanted |= {0: frozenset({0, 3}), 3: frozenset({0, 3}), 9: frozenset({9, 1, 3})}
    assert equilibrium(Benefits(wanted), wanted) == [[(0, 3)], [tuple(others)], [(9,)]]


def test_indifference_in_a_ring_leaves_no_component_stable() -> None:
    """Client 0 is as well off with 1 as with 2: the ring of all three can do without 1."""
    best = {0: [{0, 1}, {0, 2}], 1: [{1, 2}], 2: [{0, 2}]}
    benefits = KnownUtilities(lambda client, clients: float(set(clients) in best[client]))
    assert equilibrium_at_once(benefits, range(3)) == [(0, 1, 2)]
    assert stable_coalitions(benefits, range(3)) == [(0, 2)]
    assert equilibrium(benefits, range(3)) == [[(0, 2)], [(1,)]]


def test_nobody_and_strangers() -> None:
    benefits = KnownUtilities(lambda client, clients: 0.0)
    assert equilibrium(benefits, []) == [] and not is_stable(benefits, [], [1])
    assert affected_by_departure([[(1, 2)]], 3) == [] and affected_by_arrival([[(1, 2)]], []) == []
