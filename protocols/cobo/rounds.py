"""Gradients at midpoints that neighbours exchange in a round, whatever messages are lost."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.cobo.messages import RoundGradient, RoundGradientWanted
from protocols.cobo.pairs import PairLearner
from protocols.cobo.settings import pair_probability
from protocols.framework.mathematics import shared_uniform
from protocols.shared.rounds import RoundModel


class GradientRounds(PairLearner):
    """A client that exchanges gradients with the peers of its sampled pairs, in rounds."""

    collected = (RoundModel, RoundGradient)
    wanted = RoundGradientWanted

    def is_sampled(self, peer: str, model: RoundModel) -> bool:
        """Whether the pair updates its weight in this round.

        Of coin, iteration and number of clients both ends must think alike, or one waits for the other in
        vain: so the round counts, not the client's own iterations, and the larger neighbourhood.
        """
        clients = max(self.degree, model.degree) + 1
        pair = sorted((self.name, peer))
        coin = shared_uniform(self.context.shared_seed, "pair", *pair, self.round)
        return model.partner and coin < pair_probability(self.settings, self.round + 1, clients)

    async def exchanged_gradients(
        self, models: Mapping[str, RoundModel]
    ) -> dict[str, tuple[RoundGradient, RoundGradient]]:
        """Send each of these its gradient at our midpoint, and wait for theirs; (ours, theirs) by peer."""
        sent: dict[str, RoundGradient] = {}
        for peer, model in models.items():
            gradient = await self.gradient((self.params + model.params) / 2)
            pair = self.pair(peer)
            sent[peer] = RoundGradient(gradient, self.round, pair.version, pair.weight, delayed=self.delayed)
            self.post(peer, sent[peer])
        answers = await self.letters_from(
            RoundGradient, sent, self.settings.patience, RoundGradientWanted(self.round)
        )
        return {peer: (sent[peer], answer) for peer, answer in answers.items()}
