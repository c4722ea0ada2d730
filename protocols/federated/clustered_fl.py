"""Clustered federated learning: where averaging has come to rest but clients pull apart, they are parted.

Sattler, Mueller and Samek, "Clustered federated learning: Model-agnostic distributed multitask optimization
under privacy constraints" (2020). All clients begin in one cluster. In each round and cluster c

    D_i <- what E local epochs from x_c change, for its clients i
    D <- sum_i n_i D_i / sum_i n_i;    x_c <- x_c + D
    if ||D|| < eps1 and max_i ||D_i|| > eps2:                                              (the two criteria)
        part c in two so that the largest similarity across is the smallest that there is: cos(D_i, D_j)
        unless that is too much alike: sqrt((1 - max cos across)/2) must be more than `separation`

Each part goes on from x_c, and may be parted again. The server keeps what has parted a cluster: a client
that was not in that round, or comes later, gets the model from before the first parting, then from before the
next, and goes each time where the update is that is most like its own. So it finds its place in as many
rounds as there are partings.

A client whose budget is spent changes nothing: with one a cluster is not parted any more.

eps1 and eps2 are shares of the largest norm of an average update of that cluster so far, as the paper's rule
of thumb has it, so that they fit any model. A client is judged by the last model of its cluster that it
received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field

from actors.settings.quantities import Count, Weight
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


class ClusteredFLSettings(RoundSettings):
    """Federated averaging that parts clients whose updates keep pointing in different directions."""

    stationary: Weight = 0.2
    """A cluster may be parted once its average update is shorter than this share of the longest so far."""
    progress: Weight = 0.4
    """And if some client's update is still longer than this share of it."""
    separation: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How different the parts must be at least: sqrt((1 - cos)/2) of the most similar updates across."""
    smallest: Count = 3
    """Clients that a cluster has at least to be parted."""


def cosines(updates: ArrayLike) -> np.ndarray:
    """Cosines [n, n] of updates [n, P]; 0 where one of them is 0."""
    rows = np.asarray(updates, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    directions = rows / np.where(lengths > 0, lengths, 1.0)
    return directions @ directions.T


def bipartition(similarity: ArrayLike) -> tuple[list[int], list[int], float]:
    """The two parts of n >= 2 clients with the smallest largest similarity [n, n] across, and that.

    Who is most alike is joined first, until two parts are left (the paper's optimal bipartitioning).
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
    """A model; once it is parted, the model from before. longest: the longest average update so far.

    parts: nothing, or two, each with the updates [n, P] of its clients in the round of the parting.
    """

    params: Vector
    longest: float = 0.0
    parts: list[tuple[Cluster, np.ndarray]] = field(default_factory=list)

    def next_for(self, update: np.ndarray) -> Cluster:
        """The part in which the update is that is most like this one [P]."""
        nearest = [cosines(np.vstack([update, updates]))[0, 1:].max() for _, updates in self.parts]
        return self.parts[int(np.argmax(nearest))][0]


class ClusteredFLServer(RoundServer):
    """Averages each cluster, and parts it."""

    settings: ClusteredFLSettings

    def begin(self) -> None:
        self.first = Cluster(self.params)
        self.assigned: dict[str, Cluster] = {}

    def cluster_of(self, client: str) -> Cluster:
        """Where a client is by now."""
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
        """The average of a cluster, after which it may be parted."""
        total = sum(samples)
        average = mix([(n / total, update) for n, update in zip(samples, updates, strict=True)])
        directions = [self.trainable(update) for update in updates]
        trained = [direction.norm() for direction in directions]
        length = float(self.trainable(average).norm())
        cluster.longest = max(cluster.longest, length)
        # Who has spent its budget pulls nowhere: that nothing moves any more says nothing of the others.
        all_train = self.done.isdisjoint(clients)
        at_rest = all_train and length < self.settings.stationary * cluster.longest
        pulling = max([float(norm) for norm in trained]) > self.settings.progress * cluster.longest
        if at_rest and pulling and len(clients) >= self.settings.smallest:
            self.divide(cluster, clients, np.stack([direction.numpy() for direction in directions]))
        for heir in [part for part, _ in cluster.parts] or [cluster]:
            heir.params = heir.params + average

    def divide(self, cluster: Cluster, clients: Sequence[str], updates: np.ndarray) -> None:
        """Give both parts of a cluster models of their own, if they are different enough."""
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
    """A client of clustered federated learning: it does what one of federated averaging does."""

    Settings = ClusteredFLSettings
    server = ClusteredFLServer
