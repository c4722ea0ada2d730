"""Clustered federated learning: a cluster is split when its average converges but its clients diverge.

Sattler, Mueller and Samek, "Clustered federated learning: Model-agnostic distributed multitask optimization
under privacy constraints" (2020). All clients start in one cluster. In each round and cluster c

    D_i <- change by E local epochs from x_c, for its clients i
    D <- sum_i n_i D_i / sum_i n_i;    x_c <- x_c + D
    if ||D|| < eps1 and max_i ||D_i|| > eps2:                                              (the two criteria)
        split c in two so that the largest similarity cos(D_i, D_j) across is as small as possible,
        unless the parts are too similar: sqrt((1 - max cos across)/2) must be more than `separation`

Each part continues from x_c, and may be split again. The server keeps the updates that split a cluster. A
client that was not in that round, or joins later, gets the model from before the first split, then the model
from before the next split, and so on. Each time, it joins the part with the update most similar to its own.
It thus finds its cluster in as many rounds as there are splits.

A client that has exhausted its budget has no update: a cluster with such a client is not split any more.

eps1 and eps2 are shares of the largest norm of an average update of that cluster so far, as in the paper's
rule of thumb, so that they fit any model. With `criteria = "fedem"` they are the constants of the code of
FedEM (Marfoq et al., 2021), which compares eps2 with the largest single change of a parameter instead of the
largest norm. A client is evaluated by the last model of its cluster that it received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from actors.settings.quantities import Count, Weight
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.server_rounds import (
    Assignment,
    Contribution,
    GlobalModel,
    RoundClient,
    RoundServer,
    RoundSettings,
    RoundTask,
)

FEDEM_CRITERIA = (0.4, 1.6)  # default tolerances of FedEM's code


class ClusteredFLSettings(RoundSettings):
    """Average as federated averaging does, and split clusters with diverging updates."""

    criteria: Literal["relative", "fedem"] = "relative"
    """Conditions for a split: "relative" uses `stationary` and `progress`. "fedem" uses the constants of the
    code of FedEM: the average update is shorter than 0.4, and one parameter of a client changes by more
    than 1.6."""
    stationary: Weight = 0.2
    """Condition for a split: the average update is shorter than this share of the longest so far."""
    progress: Weight = 0.4
    """Second condition for a split: a client's update is still longer than this share of the longest."""
    separation: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Minimum difference of the parts: sqrt((1 - cos)/2) of the most similar updates of both parts."""
    smallest: Count = 3
    """Minimum number of clients in a cluster that is split."""


def cosines(updates: ArrayLike) -> np.ndarray:
    """Return the cosines [n, n] of updates [n, P]; 0 for updates of 0."""
    rows = np.asarray(updates, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    directions = rows / np.where(lengths > 0, lengths, 1.0)
    return directions @ directions.T


def bipartition(similarity: ArrayLike) -> tuple[list[int], list[int], float]:
    """Split n >= 2 clients into the two least similar parts; return the parts and their similarity.

    similarity [n, n]: the similarity of each pair of clients. The similarity of two parts is the maximum over
    all pairs with one client in each part.

    The most similar clients are joined first, until two parts are left (the paper's optimal bipartitioning).
    """
    alike = np.asarray(similarity, dtype=np.float64)
    count = len(alike)
    part = list(range(count))
    pairs = [(-alike[i, j], i, j) for i in range(count) for j in range(i + 1, count)]
    for _, i, j in sorted(pairs):
        if len(set(part)) == 2:
            break
        part = [part[i] if each == part[j] else each for each in part]
    first = [i for i in range(count) if part[i] == part[0]]
    second = [i for i in range(count) if part[i] != part[0]]
    return first, second, float(alike[np.ix_(first, second)].max())


@dataclass(eq=False)
class Cluster:
    """Cluster, whose model stays the same after a split. longest: largest norm of an average update.

    parts: empty, or two, each with the updates [n, P] of its clients in the round of the split.
    """

    params: Vector
    longest: float = 0.0
    parts: list[tuple[Cluster, np.ndarray]] = field(default_factory=list)

    def next_for(self, update: np.ndarray) -> Cluster:
        """Return the part with the update most similar to this update [P]."""
        nearest = [cosines(np.vstack([update, updates]))[0, 1:].max() for _, updates in self.parts]
        return self.parts[int(np.argmax(nearest))][0]


class ClusteredFLServer(RoundServer):
    """Server that averages each cluster, and splits it."""

    settings: ClusteredFLSettings

    def setup(self) -> None:
        self.first = Cluster(self.params)
        self.assigned: dict[str, Cluster] = {}

    def cluster_of(self, client: str) -> Cluster:
        """Return the current cluster of a client."""
        return self.assigned.get(client, self.first)

    def task(self, client: str, number: int) -> RoundTask:
        return Assignment(self.cluster_of(client).params, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        members: dict[Cluster, list[str]] = {}
        for client in answers:
            members.setdefault(self.cluster_of(client), []).append(client)
        for cluster, clients in members.items():
            contributions: list[Contribution] = [answers[client] for client in clients]
            updates = [answer.params - cluster.params for answer in contributions]
            if cluster.parts:
                for client, update in zip(clients, updates, strict=True):
                    if client not in self.done:
                        self.assigned[client] = cluster.next_for(self.trainable(update).numpy())
            else:
                self.advance(cluster, clients, updates, [answer.samples for answer in contributions])

    def advance(
        self, cluster: Cluster, clients: Sequence[str], updates: Sequence[Vector], samples: Sequence[int]
    ) -> None:
        """Average a cluster, and split it if the criteria are met."""
        total = sum(samples)
        average = mix([(n / total, update) for n, update in zip(samples, updates, strict=True)])
        directions = [self.trainable(update) for update in updates]
        changes = self.changes(directions)
        length = float(self.trainable(average).norm())
        cluster.longest = max(cluster.longest, length)
        average_limit, change_limit = self.limits(cluster)
        # A client that has exhausted its budget has an update of 0: no evidence about the other clients.
        at_rest = self.done.isdisjoint(clients) and length < average_limit
        pulling = max([float(change) for change in changes]) > change_limit
        if at_rest and pulling and len(clients) >= max(2, self.settings.smallest):
            self.divide(cluster, clients, np.stack([direction.numpy() for direction in directions]))
        for heir in [part for part, _ in cluster.parts] or [cluster]:
            heir.params = heir.params + average

    def limits(self, cluster: Cluster) -> tuple[float, float]:
        """Return eps1 and eps2, the limits of the average and of a client."""
        if self.settings.criteria == "fedem":
            return FEDEM_CRITERIA
        return self.settings.stationary * cluster.longest, self.settings.progress * cluster.longest

    def changes(self, directions: Sequence[Vector]) -> list[SupportsFloat]:
        """Return what eps2 is compared with, for each client's update."""
        if self.settings.criteria == "fedem":
            return [np.abs(direction.numpy()).max() for direction in directions]
        return [direction.norm() for direction in directions]

    def divide(self, cluster: Cluster, clients: Sequence[str], updates: np.ndarray) -> None:
        """Split a cluster into two parts with their own models, if these parts are different enough."""
        *halves, largest = bipartition(cosines(updates))
        if np.sqrt(max(0.0, 1.0 - largest) / 2) <= self.settings.separation:
            return
        for half in halves:
            heir = Cluster(cluster.params)
            cluster.parts.append((heir, updates[half]))
            self.assigned |= {clients[i]: heir for i in half}

    def news(self, client: str) -> object | None:
        cluster = self.cluster_of(client)
        return None if cluster.parts else GlobalModel(cluster.params)


class ClusteredFL(RoundClient):
    """Client of clustered federated learning, which works like a client of federated averaging."""

    Settings = ClusteredFLSettings
    search_space = SearchSpace(
        "about a decade around coterie's defaults; the paper's text was not available",
        {
            "stationary": Range(0.05, 2.0, log=True),
            "progress": Range(0.02, 1.0, log=True),
            "smallest": OneOf((1, 2, 3)),
            "local_steps": LOCAL_STEPS,
        },
    )
    server = ClusteredFLServer
