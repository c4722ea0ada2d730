"""Models that a client of FedeRiCo chooses, their weights, and its predictions with them."""

from collections.abc import Iterable, Mapping

from protocols.federico.posterior import LossTable
from protocols.federico.settings import FedericoSettings
from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.mathematics import epsilon_greedy
from protocols.framework.per_peer import PerPeer
from protocols.framework.vectors import Vector

NEGLIGIBLE = 1e-6
"""Weight below which an update would vanish in the rounding of the model to which it is added."""


class Collaborators(Component):
    """Posterior of one client: weights of the client and its peers, by the losses of models on its data."""

    def __init__(self, client: Client, settings: FedericoSettings) -> None:
        super().__init__(client)
        self.settings = settings
        self.table = LossTable(self.candidates, settings.momentum if settings.tracking == "average" else None)
        # The last models of the peers with the largest weights.
        self.held = PerPeer[Vector](client, on_departure=self._peer_left)

    @property
    def candidates(self) -> list[str]:
        """Names of this client and the peers that it considers up."""
        return [self.client.name, *self.client.peers]

    def _peer_left(self, peer: str, model: Vector | None) -> None:
        """Make the peer the next candidate if it returns."""
        if peer in self.table.records:
            self.table.admit(peer)

    def admitted(self, names: Iterable[str]) -> list[str]:
        """Return `names`; new ones are admitted to the table."""
        found = list(names)
        for name in found:
            if name not in self.table.records:
                self.table.admit(name)
        return found

    def posterior(self) -> dict[str, float]:
        """Return the weights w of this client and of all peers that it considers up."""
        return self.table.weights(self.admitted(self.candidates), self.settings.temperature)

    def weights(self) -> dict[str, float]:
        """Return the weights w of the peers, with 0 for negligible ones."""
        shares = self.posterior()
        return {peer: shares[peer] if shares[peer] >= NEGLIGIBLE else 0.0 for peer in self.client.peers}

    @property
    def has_better(self) -> bool:
        """True if a held model of a peer has a larger weight than the client's own."""
        shares = self.posterior()
        return any(shares.get(name, 0.0) > shares[self.client.name] for name in self.held)

    def choose(self, among: Iterable[str], count: int) -> list[str]:
        """Choose `count` different names epsilon-greedily (algorithm 1, line 7)."""
        ranked = self.table.ranked(self.admitted(among), self.client.rng)
        return epsilon_greedy(ranked, count, self.settings.epsilon, self.client.rng)

    def worth_training(self, models: Mapping[str, Vector]) -> dict[str, float]:
        """Return the weights of these models that are not negligible."""
        shares = self.posterior()
        return {name: shares[name] for name in models if shares.get(name, 0.0) >= NEGLIGIBLE}

    def hold(self, models: Mapping[str, Vector]) -> None:
        """Keep the last models of the M peers with the largest weights, for predictions."""
        self.held |= {name: model for name, model in models.items() if name != self.client.name}
        shares = self.posterior()
        names = sorted(self.held, key=lambda name: (-shares.get(name, 0.0), name))
        kept = [name for name in names[: self.settings.neighbours] if shares.get(name, 0.0) >= NEGLIGIBLE]
        self.held.replace({name: self.held[name] for name in kept})

    def mixture(self) -> list[tuple[float, Vector]]:
        """Return the client's own model and the kept models, with their weights."""
        shares = self.posterior()
        pairs = [(shares[self.client.name], self.client.params)]
        pairs += [(shares[name], model) for name, model in self.held.items() if name in shares]
        return pairs if sum([share for share, _ in pairs]) > 0 else [(1.0, self.client.params)]

    def record(self, losses: Mapping[str, float]) -> None:
        """Update all weights from the losses of the models evaluated in this iteration (lines 11 to 16)."""
        self.table.record({name: loss for name, loss in losses.items() if name in self.table.records})
