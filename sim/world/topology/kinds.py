"""Who may talk to whom: the kinds of topology. A kind is one class: keys, checks and graph."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, exactly_one
from actors.settings.members import cluster_misfits
from actors.settings.quantities import Count, Share, Within
from actors.settings.tables import kind_alone
from sim.errors import UserError
from sim.files.input_file import InputFile

if TYPE_CHECKING:
    import networkx as nx

_LINKS_MAX = 20_000_000  # about as many as fit in 6 GB
_ALONE_MAX = 20.0  # clients without a link, on average: one graph in 500 million has none


def _graphs() -> ModuleType:
    """The module of graphs, imported when needed: networkx takes long to import."""
    from sim.world.topology import graphs

    return graphs


Numbers = Sequence[Sequence[int]]
"""For each client, numbers of other clients."""


@dataclass(frozen=True)
class Adjacency:
    """Whom each client may send to, who may send to it, and its weights of their models.

    weights: for each client, by the sender's number. None if the topology has no weights.
    """

    receivers: Numbers
    senders: Numbers
    weights: Sequence[Mapping[int, float]] | None = None

    @property
    def directed(self) -> bool:
        """Whether links may be one-way."""
        return self.receivers is not self.senders


class TopologyKind(Settings):
    """A kind of topology."""

    kind: str

    @abstractmethod
    def adjacency(self, n: int, seed: int) -> Adjacency:
        """Who may send to whom among n clients. UserError if it is impossible."""

    def links(self, n: int) -> int:
        """About how many links it has among n clients (0: few). UserError if it can never be connected."""
        return 0

    def misfits(self, clients: int) -> Iterator[SettingError]:
        """Settings that are impossible for so many clients, by key within the topology."""
        yield from ()

    def require_possible(self, n: int) -> None:
        """UserError if it would not fit in memory or never be connected. Makes no graph."""
        links = self.links(n)
        if links > _LINKS_MAX:
            raise UserError(
                f'clients.topology.kind = "{self.kind}": has {links:,} links among clients.count = {n}, more '
                f"than fit in memory; must be at most {_LINKS_MAX:,}: use fewer clients, or a topology with "
                "fewer neighbours, such as k-regular"
            )


class Undirected(TopologyKind):
    """A topology with links in both directions."""

    @abstractmethod
    def graph(self, n: int, seed: int) -> nx.Graph:
        """The graph on n clients. ValueError or UserError if it is impossible."""

    def adjacency(self, n: int, seed: int) -> Adjacency:
        try:
            neighbours = _graphs().neighbours(self.graph(n, seed))
        except ValueError as error:
            raise UserError(f"clients.topology: {error}") from None
        return Adjacency(neighbours, neighbours)


class Complete(Undirected):
    """Every client knows every other."""

    kind: Literal["complete"]

    def links(self, n: int) -> int:
        return n * (n - 1) // 2

    def graph(self, n: int, seed: int) -> nx.Graph:
        return _graphs().complete(n)


class Ring(Undirected):
    """Each client knows the one before and the one after it."""

    kind: Literal["ring"]

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if clients < 3:
            yield SettingError("", self.kind, f"needs 3 clients or more, clients.count = {clients}")

    def graph(self, n: int, seed: int) -> nx.Graph:
        return _graphs().ring(n)


class KRegular(Undirected):
    """A random connected graph in which all clients have the same number of neighbours."""

    kind: Literal["k-regular"]
    degree: Count
    """Neighbours of each client."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if self.degree >= clients or self.degree * clients % 2:
            problem = f"must be less than clients.count = {clients}, and their product must be even"
            yield SettingError("degree", self.degree, problem)

    def links(self, n: int) -> int:
        return n * self.degree // 2

    def graph(self, n: int, seed: int) -> nx.Graph:
        return _graphs().k_regular(n, self.degree, seed)


class ErdosRenyi(Undirected):
    """A random connected graph in which each pair is linked with the same probability."""

    kind: Literal["erdos-renyi"]
    probability: Annotated[float, Field(gt=0, le=1)]
    """Probability of a link between two clients."""

    def links(self, n: int) -> int:
        alone = n * (1 - self.probability) ** (n - 1) if n > 1 else 0.0
        if alone > _ALONE_MAX:
            raise UserError(
                f"clients.topology.probability = {self.probability}: leaves {alone:,.0f} of "
                f"clients.count = {n} without a neighbour, on average, so that the graph is never "
                "connected; must be above ln(n) / n"
            )
        return round(self.probability * n * (n - 1) / 2)

    def graph(self, n: int, seed: int) -> nx.Graph:
        return _graphs().erdos_renyi(n, self.probability, seed)


class SmallWorld(Undirected):
    """Watts and Strogatz: a ring of near neighbours, with some links rewired at random."""

    kind: Literal["small-world"]
    degree: Annotated[int, Field(ge=2), Within(2, 1_000_000)]
    """Near neighbours of each client before rewiring."""
    rewire: Share
    """Share of the links that are rewired at random."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if self.degree >= clients:
            yield SettingError("degree", self.degree, f"must be less than clients.count = {clients}")

    def links(self, n: int) -> int:
        return n * self.degree // 2

    def graph(self, n: int, seed: int) -> nx.Graph:
        return _graphs().small_world(n, self.degree, self.rewire, seed)


class ClusterTopology(Undirected):
    """Complete inside each cluster, no link between clusters."""

    kind: Literal["clusters"]
    count: Count | None = None
    """Number of clusters, as equal in size as possible."""
    sizes: tuple[Count, ...] | None = None
    """Clients in each cluster, instead of `count`."""

    @model_validator(mode="after")
    def _one_way(self) -> ClusterTopology:
        exactly_one(self, "count", "sizes")
        return self

    def misfits(self, clients: int) -> Iterator[SettingError]:
        return cluster_misfits("count", self.count, self.sizes, clients)

    def links(self, n: int) -> int:
        return sum(size * (size - 1) // 2 for size in self._sizes(n))

    def graph(self, n: int, seed: int) -> nx.Graph:
        return _graphs().clusters(self._sizes(n))

    def _sizes(self, n: int) -> Sequence[int]:
        return self.sizes or [len(part) for part in np.array_split(np.arange(n), self.count or 1)]


class EdgeList(Undirected):
    """Links from a text file: two client numbers on each line."""

    kind: Literal["edge-list"]
    file: str
    """Path, relative to the current folder or else to the scenario's."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if not os.path.isfile(self.file):  # Path.is_file raises for a path that is too long
            problem = "no such file; must be a text file with two client numbers on each line"
            yield SettingError("file", self.file, problem)

    def graph(self, n: int, seed: int) -> nx.Graph:
        file = InputFile("clients.topology.file", Path(self.file))
        text = file.text()
        try:
            return _graphs().from_edge_list(text, n)
        except ValueError as error:
            raise file.refusal(str(error)) from None


Topology = Annotated[
    Annotated[
        Complete | Ring | KRegular | ErdosRenyi | SmallWorld | ClusterTopology | EdgeList,
        Field(discriminator="kind"),
    ],
    kind_alone("complete", "ring"),
]
