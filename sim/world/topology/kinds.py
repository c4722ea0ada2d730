"""Kinds of topology. A kind is one class: keys, checks and links.

Links depend on the arguments only. Random graphs are drawn until one is connected, since an unreachable
client would silently train by itself.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, combinations, pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, exactly_one
from actors.settings.quantities import Count, Share, Within
from actors.settings.tables import kind_alone
from sim.errors import UserError
from sim.files.input_file import InputFile
from sim.files.named_files import BesideFile
from sim.kernel.random import key
from sim.members import cluster_misfits

_LINKS_MAX = 20_000_000  # about as many as fit in 6 GB
_TRIES = 100  # draws of a random graph before an error: not connected
_ALONE_MAX = 20.0  # clients without a link, on average; one graph in 500 million has no such client


Numbers = Sequence[Sequence[int]]
"""For each client, numbers of other clients."""


@dataclass(frozen=True)
class Adjacency:
    """Receivers and senders of each client, and its weights of the senders' models.

    weights: for each client, by the sender's number. None if the topology has no weights.
    """

    receivers: Numbers
    senders: Numbers
    weights: Sequence[Mapping[int, float]] | None = None

    @property
    def directed(self) -> bool:
        """True if links may be one-way."""
        return self.receivers is not self.senders


class TopologyKind(Settings):
    """Kind of topology."""

    kind: str

    @abstractmethod
    def adjacency(self, n: int, seed: int) -> Adjacency:
        """Return the links between n clients. Raises UserError if they are impossible."""

    def links(self, n: int) -> int:
        """Return the approximate number of links; 0 if they are too few to matter.

        Raises UserError if no graph of this kind can be connected.
        """
        return 0

    def misfits(self, clients: int) -> Iterator[SettingError]:
        """Yield the settings that are impossible for this number of clients, by key within the topology."""
        yield from ()

    def require_possible(self, n: int) -> None:
        """Raise UserError if the graph cannot fit in memory or cannot be connected. Creates no graph."""
        links = self.links(n)
        if links > _LINKS_MAX:
            raise UserError(
                f'clients.topology.kind = "{self.kind}": {n:,} clients have {links:,} links, which exceed '
                f"the memory; must be at most {_LINKS_MAX:,}: use fewer clients, or a topology with fewer "
                "neighbors, such as k-regular"
            )


class Undirected(TopologyKind):
    """Topology with links in both directions."""

    @abstractmethod
    def pairs(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        """Return the links of n clients, each in at least one direction. Raises UserError if impossible."""

    def adjacency(self, n: int, seed: int) -> Adjacency:
        numbers = _neighbours(n, self.pairs(n, seed))
        return Adjacency(numbers, numbers)


class RandomGraph(TopologyKind):
    """Topology whose random graph is redrawn until it is connected."""

    remedy: ClassVar[str]
    """Advice for a connected graph, for the error message."""

    @abstractmethod
    def draw(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        """Return the links of a graph of n clients, each in one direction."""

    def adjacency(self, n: int, seed: int) -> Adjacency:
        of_kind = key(seed, self.kind)
        for attempt in range(_TRIES):
            numbers = _neighbours(n, self.draw(n, key(of_kind, attempt)))
            if _is_connected(numbers):
                return Adjacency(numbers, numbers)
        raise UserError(
            f'clients.topology.kind = "{self.kind}": none of {_TRIES} drawn graphs of {n} clients is '
            f"connected; use {self.remedy}"
        )


def _neighbours(n: int, pairs: Iterable[tuple[int, int]]) -> Numbers:
    """Return the neighbors of each of n clients, sorted, from pairs in at least one direction."""
    found = np.fromiter(chain.from_iterable(pairs), np.int64).reshape(-1, 2)
    links = np.unique(np.concatenate([found, found[:, ::-1]]) @ (n, 1))
    ends, others = np.searchsorted(links, np.arange(n + 1) * n).tolist(), (links % n).tolist()
    return [others[start:end] for start, end in pairwise(ends)]


def _is_connected(neighbours: Numbers) -> bool:
    reached, unseen = {0}, [0]
    while unseen:
        new = [other for other in neighbours[unseen.pop()] if other not in reached]
        reached.update(new)
        unseen += new
    return len(reached) == len(neighbours)


class Complete(Undirected):
    """Each client knows all other clients."""

    kind: Literal["complete"]

    def links(self, n: int) -> int:
        return n * (n - 1) // 2

    def pairs(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        return combinations(range(n), 2)


class Ring(Undirected):
    """Each client knows the client before and the client after it."""

    kind: Literal["ring"]

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if clients < 3:
            yield SettingError("", self.kind, f"needs at least 3 clients, but clients.count = {clients}")

    def pairs(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        return [(i, (i + 1) % n) for i in range(n)]


class KRegular(RandomGraph):
    """Random connected graph in which all clients have the same number of neighbors."""

    remedy = "a larger degree"

    kind: Literal["k-regular"]
    degree: Count
    """Number of neighbors of each client."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if self.degree >= clients:
            yield SettingError("degree", self.degree, f"must be less than clients.count = {clients}")
        elif self.degree * clients % 2:
            problem = f"must be even, because clients.count = {clients} is odd"
            yield SettingError("degree", self.degree, problem)
        elif self.degree == 1 and clients > 2:
            yield SettingError("degree", 1, "links pairs of clients only; must be 2 or more")

    def links(self, n: int) -> int:
        return n * self.degree // 2

    def draw(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        import networkx as nx

        class Links(nx.Graph):
            """List of links in place of a graph: the graph of a million clients takes gigabytes."""

            links: Iterable[tuple[int, int]] = ()

            def add_edges_from(self, ebunch_to_add: Iterable[tuple[int, int]], **attr: object) -> None:
                self.links = ebunch_to_add

        # The algorithm of networkx pairs free ends at random, which hardly ever succeeds if most pairs are
        # linked. In that case the complement is drawn.
        if 2 * self.degree > n:
            return nx.complement(nx.random_regular_graph(n - 1 - self.degree, n, seed=seed)).edges
        drawn: Links = nx.random_regular_graph(self.degree, n, seed=seed, create_using=Links)
        return drawn.links


class ErdosRenyi(RandomGraph):
    """Random connected graph in which each pair is linked with the same probability."""

    remedy = "a larger probability"

    kind: Literal["erdos-renyi"]
    probability: Annotated[float, Field(gt=0, le=1)]
    """Probability of a link between two clients."""

    def links(self, n: int) -> int:
        alone = n * (1 - self.probability) ** (n - 1) if n > 1 else 0.0
        if alone > _ALONE_MAX:
            raise UserError(
                f"clients.topology.probability = {self.probability}: on average, {alone:,.0f} of the {n} "
                "clients have no neighbor, so the graph is never connected; must be above "
                f"{math.log(n) / n:.2g} (ln(n) / n for n clients)"
            )
        return round(self.probability * n * (n - 1) / 2)

    def draw(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        import networkx as nx

        return nx.fast_gnp_random_graph(n, self.probability, seed=seed).edges


class SmallWorld(RandomGraph):
    """Watts and Strogatz (Nature 393, 1998): a ring of near neighbors, with some links rewired at random."""

    remedy = "a larger degree, or a smaller rewire"

    kind: Literal["small-world"]
    degree: Annotated[int, Field(ge=2, multiple_of=2), Within(2, 1_000_000)]
    """Number of near neighbors of each client before rewiring."""
    rewire: Share
    """Share of the links that are rewired at random."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if self.degree >= clients:
            yield SettingError("degree", self.degree, f"must be less than clients.count = {clients}")

    def links(self, n: int) -> int:
        return n * self.degree // 2

    def draw(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        import networkx as nx

        return nx.watts_strogatz_graph(n, self.degree, self.rewire, seed=seed).edges


class ClusterTopology(Undirected):
    """Complete inside each cluster, without links between clusters."""

    kind: Literal["clusters"]
    count: Count | None = None
    """Number of clusters; their sizes are as equal as possible."""
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

    def pairs(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        sizes = self._sizes(n)
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            yield from combinations(range(end - size, end), 2)

    def _sizes(self, n: int) -> Sequence[int]:
        return self.sizes or [len(part) for part in np.array_split(np.arange(n), self.count or 1)]


class EdgeList(Undirected):
    """Links from a text file with two client numbers on each line."""

    kind: Literal["edge-list"]
    file: BesideFile
    """Path, relative to the current folder or, if it does not exist there, to the folder of the scenario."""

    def misfits(self, clients: int) -> Iterator[SettingError]:
        if not os.path.isfile(self.file):  # Path.is_file raises for a path that is too long
            found = "is not a file" if os.path.exists(self.file) else "no such file"
            problem = f"{found}; must be a text file with two client numbers on each line"
            yield SettingError("file", self.file, problem)

    def pairs(self, n: int, seed: int) -> Iterable[tuple[int, int]]:
        """Return the pairs of the file. Each link is listed once, in either direction; # starts a comment."""
        file = InputFile("clients.topology.file", Path(self.file))
        for number, line in enumerate(file.text().splitlines(), start=1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            numbers = {int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 10}
            if len(words) != 2 or len(numbers) != 2 or max(numbers) >= n:
                must = f"must be two different client numbers from 0 to {n - 1}"
                raise file.refusal(f"{line.strip()[:60]!r}: {must}", f"line {number}")
            yield int(words[0]), int(words[1])


_Kinds = Annotated[
    Complete | Ring | KRegular | ErdosRenyi | SmallWorld | ClusterTopology | EdgeList,
    Field(discriminator="kind"),
]
Topology = Annotated[_Kinds, kind_alone(_Kinds)]
