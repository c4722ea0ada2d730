"""The collaboration equilibrium: from who benefits from whom to coalitions that nobody has a reason to leave.

"Learning to collaborate", sections 3 and 4.1. Clients are any names that can be sorted; a set of
collaborators of a client always holds the client itself. The paper's definitions have a utility U(client,
set); here are known no more than the optimal collaborator sets, which is all that Specific Pareto
Optimization finds out.

What the paper leaves open: it takes optimal collaborator sets to be unique. If several are as good, the
smallest is taken, and of these the first in the clients' order. Strongly connected components of the benefit
graph need then not be stable, and there may even be none that is: a coalition is then looked for inside a
component that could do without the others (`_shrunk`), so that Axioms 1 and 2 hold in any case.

The axioms admit other partitions beside the one that is found here, in which a client keeps others from their
common optimum: nobody of them gains by leaving alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import networkx as nx

C = TypeVar("C", bound=Any)


class Benefits(Generic[C]):
    """Who benefits from whom, by the optimal collaborator sets that were found among certain clients.

    Among fewer of them each set loses those that are gone (assumption 1).
    """

    def __init__(self, collaborators: Mapping[C, frozenset[C]]) -> None:
        self._collaborators = collaborators

    def collaborators(self, client: C, clients: frozenset[C]) -> frozenset[C]:
        """The optimal collaborator set of a client among `clients` (definition 2); the client is in it."""
        return (self._collaborators[client] & clients) | {client}

    def satisfied(self, client: C, coalition: frozenset[C], clients: frozenset[C]) -> bool:
        """Whether a client is as well off in a coalition as it could be with any of `clients` (eq. 4)."""
        return self.collaborators(client, clients) <= coalition


def benefit_graph(benefits: Benefits[C], clients: Iterable[C]) -> nx.DiGraph:
    """BG(clients): an edge from j to i where j is in the optimal collaborator set of i, without loops."""
    names = sorted(clients)
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    for client in names:
        helpers = benefits.collaborators(client, frozenset(names))
        graph.add_edges_from([(helper, client) for helper in sorted(helpers) if helper != client])
    return graph


def is_stable(benefits: Benefits[C], coalition: Iterable[C], clients: Iterable[C]) -> bool:
    """Definition 3: all in it are as well off as with everybody, and no part could do without the rest."""
    members, everybody = frozenset(coalition), frozenset(clients)
    return (
        bool(members)
        and _self_sufficient(benefits, members, everybody) == members
        and not _parts(benefits, members, everybody)
    )


def stable_coalitions(benefits: Benefits[C], clients: Iterable[C]) -> list[tuple[C, ...]]:
    """The components of the benefit graph that are stable, in the clients' order (theorem 1).

    If optimal collaborator sets are unique these are all coalitions that definition 3 calls stable. There is
    always one at least, unless there are no clients.
    """
    everybody = frozenset(clients)
    components = strongly_connected(benefit_graph(benefits, everybody))
    found = [members for members in components if is_stable(benefits, members, everybody)]
    if not found and components:
        found = [_shrunk(benefits, everybody)]
    return found


def equilibrium(benefits: Benefits[C], clients: Iterable[C]) -> list[list[tuple[C, ...]]]:
    """Algorithm 1: the coalitions of the equilibrium, in the stages in which they were found.

    Those of a stage are stable among all clients that were left by the stages before it.
    """
    rest, stages = frozenset(clients), []
    while rest:
        stage = stable_coalitions(benefits, rest)
        stages.append(stage)
        rest = rest.difference(*stage)
    return stages


def equilibrium_at_once(benefits: Benefits[C], clients: Iterable[C]) -> list[tuple[C, ...]]:
    """Algorithm 2: all strongly connected components of the benefit graph of all clients.

    An equilibrium if the benefit graph of fewer clients is a part of this one (assumption 1, corollary 1).
    """
    return strongly_connected(benefit_graph(benefits, clients))


def strongly_connected(graph: nx.DiGraph) -> list[tuple[Any, ...]]:
    """The strongly connected components of a graph (Tarjan 1972), sorted, in the order of their first."""
    return sorted(tuple(sorted(component)) for component in nx.strongly_connected_components(graph))


def affected_by_departure(stages: Sequence[Sequence[tuple[C, ...]]], client: C) -> list[C]:
    """Whom the departure of a client affects: the rest of its coalition, and all found in later stages.

    Coalitions found before it, or in the same stage, are stable without it, too: nobody in them was better
    off with it.
    """
    for number, stage in enumerate(stages):
        mine = next((coalition for coalition in stage if client in coalition), None)
        if mine is not None:
            rest = [member for member in mine if member != client]
            return _pooled(rest, stages[number + 1 :]) if rest else []
    return []


def affected_by_arrival(stages: Sequence[Sequence[tuple[C, ...]]], wanted_by: Iterable[C]) -> list[C]:
    """Whom an arrival affects, which clients have in their optimal set among those of their stage and later.

    The coalitions of these clients, as far as they were found in the first stage that has one of them, and
    all that were found in later stages.
    """
    wanting = frozenset(wanted_by)
    for number, stage in enumerate(stages):
        broken = [coalition for coalition in stage if not wanting.isdisjoint(coalition)]
        if broken:
            return _pooled([client for coalition in broken for client in coalition], stages[number + 1 :])
    return []


def without_coalitions_of(
    stages: Sequence[Sequence[tuple[C, ...]]], affected: Iterable[C]
) -> list[list[tuple[C, ...]]]:
    """The stages without the coalitions of those that are affected; empty ones are left out."""
    gone = frozenset(affected)
    remaining = [[coalition for coalition in stage if gone.isdisjoint(coalition)] for stage in stages]
    return [stage for stage in remaining if stage]


def _pooled(members: Iterable[C], stages: Sequence[Sequence[tuple[C, ...]]]) -> list[C]:
    return sorted([*members, *[client for stage in stages for coalition in stage for client in coalition]])


def _self_sufficient(benefits: Benefits[C], members: frozenset[C], clients: frozenset[C]) -> frozenset[C]:
    """The largest part of `members` in which everybody is as well off as with all `clients`; perhaps empty.

    There is one: of two such parts, both together are one, too, since utilities do not fall with the choice.
    """
    while True:
        content = frozenset(
            [client for client in sorted(members) if benefits.satisfied(client, members, clients)]
        )
        if content == members:
            return members
        members = content


def _parts(benefits: Benefits[C], members: frozenset[C], clients: frozenset[C]) -> list[frozenset[C]]:
    """For each member the largest self-sufficient part without it, where that is not empty.

    A part that loses nothing by leaving (eq. 5 does not hold for it) lacks some member, so it lies in one.
    """
    parts = [_self_sufficient(benefits, members - {member}, clients) for member in sorted(members)]
    return [part for part in parts if part]


def _shrunk(benefits: Benefits[C], clients: frozenset[C]) -> tuple[C, ...]:
    """A stable coalition where no component is one: what remains of all as long as a part can leave."""
    members = clients
    while parts := _parts(benefits, members, clients):
        members = min(parts, key=lambda part: (len(part), sorted(part)))
    return tuple(sorted(members))
