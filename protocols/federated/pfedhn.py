"""pFedHN: a hypernetwork at the server generates each client's model from an embedding of the client.

Shamsian, Navon, Fetaya and Chechik, "Personalized federated learning using hypernetworks" (ICML 2021),
algorithm 1, with the hypernetwork h, its parameters phi and client i's embedding v_i, all at the server:

    each round: theta_i  <- h(v_i; phi) for the sampled clients i
                theta'_i <- E local epochs from theta_i
                phi <- phi - alpha mean_i (d theta_i / d phi)^T (theta_i - theta'_i)
                v_i <- v_i - alpha (d theta_i / d v_i)^T (theta_i - theta'_i)

Neither phi nor v_i is ever sent: a client's update replaces its gradient in the chain rule
(`protocols.shared.hypernetwork`). h is a perceptron: v [e] -> hidden layers with ReLU -> theta [P], with a
linear output. A client is evaluated by the last theta_i that it was sent.

The paper's experiments have one client in a round, as here with a `fraction` that selects one; with several,
the mean is taken. In the paper, the updates of phi and v_i are steps of SGD with momentum 0.9 and weight
decay 0.001, which are settings here (`outer_momentum`, `outer_decay`), and so is the momentum of clients
(`training.momentum = 0.9`). With few samples these matter: without them, models predict classes that a client
does not have (docs/fidelity).

Differences from the paper: momentum and decay of an embedding act when its client takes part. The biases of
the last layer start as the initial model, and models differ by `spread`; in the paper all start at random.
The authors' code clips gradients at a norm of 50; nothing is clipped here.
"""

from collections.abc import Mapping
from typing import Any

from actors.settings.quantities import Count, PositiveWeight, ShareBelowOne, Weight
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.hypernetwork import append_start_model, backpropagate, generated, size
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
    """Train a hypernetwork that generates its clients' models."""

    embedding: Count = 8
    """Length e of a client's embedding (a quarter of the number of clients in the paper)."""
    hidden: tuple[Count, ...] = (100, 100, 100)
    """Widths of the hypernetwork's hidden layers; its size is about the last width times the model's size."""
    spread: Weight = 1.0
    """Initial distance of the clients' models: factor of the usual scale of the last layer."""
    outer_rate: PositiveWeight = 0.01
    """Learning rate alpha of hypernetwork and embeddings."""
    outer_momentum: ShareBelowOne = 0.0
    """Momentum of the steps of hypernetwork and embeddings (0.9 in the paper's experiments)."""
    outer_decay: Weight = 0.0
    """Weight decay of hypernetwork and embeddings, added to their gradients (0.001 in the paper's
    experiments)."""

    def own_numbers(self, model: int, clients: int) -> int:
        """Return the number of values of hypernetwork and embeddings, twice that with momentum."""
        numbers = size((self.embedding, *self.hidden, model)) + clients * self.embedding
        return 2 * numbers if self.outer_momentum else numbers


class PFedHNServer(RoundServer):
    """Server with the hypernetwork and all embeddings."""

    settings: PFedHNSettings

    def setup(self) -> None:
        self.widths = (self.settings.embedding, *self.settings.hidden, *self.params.shape)
        start = first(self.widths, self.rng, self.settings.spread)
        self.phi: Vector = self.apply(append_start_model, self.vector(start), self.params)
        self.embeddings: dict[str, Vector] = {}
        self.sent: dict[str, Vector] = {}
        """Model that the server sent to each client of the round."""
        self.velocities: dict[str, Vector] = {}
        """Last steps, of the hypernetwork as "phi" and of embeddings by client; empty without momentum."""

    def model(self, client: str) -> Vector:
        """Return theta_i; a new client gets an embedding."""
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
                backpropagate, self.phi, self.embeddings[client], change, widths=self.widths, leak=0.0
            )
            slopes.append(of_phi)
            self.embeddings[client] = self.stepped(client, self.embeddings[client], [(rate, slope)])
        self.phi = self.stepped("phi", self.phi, [(rate / len(slopes), slope) for slope in slopes])

    def stepped(self, what: str, value: Vector, slopes: list[tuple[float, Vector]]) -> Vector:
        """Return `value` after a step of SGD.

        what: name of the value, for its momentum. slopes: pairs (factor, gradient), with factors that include
        the learning rate.
        """
        settings, terms = self.settings, list(slopes)
        if settings.outer_decay:
            terms.append((settings.outer_rate * settings.outer_decay, value))
        if what in self.velocities:
            terms.append((settings.outer_momentum, self.velocities[what]))
        step = mix(terms)
        if settings.outer_momentum:
            self.velocities[what] = step
        return value - step

    def news(self, client: str) -> object | None:
        return GlobalModel(self.model(client))


class PFedHN(RoundClient):
    """Client that trains the model that the hypernetwork generated for it."""

    Settings = PFedHNSettings
    search_space = SearchSpace(
        "around coterie's default outer rate of 0.01; the paper's text was not available",
        {
            "outer_rate": Range(0.001, 0.3, log=True),
            "embedding": OneOf((4, 8, 16)),
            "local_steps": LOCAL_STEPS,
        },
    )
    server = PFedHNServer
