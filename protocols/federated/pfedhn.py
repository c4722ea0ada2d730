"""pFedHN: a hypernetwork at the server makes each client's model of a few numbers that describe the client.

Shamsian, Navon, Fetaya and Chechik, "Personalized federated learning using hypernetworks" (ICML 2021),
algorithm 1, with the hypernetwork h, its parameters phi and client i's embedding v_i, all at the server:

    each round: theta_i  <- h(v_i; phi) for the sampled clients i
                theta'_i <- E local epochs from theta_i
                phi <- phi - alpha mean_i (d theta_i / d phi)^T (theta_i - theta'_i)
                v_i <- v_i - alpha (d theta_i / d v_i)^T (theta_i - theta'_i)

Neither phi nor v_i ever travels: a client's update takes the place of its gradient in the chain rule
(`protocols.shared.hypernetwork`). h is a perceptron: v [e] -> hidden layers with ReLU -> theta [P], linear
at its end. A client's model, as it is evaluated, is the last theta_i that it was sent.

Differences to the paper: it has one client in a round, as here with a `fraction` that leaves one; of several
the mean is taken. Its experiments step by SGD with momentum and weight decay, here without. The biases of the
last layer begin as the initial model, so that all clients begin near it, where the paper's begin at random.
"""

from collections.abc import Mapping
from typing import Any

from actors.settings.quantities import Count, PositiveWeight
from protocols.framework.vectors import Vector, mix
from protocols.shared.hypernetwork import begun, generated, pulled_back, size
from protocols.shared.hypernetwork import initial as first
from protocols.shared.server_rounds import (
    Assignment,
    Contribution,
    GlobalModel,
    RoundClient,
    RoundServer,
    RoundSettings,
    RoundTask,
)


class PFedHNSettings(RoundSettings):
    """A server trains a hypernetwork that makes its clients' models."""

    embedding: Count = 8
    """Length e of a client's embedding (a quarter of the number of clients in the paper)."""
    hidden: tuple[Count, ...] = (100, 100, 100)
    """Widths of the hypernetwork's hidden layers; the last one times the model's parameters is its size."""
    outer_rate: PositiveWeight = 0.01
    """alpha: the learning rate of hypernetwork and embeddings."""

    def own_numbers(self, model: int, clients: int) -> int:
        """The hypernetwork and the embeddings."""
        return size((self.embedding, *self.hidden, model)) + clients * self.embedding


class PFedHNServer(RoundServer):
    """Has the hypernetwork and all embeddings."""

    settings: PFedHNSettings

    def begin(self) -> None:
        self.widths = (self.settings.embedding, *self.settings.hidden, *self.params.shape)
        self.phi: Vector = self.apply(begun, self.vector(first(self.widths, self.rng)), self.params)
        self.embeddings: dict[str, Vector] = {}
        self.sent: dict[str, Vector] = {}
        """The model that each client of the round was sent."""

    def model(self, client: str) -> Vector:
        """theta_i; a client that is new gets an embedding."""
        if client not in self.embeddings:
            self.embeddings[client] = self.vector(self.rng.standard_normal(self.settings.embedding))
        found: Vector = self.apply(generated, self.phi, self.embeddings[client], widths=self.widths, leak=0.0)
        return found

    def task(self, client: str, number: int) -> RoundTask:
        self.sent[client] = self.model(client)
        return Assignment(self.sent[client], number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        rate, slopes = self.settings.outer_rate, []
        received: dict[str, Contribution] = dict(answers)
        for client, answer in received.items():
            change = self.sent[client] - answer.params
            of_phi, slope = self.apply(
                pulled_back, self.phi, self.embeddings[client], change, widths=self.widths, leak=0.0
            )
            slopes.append(of_phi)
            self.embeddings[client] = self.embeddings[client] - rate * slope
        self.phi = self.phi - mix([(rate / len(slopes), slope) for slope in slopes])

    def news(self, client: str) -> object | None:
        return GlobalModel(self.model(client))


class PFedHN(RoundClient):
    """A client that trains what the hypernetwork has made for it."""

    Settings = PFedHNSettings
    server = PFedHNServer
