"""FLT: clusters of clients with similar samples, found once before the training; averages inside clusters.

Jamali-Rad, Abdizadeh and Singh, "Federated learning with taskonomy for non-IID data" (2022):

    once:       the server sends all clients an encoder W
                C_i <- k-means centroids of client i's encoded samples           `centroids` of them
                d_ij <- min over matchings m of mean_c ||C_i[c] - C_j[m(c)]||^2
                clusters by hierarchical clustering (average linkage) of d
    each round: federated averaging inside each cluster                        weighted by samples

The distance is as in the authors' public code (hjraad/FLT). If two clients have unequal numbers of centroids,
all centroids of the client with fewer centroids are matched. Labels are not used: clusters that differ only
in the names of classes are not found. A client that joins later, or did not answer in time, is asked when it
is first sampled, and joins the cluster with the nearest clients on average. The learned graph connects the
clients of a cluster. A client is evaluated by the last model of its cluster that it received.

Differences from the paper:

- *The encoder.* The authors train a convolutional autoencoder on public data of the same kind. Here, no such
  data is assumed: W is a random linear projection, independent normal numbers, which keeps squared distances
  between samples within a factor of about 1 +- sqrt(2 / embedding) (Johnson and Lindenstrauss 1984). Features
  of shapes that an autoencoder would learn are lost. For photographs (CIFAR-10) only 2 centroids separate the
  classes; for digits, as many as a client has classes work better.
- *No UMAP* of the centroids. The authors' absolute threshold, 1 in the plane of UMAP, has no meaning without
  UMAP. Here, the number of clusters is given, or `threshold` as a share of the largest distance.
- *Only disjoint clusters*: no averages along a general graph of related clients.

Messages in addition to those of federated averaging: once, W to each client and `embedding` times `centroids`
numbers back (MAPL, table 7). Each task also names the cluster's clients, for the graph: some ten bytes for
each client, which the paper does not send. A client's device takes time for the encoding, and none for
k-means.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor

from actors.message import PeerUnavailable, RemoteError
from actors.settings.quantities import Count, PositiveWeight
from protocols.framework.mathematics import shared_rng
from protocols.framework.requirements import ProtocolSettings, Requirement
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import (
    Contribution,
    GlobalModel,
    RoundClient,
    RoundServer,
    RoundSettings,
    RoundTask,
    averaged,
)


@dataclass(frozen=True)
class Encode:
    """Request for centroids of the client's samples under this encoder [values of a sample * embedding]."""

    encoder: Vector


@dataclass(frozen=True)
class Centroids:
    """K-means centroids of a client's encoded samples, concatenated [centroids * embedding]."""

    centroids: Vector


@dataclass(frozen=True)
class ClusterTask(RoundTask):
    """Task to train from these parameters of the cluster with these members, including the receiver."""

    params: Vector
    round: int
    members: tuple[str, ...]


class FLTSettings(RoundSettings):
    """Before the training, find clusters of clients with similar samples; then average inside clusters."""

    clusters: Count = 2
    """Number of clusters; with fewer clients, the number of clients."""
    threshold: PositiveWeight | None = None
    """Alternative to `clusters`: the mean distance up to which clusters are joined, as a share of the largest
    distance of two clients."""
    centroids: Count = 2
    """Number of k-means centroids of a client's samples (N_emb in MAPL's table 7), at most one for each
    sample. The authors take 2, or as many as a client has classes."""
    embedding: Count = 64
    """Length of an encoded sample (d_p in MAPL's table 7)."""

    def own_numbers(self, model: int, clients: int) -> int:
        """Return the number of values of the clusters' models."""
        return (clients if self.threshold else min(self.clusters, clients)) * model


def encode_samples(samples: Tensor, encoder: Tensor, embedding: int) -> Tensor:
    """Return the codes [n * embedding] of samples [n * numbers], by the encoder [numbers * embedding]."""
    matrix = encoder.reshape(-1, embedding)
    return (samples.reshape(-1, matrix.shape[0]) @ matrix).flatten()


def k_means_centroids(points: ArrayLike, count: int, seed: int) -> NDArray[np.float64]:
    """Return the k-means centroids [k, d] of points [n, d]; k: `count`, or the number of different points."""
    rows = np.asarray(points, dtype=np.float64)
    count = min(count, len(np.unique(rows, axis=0)))
    with threadpool_limits(1):  # several threads would add up in a different order each time
        found: NDArray[np.float64] = KMeans(count, n_init=10, random_state=seed).fit(rows).cluster_centers_
    return found


def matching_distance(one: ArrayLike, other: ArrayLike) -> float:
    """Return the least mean squared distance of a matching of centroids [k, d] and [l, d]."""
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    squares = ((first[:, None] - second[None]) ** 2).sum(axis=-1)
    return float(squares[linear_sum_assignment(squares)].mean())


def clusters_by_linkage(distances: ArrayLike, count: int, threshold: float | None = None) -> list[int]:
    """Return each client's cluster number; clusters are numbered from 0 by their first clients.

    distances [n (n - 1) / 2]: of each pair, in the order of `combinations`. count: maximum number of
    clusters. threshold: replaces `count`; clusters are joined up to this share of the largest distance.
    """
    pairs = np.asarray(distances, dtype=np.float64)
    if not len(pairs):
        return [0]
    tree = linkage(pairs, method="average")
    if threshold is None:
        labels = fcluster(tree, count, criterion="maxclust").tolist()
    else:
        labels = fcluster(tree, threshold * pairs.max(), criterion="distance").tolist()
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [numbers[label] for label in labels]


class FLTServer(RoundServer):
    """Server that finds the clusters, and keeps a model for each."""

    settings: FLTSettings

    def setup(self) -> None:
        self.encoder = self._drawn()
        self.centroids: dict[str, NDArray[np.float64]] = {}
        self.assigned: dict[str, int] = {}
        self.models: list[Vector] = []

    async def round(self, number: int) -> None:
        if not self.models:
            await asyncio.gather(*[self.encode(client) for client in self.peers])
            if not self.centroids:
                return
            self.form()
        await super().round(number)

    async def encode(self, client: str) -> None:
        """Ask a client for its centroids, and suspect the client if it stays silent or fails.

        If there are clusters already, the client joins the nearest one.
        """
        try:
            answer = await self.ask(
                client, Encode(self.encoder), timeout=self.settings.patience, attempts=None
            )
        except (PeerUnavailable, RemoteError):
            self.suspect(client)
            return
        self.centroids[client] = answer.centroids.numpy().reshape(-1, self.settings.embedding)
        if self.models:
            self.assigned[client] = self.nearest(client)

    def _drawn(self) -> Vector:
        """Draw the encoder; a server that restarts draws the same encoder, so that centroids stay valid."""
        assert self.context.model is not None
        rng, width = shared_rng(self.context.shared_seed, "flt"), self.settings.embedding
        numbers = rng.standard_normal(int(np.prod(self.context.model.input_shape)) * width)
        drawn: Vector = self.vector(numbers / np.sqrt(width))
        return drawn

    def form(self) -> None:
        """Form the clusters of all clients that have answered; each starts with the same model."""
        clients = sorted(self.centroids)
        distances = [
            matching_distance(self.centroids[one], self.centroids[other])
            for one, other in combinations(clients, 2)
        ]
        found = clusters_by_linkage(distances, self.settings.clusters, self.settings.threshold)
        self.assigned = dict(zip(clients, found, strict=True))
        self.models = [self.params] * (max(found) + 1)

    def nearest(self, client: str) -> int:
        """Return the cluster whose clients' centroids are nearest to this client's, on average."""
        of_each: dict[int, list[float]] = {}
        for other, cluster in self.assigned.items():
            if other != client:
                distance = matching_distance(self.centroids[client], self.centroids[other])
                of_each.setdefault(cluster, []).append(distance)
        return min(of_each, key=lambda cluster: (np.mean(of_each[cluster]), cluster), default=0)

    async def answer(self, client: str, number: int) -> Any:
        if client not in self.assigned:
            await self.encode(client)
        return await super().answer(client, number) if client in self.assigned else None

    def task(self, client: str, number: int) -> RoundTask:
        cluster = self.assigned[client]
        members = [peer for peer in self.peers if self.assigned.get(peer) == cluster]
        return ClusterTask(self.models[cluster], number, tuple(members))

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        for cluster in range(len(self.models)):
            members: dict[str, Contribution] = {
                client: answer for client, answer in answers.items() if self.assigned[client] == cluster
            }
            if members:
                self.models[cluster] = averaged(members)

    def news(self, client: str) -> object | None:
        return GlobalModel(self.models[self.assigned[client]]) if client in self.assigned else None


class FLT(RoundClient):
    """Client that describes its samples by centroids, and then trains its cluster's model."""

    Settings = FLTSettings
    search_space = SearchSpace(
        "numbers of clusters of the scenarios in this repository",
        {
            "clusters": OneOf((2, 3, 4, 5)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: FLTSettings
    server = FLTServer
    members: tuple[str, ...] = ()
    """Clients of this client's cluster, from its last task; empty before the first task."""
    described: Centroids | None = None
    """Centroids of this client's samples, after the first request in this session."""

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        problem = (
            "distinguishes clients by the classes of their samples, to the extent that the values of the "
            'samples reveal them; must be "classification"'
        )
        if settings.alone:
            return ()
        return (Requirement("data.task", lambda task: task == "classification", problem),)

    async def on_message(self, message: object, sender: str) -> object:
        if isinstance(message, Encode):
            # On a slow device this takes longer than the server waits: its next request gets the answer.
            self._known = self._working = True
            try:
                self.described = self.described or await self.describe(message.encoder)
            finally:
                self._working = False
            return self.described
        return await super().on_message(message, sender)

    async def describe(self, encoder: Vector) -> Centroids:
        """Return the centroids of this client's samples."""
        samples, width = self.inputs(), self.settings.embedding
        flops = 2.0 * samples.shape[0] * width
        points = await self.apply(encode_samples, samples, encoder, embedding=width, flops=flops)
        seed = int(self.rng.integers(2**31))
        found = k_means_centroids(points.numpy().reshape(-1, width), self.settings.centroids, seed)
        return Centroids(self.vector(found.flatten()))

    async def work(self, task: ClusterTask) -> object:
        self.members = task.members
        return await super().work(task)

    def weights(self) -> Mapping[str, float]:
        return {peer: 1.0 for peer in self.members if peer != self.name}
