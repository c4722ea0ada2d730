"""Clients of CoBo in rounds: algorithm 1."""

from collections.abc import Mapping

from protocols.cobo.asynchronous import CoBoAsynchronous
from protocols.cobo.messages import RoundGradient
from protocols.cobo.pairs import PairWeights
from protocols.cobo.settings import CoBoSettings, pair_probability
from protocols.framework.client import Client
from protocols.framework.mathematics import shared_uniform
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import OneOf, Range, SearchSpace
from protocols.framework.vectors import Scalar


class CoBo(Client):
    """Client of CoBo in rounds; `CoBoAsynchronous` is the form without rounds."""

    Settings = CoBoSettings
    search_space = SearchSpace(
        "rho 0.05 and gamma 0.01 of the authors' README, with a decade on each side",
        {
            "rho": Range(0.005, 0.5, log=True),
            "gamma": Range(0.001, 0.3, log=True),
            "local_steps": OneOf((1, 2, 5, 10)),
        },
    )
    settings: CoBoSettings
    collected = (RoundModel, RoundGradient)
    two_way = True
    asynchronous = CoBoAsynchronous

    def setup(self) -> None:
        self.weights_are_shares = self.settings.domain == "simplex"
        self.rounds = Rounds(self, self.settings.patience)
        self.pairs = PairWeights(self, simplex=self.settings.domain == "simplex")

    async def step(self) -> None:
        self.rounds.announce()
        models = await self.rounds.gather()
        ours: dict[str, RoundGradient] = {}
        # Client-Selection (lines 9 to 17). `params` is still the announced x_i: both ends have one z.
        for peer in self.sampled(models):
            gradient = await self.gradient((self.params + models[peer].params) / 2)
            ours[peer] = RoundGradient(gradient, self.pairs.updates(peer), self.pairs.weight(peer))
            self.rounds.tell(peer, ours[peer])
        steps: dict[str, Scalar] = {}
        for peer, theirs in (await self.rounds.replies(RoundGradient, ours)).items():
            # After a round with a reply lost here, the peer has made an update that this client has not.
            self.pairs.catch_up(peer, theirs.weight, theirs.updates)
            steps[peer] = self.pairs.increment(ours[peer].gradient, theirs.gradient)
        self.pairs.ascend(steps)  # eq. 4
        # Line 4, with the new weights: a proximal term (c, a) adds c (x - a) to the gradient.
        rho = self.settings.rho
        proximal = [(rho * self.pairs.weight(peer), model.params) for peer, model in models.items()]
        update = await self.train(self.settings.local_steps, proximal=proximal)
        self.params = self.params + update

    def sampled(self, models: Mapping[str, RoundModel]) -> list[str]:
        """Return the peers with which this client updates its weight in this round.

        Both ends must reach the same decision. The probability therefore depends on the number of the round,
        not on the client's own iterations, and on the larger of the two neighborhoods. A peer that does not
        wait for this client in the round, for example because it has finished, is left out.
        """
        found = []
        for peer, model in models.items():
            clients = max(self.rounds.degree, model.degree) + 1
            pair = sorted((self.name, peer))
            coin = shared_uniform(self.context.shared_seed, "pair", *pair, self.rounds.number)
            probability = pair_probability(self.settings, self.rounds.number + 1, clients)
            if self.rounds.is_mutual(peer) and coin < probability:
                found.append(peer)
        return found

    def weights(self) -> Mapping[str, float | Scalar]:
        return self.pairs.known()
