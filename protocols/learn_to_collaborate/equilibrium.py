"""Collaboration equilibrium: from benefits between clients to coalitions that no client gains by leaving.

"Learning to collaborate", sections 3 and 4.1. Clients are any names that can be sorted; a set of
collaborators of a client always contains the client itself. The paper's definitions use a utility U(client,
set); here only the optimal collaborator sets are known, because Specific Pareto Optimization finds no more.

The paper leaves one case open: it assumes that optimal collaborator sets are unique. If several are equally
good, the smallest is taken, and of these the first in the clients' order. Strongly connected components of
the benefit graph then need not be stable, and possibly none is: a coalition is then found inside a component
that could do without the others (`_shrink_to_stable`), so that Axioms 1 and 2 hold in any case.

The axioms also admit other partitions than the one found here. In these, a client keeps others from their
common optimum, although none of these others gains by leaving alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import networkx as nx

C = TypeVar("C", bound=Any)


class Benefits(Generic[C]):
    """Benefits between clients, by the optimal collaborator sets that were found among certain clients.

    Among fewer clients, each set loses the clients that are gone (assumption 1).
    """

    def __init__(self, collaborators: Mapping[C, frozenset[C]]) -> None:
        self._collaborators = collaborators

    def collaborators(self, client: C, clients: frozenset[C]) -> frozenset[C]:
        """Return a client's optimal collaborator set among `clients` (definition 2), with itself."""
        return (self._collaborators[client] & clients) | {client}

    def satisfied(self, client: C, coalition: frozenset[C], clients: frozenset[C]) -> bool:
        """Return whether a client is as well off in a coalition as with any set of `clients` (eq. 4)."""
        return self.collaborators(client, clients) <= coalition


def benefit_graph(benefits: Benefits[C], clients: Iterable[C]) -> nx.DiGraph:
    """Return BG(clients): an edge from j to i if j is in the optimal collaborator set of i, without loops."""
    names = sorted(clients)
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    for client in names:
        helpers = benefits.collaborators(client, frozenset(names))
        graph.add_edges_from([(helper, client) for helper in sorted(helpers) if helper != client])
    return graph


def is_stable(benefits: Benefits[C], coalition: Iterable[C], clients: Iterable[C]) -> bool:
    """Check definition 3: all members are as well off as with all clients, and no part gains from leaving."""
    members, everybody = frozenset(coalition), frozenset(clients)
    return (
        bool(members)
        and _self_sufficient(benefits, members, everybody) == members
        and not _parts_without_a_member(benefits, members, everybody)
    )


def stable_coalitions(benefits: Benefits[C], clients: Iterable[C]) -> list[tuple[C, ...]]:
    """Return the stable components of the benefit graph, in the clients' order (theorem 1).

    If optimal collaborator sets are unique, these are all stable coalitions of definition 3. If no component
    is stable, return one stable coalition that is no component. The result is empty only without clients.
    """
    everybody = frozenset(clients)
    components = strongly_connected(benefit_graph(benefits, everybody))
    found = [members for members in components if is_stable(benefits, members, everybody)]
    if not found and components:
        found = [_shrink_to_stable(benefits, everybody)]
    return found


def equilibrium(benefits: Benefits[C], clients: Iterable[C]) -> list[list[tuple[C, ...]]]:
    """Return the coalitions of the equilibrium (algorithm 1), in the stages in which they were found.

    The coalitions of a stage are stable among all clients that are not in coalitions of earlier stages.
    """
    remaining, stages = frozenset(clients), []
    while remaining:
        stage = stable_coalitions(benefits, remaining)
        stages.append(stage)
        remaining = remaining.difference(*stage)
    return stages


def equilibrium_at_once(benefits: Benefits[C], clients: Iterable[C]) -> list[tuple[C, ...]]:
    """Return all strongly connected components of the benefit graph of all clients (algorithm 2).

    The components are an equilibrium if the benefit graph of any subset of the clients is a part of the
    benefit graph of all clients (assumption 1, corollary 1).
    """
    return strongly_connected(benefit_graph(benefits, clients))


def strongly_connected(graph: nx.DiGraph) -> list[tuple[Any, ...]]:
    """Return the strongly connected components of a graph (Tarjan 1972), sorted by their first members."""
    return sorted(tuple(sorted(component)) for component in nx.strongly_connected_components(graph))


def affected_by_departure(stages: Sequence[Sequence[tuple[C, ...]]], client: C) -> list[C]:
    """Return the clients that the departure of `client` affects: its partners, and all later stages.

    None are affected if it was alone in its coalition.

    Other coalitions of the same or earlier stages are also stable without the client: none of their members
    was better off with it.
    """
    for number, stage in enumerate(stages):
        mine = next((coalition for coalition in stage if client in coalition), None)
        if mine is not None:
            remaining = [member for member in mine if member != client]
            return _members_of_all(remaining, stages[number + 1 :]) if remaining else []
    return []


def affected_by_arrival(stages: Sequence[Sequence[tuple[C, ...]]], wanted_by: Iterable[C]) -> list[C]:
    """Return the clients that a newcomer affects; `wanted_by`: clients that have it in their optimal set.

    The optimal sets contain only clients of the same and later stages. A newcomer affects the coalitions
    of `wanted_by` in the first stage that contains one of these clients, and all coalitions of later stages.
    """
    wanting = frozenset(wanted_by)
    for number, stage in enumerate(stages):
        broken = [coalition for coalition in stage if not wanting.isdisjoint(coalition)]
        if broken:
            return _members_of_all(
                [client for coalition in broken for client in coalition], stages[number + 1 :]
            )
    return []


def without_coalitions_of(
    stages: Sequence[Sequence[tuple[C, ...]]], affected: Iterable[C]
) -> list[list[tuple[C, ...]]]:
    """Return the stages without the coalitions of affected clients; empty stages are left out."""
    gone = frozenset(affected)
    remaining = [[coalition for coalition in stage if gone.isdisjoint(coalition)] for stage in stages]
    return [stage for stage in remaining if stage]


def _members_of_all(members: Iterable[C], stages: Sequence[Sequence[tuple[C, ...]]]) -> list[C]:
    return sorted([*members, *[client for stage in stages for coalition in stage for client in coalition]])


def _self_sufficient(benefits: Benefits[C], members: frozenset[C], clients: frozenset[C]) -> frozenset[C]:
    """Return the largest part of `members` in which each is as well off as with all `clients`; may be empty.

    It is unique: the union of two of these parts is also one, since utilities do not fall with more choice.
    """
    while True:
        content = frozenset(
            [client for client in sorted(members) if benefits.satisfied(client, members, clients)]
        )
        if content == members:
            return members
        members = content


def _parts_without_a_member(
    benefits: Benefits[C], members: frozenset[C], clients: frozenset[C]
) -> list[frozenset[C]]:
    """Return for each member the largest self-sufficient part without it, unless that is empty.

    A part that loses nothing by leaving (eq. 5 does not hold for it) lacks some member, so it is in one of
    the returned parts.
    """
    parts = [_self_sufficient(benefits, members - {member}, clients) for member in sorted(members)]
    return [part for part in parts if part]


def _shrink_to_stable(benefits: Benefits[C], clients: frozenset[C]) -> tuple[C, ...]:
    """Return a stable coalition if no component is stable: the smallest part that can leave, repeatedly."""
    members = clients
    while parts := _parts_without_a_member(benefits, members, clients):
        members = min(parts, key=lambda part: (len(part), sorted(part)))
    return tuple(sorted(members))
