"""Dada: joint learning of personal models and of the collaboration graph, without a server.

Zantedeschi, Bellet and Tommasi, "Fully decentralized joint learning of personalized models and collaboration
graphs" (AISTATS 2020). With models x_k, losses L_k on n_k samples, symmetric weights w_kl >= 0, degrees d_k =
sum_l w_kl and confidences c_k = n_k / max_l n_l,

    J(x, w) = sum_k d_k c_k L_k(x_k) + mu_1/2 sum_{k<l} w_kl ||x_k - x_l||^2 + mu_2 g(w)
    g(w)    = ridge ||w||^2 - sum_k log(d_k + delta)                            (||w||^2 = sum_{k<l} w_kl^2)

is minimized alternately, each client at its own pace:

    model:  steps on L_k(x) + sum_l mu_1 w_kl / (2 d_k c_k) ||x - x_l||^2, with the x_l last received: J as a
            function of x_k, divided by d_k c_k. x_k goes to all l with w_kl > 0.
    graph:  for kappa random peers K at once, which report x_l, L_l and d_l:
            h_l  = c_k L_k + c_l L_l + mu_1/2 ||x_k - x_l||^2
                   + mu_2 (2 ridge w_kl - 1/(d_k + delta) - 1/(d_l + delta))
            w_kl <- max(0, w_kl - h_l / (mu_2 ((kappa + 1)/delta^2 + 2 ridge)))    for l in K

The graph's step is the inverse of the Lipschitz constant of h over K. There are no weights at the start, so
the first graph is one of models that were learned alone.

Differences from the paper: its models are combinations of base predictors, learned by Frank-Wolfe steps; here
they are any network, trained by the scenario's optimizer. The loss that a peer reports is from its own last
graph step, or before this from its first answer. c_k uses the largest n_l known so far. Both ends of a pair
hold its weight; each change has a number, and the change with the higher number is valid (with equal numbers,
the change by the client whose name sorts last), so that the next message repairs the loss of a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from actors.message import PeerUnavailable, RemoteError
from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration, PositiveWeight, Weight
from protocols.framework.client import Client
from protocols.framework.per_peer import PerPeer
from protocols.framework.requirements import ProtocolSettings, Requirement, common_start_requirement
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Scalar, Vector
from protocols.shared.silence import PatienceSettings, Silence

_ATTEMPTS = 2  # a question is given up after three estimated round trips


@dataclass(frozen=True)
class Edge:
    """Weight of a pair after `version` changes, the last of them by client `by`."""

    version: int = 0
    by: str = ""
    weight: float = 0.0

    def later(self, other: Edge) -> Edge:
        """Return the more recent of the two ends' views of the weight."""
        return max(self, other, key=lambda edge: (edge.version, edge.by))


@dataclass(frozen=True)
class NeighbourModel:
    """Model of the sender at `time` (seconds), and its view of the pair's weight."""

    params: Vector
    time: float
    edge: Edge


@dataclass(frozen=True)
class EdgeNews:
    """The sender's view of the pair's weight."""

    edge: Edge


@dataclass(frozen=True)
class GraphQuestion:
    """Request for the receiver's view of the pair's weight, and the other values for a graph step."""

    edge: Edge
    samples: int


@dataclass(frozen=True)
class GraphAnswer:
    """Model, loss, degree and number of samples of the sender, and its view of the pair's weight."""

    params: Vector
    loss: Scalar
    degree: float
    samples: int
    edge: Edge


def graph_step(
    weights: ArrayLike,
    degree: float,
    degrees: ArrayLike,
    costs: ArrayLike,
    distances: ArrayLike,
    mu_1: float,
    mu_2: float,
    ridge: float,
    delta: float,
) -> NDArray[np.float64]:
    """Return a client's weights [kappa] for the given peers, after one projected gradient step on J.

    degree: d_k; degrees [kappa]: d_l; costs [kappa]: c_k L_k + c_l L_l; distances [kappa]: ||x_k - x_l||^2.
    A peer whose cost or distance is not finite, as after divergence, gets weight 0.
    """
    w, others = np.asarray(weights, np.float64), np.asarray(degrees, np.float64)
    inverse = 1 / (degree + delta) + 1 / (others + delta)
    slope = np.asarray(costs) + mu_1 / 2 * np.asarray(distances) + mu_2 * (2 * ridge * w - inverse)
    lipschitz = mu_2 * ((w.size + 1) / delta**2 + 2 * ridge)
    usable = np.isfinite(costs) & np.isfinite(distances)
    return np.where(usable, np.maximum(0.0, w - slope / lipschitz), 0.0)


class DadaSettings(PatienceSettings):
    """Train towards the models of collaborators, and learn which peers they are."""

    changing = ("local_steps", "mu_1", "mu_2")

    local_steps: Count = 1
    """Training steps in an iteration."""
    graph_every: Count = 10
    """Iterations before the first step of the graph, and between two steps. A client has no collaborators
    until it or a peer has taken a step of the graph."""
    graph_peers: Count = 5
    """Number of random peers (kappa) whose weights change in a step of the graph; fewer if fewer are known or
    answer."""
    mu_1: PositiveWeight = 1.0
    """Strength of the similarity of collaborators' models."""
    mu_2: PositiveWeight = 1.0
    """Weight of the terms that depend only on the graph; a larger weight gives more collaborators."""
    ridge: Weight = 1.0
    """Strength of the term that keeps weights small and even (lambda in the paper)."""
    delta: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Offset that keeps the logarithm of a degree of 0 finite; graph steps grow with its square."""
    patience: PositiveDuration = default("10 s")
    """Silence after which a peer is suspected; lost messages are repeated long before."""


class Dada(Client):
    """Client of Dada: a personal model and a learned graph, without rounds."""

    Settings = DadaSettings
    search_space = SearchSpace(
        "the paper's text was not available; two decades around coterie's defaults",
        {
            "mu_1": Range(0.01, 10.0, log=True),
            "mu_2": Range(0.01, 10.0, log=True),
            "graph_peers": OneOf((2, 5, 10)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: DadaSettings
    weights_are_shares = True
    asking = False
    """True if a step of the graph is in progress."""
    own_loss: Scalar | None = None
    """Loss of the model on all training samples at the last step of the graph."""

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (common_start_requirement("shared"),)

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.silence = Silence(self, self.settings.patience)
        self.edges = PerPeer(self, Edge)
        """Weights of the pairs, as known to this end."""
        self.models = PerPeer[NeighbourModel](self)
        self.most_samples = self.samples

    # --- iteration ------------------------------------------------------------------------------------------

    async def step(self) -> None:
        due = self.iterations and self.iterations % self.settings.graph_every == 0
        if due and self.peers and not self.asking:
            self.spawn(self._update_graph())
        update = await self.train(self.settings.local_steps, proximal=self.proximal())
        self.params = self.params + update
        for peer in self.collaborators():
            self.tell(peer, NeighbourModel(self.params, self.now, self.edges[peer]))

    def proximal(self) -> list[tuple[float | Scalar, Vector]]:
        """Return proximal terms towards the collaborators' models that have arrived.

        The factors are mu_1 w_kl / (d_k c_k).
        """
        whole = self.degree * self._confidence(self.samples)
        return [
            (self.settings.mu_1 * self.edges[peer].weight / whole, self.models[peer].params)
            for peer in self.collaborators()
            if peer in self.models
        ]

    async def _update_graph(self) -> None:
        """Ask some random peers for their models and losses, and change their weights by one step."""
        self.asking = True
        try:
            self.own_loss = await self.loss(self.params, on="train")
            peers = self.peers
            chosen = [
                peers[k] for k in self.rng.permutation(len(peers))[: self.settings.graph_peers].tolist()
            ]
            answers = await asyncio.gather(*[self.question(peer) for peer in chosen])
            received = {peer: each for peer, each in zip(chosen, answers, strict=True) if each is not None}
            if received and not self.finished:
                self._move(received)
        finally:
            self.asking = False

    async def question(self, peer: str) -> GraphAnswer | None:
        """Return one peer's answer; None if the peer fails, or the answer does not arrive in time."""
        question = GraphQuestion(self.edges[peer], self.samples)
        try:
            answer: GraphAnswer = await self.ask(
                peer, question, timeout=self.settings.patience, attempts=_ATTEMPTS
            )
        except PeerUnavailable:
            self.silence.suspect_if_silent(peer)
            return None
        except RemoteError:
            self.suspect(peer)
            return None
        self.adopt(peer, answer.edge)
        self.most_samples = max(self.most_samples, answer.samples)
        return answer

    def _move(self, received: Mapping[str, GraphAnswer]) -> None:
        """Take one step for the weights of the peers that answered, and notify them."""
        assert self.own_loss is not None
        own = self._confidence(self.samples) * float(self.own_loss)
        apart = [self.trainable(self.params - answer.params) for answer in received.values()]
        settings = self.settings
        moved = graph_step(
            [self.edges[peer].weight for peer in received],
            self.degree,
            [answer.degree for answer in received.values()],
            [own + self._confidence(each.samples) * float(each.loss) for each in received.values()],
            [float(self.dot(difference, difference)) for difference in apart],
            settings.mu_1,
            settings.mu_2,
            settings.ridge,
            settings.delta,
        )
        for (peer, answer), weight in zip(received.items(), moved.tolist(), strict=True):
            if not self.is_peer(peer):
                continue
            edge = self.edges[peer] = Edge(self.edges[peer].version + 1, self.name, weight)
            self.models[peer] = NeighbourModel(answer.params, self.now, edge)
            self.tell(peer, NeighbourModel(self.params, self.now, edge) if weight else EdgeNews(edge))

    # --- knowledge about others -----------------------------------------------------------------------------

    def collaborators(self) -> list[str]:
        """Return the peers with a weight above 0."""
        return [peer for peer in self.peers if self.edges[peer].weight > 0]

    @property
    def degree(self) -> float:
        """Degree d_k, the sum of this client's weights."""
        return sum([self.edges[peer].weight for peer in self.peers])

    def _confidence(self, samples: int) -> float:
        """Return the confidence c of a client with `samples` samples."""
        return samples / self.most_samples

    def adopt(self, peer: str, edge: Edge) -> None:
        """Adopt the other end's view of the weight if that view is more recent."""
        self.edges[peer] = self.edges[peer].later(edge)

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case GraphQuestion(edge, samples):
                self.adopt(sender, edge)
                self.most_samples = max(self.most_samples, samples)
                if self.own_loss is None:
                    self.own_loss = await self.loss(self.params, on="train")
                return GraphAnswer(self.params, self.own_loss, self.degree, self.samples, self.edges[sender])
            case NeighbourModel(_, time, edge):
                self.context.report(self.name, "staleness", self.now - time)
                self.models[sender] = message
                self.correct(sender, edge)
            case EdgeNews(edge):
                self.correct(sender, edge)
        return None

    def correct(self, peer: str, edge: Edge) -> None:
        """Adopt the other end's view of the weight; if this client's own view is more recent, send that."""
        self.adopt(peer, edge)
        if self.edges[peer] != edge:
            self.tell(peer, EdgeNews(self.edges[peer]))

    def weights(self) -> Mapping[str, float | Scalar]:
        return {peer: self.edges[peer].weight for peer in self.peers}
