"""Whose models a client of FedeRiCo chooses, how it weighs them, and what it predicts with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from protocols.federico.posterior import LossTable
from protocols.federico.settings import FedericoSettings
from protocols.framework.mathematics import epsilon_greedy
from protocols.framework.vectors import Vector
from protocols.shared.patience import PatientLearner
from protocols.shared.round_letters import LetterRounds

NEGLIGIBLE = 1e-6
"""An update of a smaller weight would be lost in the rounding of the model that it is added to."""


class Collaborators(PatientLearner, LetterRounds):
    """A client that weighs itself and its peers by the losses of their models on its data."""

    settings: FedericoSettings

    def begin(self) -> None:
        momentum = self.settings.momentum if self.settings.tracking == "average" else None
        self.table = LossTable(self.candidates, momentum)
        self.held: dict[str, Vector] = {}  # the last models of the peers of the largest weights

    @property
    def candidates(self) -> list[str]:
        """This client and those that it believes to be up."""
        return [self.name, *self.peers]

    def peer_changed(self, peer: str, up: bool) -> None:
        """One that has come is tried next; one that is gone weighs nothing."""
        super().peer_changed(peer, up)
        if up:
            self.table.admit(peer)
        else:
            self.held.pop(peer, None)

    def known(self, names: Iterable[str]) -> list[str]:
        """`names`, each with an entry in the table: not everybody who enters a sampled view is reported."""
        found = list(names)
        for name in found:
            if name not in self.table.records:
                self.table.admit(name)
        return found

    def posterior(self) -> dict[str, float]:
        """w of this client and of all whom it believes to be up."""
        return self.table.weights(self.known(self.candidates), self.settings.temperature)

    def weights(self) -> Mapping[str, float]:
        shares = self.posterior()
        return {peer: shares[peer] if shares[peer] >= NEGLIGIBLE else 0.0 for peer in self.peers}

    @property
    def weights_are_shares(self) -> bool:
        return True

    def choose(self, among: Iterable[str], count: int) -> list[str]:
        """So many different ones, epsilon-greedily (algorithm 1, line 7)."""
        ranked = self.table.ranked(self.known(among), self.rng)
        return epsilon_greedy(ranked, count, self.settings.epsilon, self.rng)

    @property
    def own_competes(self) -> bool:
        """Whether the own model has to be chosen, too."""
        return self.settings.own_model == "candidate"

    async def loss_of(self, model: Vector) -> float:
        """l of a model on the own data (line 13)."""
        mean = float(await self.loss(model, on=self.settings.losses_on))
        return mean * (self.samples if self.settings.losses == "sum" else 1)

    def worth_training(self, models: Mapping[str, Vector]) -> dict[str, float]:
        """The weights of those of `models` of which they are not negligible."""
        shares = self.posterior()
        return {name: shares[name] for name in models if shares.get(name, 0.0) >= NEGLIGIBLE}

    @property
    def steps(self) -> int:
        """Training steps of a model."""
        return self.settings.local_steps or self.settings.local_epochs * self.compute.steps_per_epoch

    async def trained_alone(self) -> bool:
        """Train the own model and no other, as at first; whether this is such an iteration."""
        if self.iterations >= self.settings.alone_first:
            return False
        update = await self.weighted_update(self.name, self.params, 1.0)
        self.params = self.params + update  # read now: others may have returned theirs meanwhile
        return True

    async def weighted_update(self, name: str, model: Vector, share: float) -> Vector:
        """What a candidate's model should change by, for this client's data and by its weight (line 20).

        As w_ij times what local training changes, which for one step of SGD is -eta w_ij times the gradient.
        """
        if name == self.name:
            model = self.params  # with whatever has arrived since it was evaluated
        return share * await self.train(self.steps, start=model, fresh_optimizer=True)

    def hold(self, models: Mapping[str, Vector]) -> None:
        """Keep the last models of the M peers of the largest weights, for predictions."""
        self.held |= {name: model for name, model in models.items() if name != self.name}
        shares = self.posterior()
        names = sorted(self.held, key=lambda name: (-shares.get(name, 0.0), name))
        kept = [name for name in names[: self.settings.neighbours] if shares.get(name, 0.0) >= NEGLIGIBLE]
        self.held = {name: self.held[name] for name in kept}

    def mixture(self) -> list[tuple[float, Vector]]:
        """The own model and those that are held, with their weights."""
        shares = self.posterior()
        pairs = [(shares[self.name], self.params)]
        pairs += [(shares[name], model) for name, model in self.held.items() if name in shares]
        return pairs if sum([share for share, _ in pairs]) > 0 else [(1.0, self.params)]

    def evaluated(self) -> Mapping[str, Vector | Sequence[tuple[float, Vector]]]:
        if self.settings.predict == "own" or not self.compute.classes:  # there is nothing to average
            return super().evaluated()
        return {"mixture": self.mixture(), "own": self.params}
