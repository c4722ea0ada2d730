"""Averages of neighbors' models: with all neighbors in rounds, or with one at a time and without waiting."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.message import PeerUnavailable, RemoteError
from protocols.framework.client import Client
from protocols.framework.component import Component, weak_callback
from protocols.framework.mathematics import metropolis_weights
from protocols.framework.rounds import Rounds
from protocols.framework.vectors import Vector, mix

_ATTEMPTS = 4  # of an exchange with one peer


def neighbour_weights(client: Client, rounds: Rounds, models: Mapping[str, Any]) -> dict[str, float]:
    """Return the weights W_ij of the models: from the topology, or otherwise Metropolis-Hastings weights.

    `neighbour_weights(self, self.rounds, models)` returns them by name, for the `models` that `gather`
    returned; the client's own weight is 1 minus their sum. From the announced degrees, both ends of a link
    compute the same weight, 1 / (1 + max(d_i, d_j)). A custom message class needs a `degree`.
    """
    if client.mixing_weights is not None:
        return {peer: client.mixing_weights[peer] for peer in models}
    return metropolis_weights(rounds.degree, {peer: model.degree for peer, model in models.items()})


def neighbour_mean(own: Vector, weights: Mapping[str, float], models: Mapping[str, Any]) -> Vector:
    """Return the weighted mean sum_j W_ij x_j: `neighbour_mean(self.params, weights, models)`.

    The client's own weight is 1 minus the sum of `weights`.
    """
    kept = 1.0 - sum(weights.values())
    return mix([(kept, own)] + [(weights[peer], model.params) for peer, model in models.items()])


@dataclass(frozen=True)
class Exchange:
    """Request to average models, with the sender's model; the answer is an Exchange too, or None."""

    params: Vector
    time: float


class PairAveraging(Component):
    """Exchange of AD-PSGD: a client and one random neighbor move halfway towards each other's model.

    Client i adds (x_j - x_i)/2 and client j adds (x_i - x_j)/2, with the models as they were when sent. This
    needs no lock, and keeps the mean. If two clients ask each other at the same time, only the request of the
    client whose name sorts first is granted: both exchanges together would just swap the models.

    answered(answer, asked): returns another answer, for example with a gradient at the asker's model; it may
    return a task of the client. met(peer, answer): called after an exchange that this client started.
    """

    def __init__(
        self,
        client: Client,
        patience: float,
        answered: Callable[[Exchange, Exchange], object] | None = None,
        met: Callable[[str, Exchange], None] | None = None,
    ) -> None:
        super().__init__(client)
        self.patience = patience
        self.asked: str | None = None
        """Peer whose answer is awaited."""
        self._answered = weak_callback(answered) if answered else None
        self._met = weak_callback(met) if met else None

    def start(self) -> None:
        """Start an exchange with a random peer, unless one is in progress."""
        if self.client.peers and self.asked is None:
            self.client.spawn(self.exchange(self.client.pick_peer()))

    async def exchange(self, peer: str) -> None:
        """Average with `peer`, and suspect this peer if no answer comes."""
        client, self.asked = self.client, peer
        sent = client.params
        try:
            answer = await client.ask(
                peer, Exchange(sent, client.now), timeout=self.patience, attempts=_ATTEMPTS
            )
            if answer is not None:
                client.context.report(client.name, "staleness", client.now - answer.time)
                client.params = client.params + (answer.params - sent) / 2
                if self._met is not None:
                    self._met(peer, answer)
        except (PeerUnavailable, RemoteError):
            client.suspect(peer)
        finally:
            self.asked = None

    def on_message(self, message: object, sender: str) -> object:
        """Move this client's model halfway towards that of a peer that asks, and return the answer.

        Returns None, without a change, for other messages, and for a peer that this client is asking if the
        client's name sorts first.
        """
        client = self.client
        if not isinstance(message, Exchange) or (self.asked == sender and client.name < sender):
            return None  # this client's request to it is enough
        client.context.report(client.name, "staleness", client.now - message.time)
        sent = client.params
        client.params = sent + (message.params - sent) / 2
        answer = Exchange(sent, client.now)
        return answer if self._answered is None else self._answered(answer, message)
