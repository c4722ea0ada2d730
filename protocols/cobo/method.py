"""CoBo's iteration, in rounds and without; what keeps it alive when messages are lost is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.cobo.messages import LatestModel, PairResult
from protocols.cobo.rounds import GradientRounds
from protocols.cobo.settings import CoBoSettings
from protocols.cobo.updates import PairUpdates
from protocols.framework.vectors import Scalar, Vector
from protocols.shared.two_forms import TwoForms


class CoBo(TwoForms, GradientRounds, PairUpdates):
    """CoBo, synchronous and asynchronous."""

    Settings = CoBoSettings

    async def take_round(self) -> None:
        """One iteration of algorithm 1."""
        self.announce()
        received = await self.gather(self.settings.patience)
        sampled = {peer: model for peer, model in received.items() if self.is_sampled(peer, model)}
        for peer, (ours, theirs) in (await self.exchanged_gradients(sampled)).items():
            self.adopt(peer, theirs.version, theirs.weight)
            self.ascend(peer, self.settings.gamma * self.dot(ours.gradient, theirs.gradient))
        models = {peer: model.params for peer, model in received.items()}
        update = await self.train(self.settings.local_steps, pulls=self.pulls(models))
        self.params = self.params + update
        self.round += 1

    def pulls(self, models: Mapping[str, Vector]) -> list[tuple[float | Scalar, Vector]]:
        """Proximal pulls rho w_ik/2 ||x - x_k||^2 towards the given models."""
        return [(self.settings.rho * self.pair(peer).weight, model) for peer, model in models.items()]

    async def iterate(self) -> None:
        """Train with pulls to the models last received, pass the model on, start updates of some pairs."""
        update = await self.train(self.settings.local_steps, pulls=self.anchors())
        self.params = self.params + update
        if self.settings.exchange == "all":
            for peer in self.peers:
                self.tell(peer, LatestModel(self.params, self.now, self.iterations + 1))
        self.sample_pairs()

    def anchors(self) -> list[tuple[float | Scalar, Vector]]:
        """Pulls towards the latest model of each peer that is believed to be up."""
        self.forget_strangers()
        pulls = []
        for peer in self.peers:
            pair = self.pair(peer)
            if pair.latest is not None:
                self.observe("staleness", self.now - pair.latest.time)
                pair.pulled += 1
                share = self.evidence(pair) / (pair.pulled if self.settings.fading else 1)
                pulls.append((self.settings.rho * share * pair.weight, pair.latest.params))
        return pulls

    def heard(self, message: object, sender: str) -> bool:
        done = super().heard(message, sender)
        if not self.in_rounds and self.is_peer(sender):
            self.heard_without_rounds(message, sender)
            return done or type(message) in (LatestModel, PairResult)
        return done
