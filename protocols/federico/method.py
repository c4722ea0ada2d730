"""Clients of FedeRiCo in rounds: algorithm 1."""

from collections.abc import Mapping, Sequence

from protocols.federico.asynchronous import FedericoAsynchronous
from protocols.federico.collaborators import Collaborators
from protocols.federico.local_work import evaluated_models, local_loss, train_by_weight, trained_alone
from protocols.federico.messages import RoundUpdate
from protocols.federico.settings import FedericoSettings
from protocols.framework.client import Client
from protocols.framework.requirements import ProtocolSettings, Requirement, held_out_requirement
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector


class FedeRiCo(Client):
    """Client of FedeRiCo in rounds; `FedericoAsynchronous` is the form without rounds."""

    Settings = FedericoSettings
    search_space = SearchSpace(
        "the paper states no values (appendix, algorithm 1); around coterie's defaults",
        {
            "neighbours": OneOf((1, 3, 5)),
            "epsilon": Range(0.0, 0.6),
            "momentum": Range(0.2, 1.0),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: FedericoSettings
    collected = (RoundModel, RoundUpdate)
    two_way = True
    asynchronous = FedericoAsynchronous
    weights_are_shares = True

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, FedericoSettings)
        return (*super().requirements(settings), *held_out_requirement(settings.losses_on))

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience)
        self.collaborators = Collaborators(self, self.settings)

    async def step(self) -> None:
        if await trained_alone(self, self.settings):
            return  # one of the first iterations, which algorithm 1 does not have
        self.rounds.announce()
        received = await self.rounds.gather()
        # Without those that do not wait for this client: they would return no update.
        partners = {peer: model.params for peer, model in received.items() if self.rounds.is_mutual(peer)}
        # Lines 7 to 9 in the opposite order: the models of all have come, and now some are chosen.
        models = self.chosen(partners)
        # E-step (lines 11 to 16).
        self.collaborators.record(
            {name: await local_loss(self, m, self.settings) for name, m in models.items()}
        )
        self.collaborators.hold(models)  # for predictions
        # M-step (lines 18 to 21): w_ib times the update of each of these models, for its owner to add.
        weights = self.collaborators.worth_training(models)
        for peer in partners:
            if peer not in weights:
                self.rounds.tell(peer, RoundUpdate(None))  # so that it does not wait for an update
        for name, weight in weights.items():
            update = await train_by_weight(self, self.settings, name, models[name], weight)
            if name == self.name:
                self.params = self.params + update
            else:
                self.rounds.tell(name, RoundUpdate(update))
        # Lines 22 to 25: the sum over the peers that have chosen this client's model.
        for returned in (await self.rounds.replies(RoundUpdate, partners)).values():
            if returned.update is not None:
                self.params = self.params + returned.update

    def chosen(self, partners: Mapping[str, Vector]) -> dict[str, Vector]:
        """Return this iteration's models (line 7): the client's own, and those of M partners.

        With `own_model = "candidate"`, return the models of M candidates, one of which may be this client.
        """
        own, competes = {self.name: self.params}, self.settings.own_competes
        offered = own | dict(partners) if competes else dict(partners)
        models = {
            name: offered[name] for name in self.collaborators.choose(offered, self.settings.neighbours)
        }
        return models if competes else own | models

    def weights(self) -> Mapping[str, float]:
        return self.collaborators.weights()

    def evaluated(self) -> Mapping[str, Vector | Sequence[tuple[float, Vector]]]:
        return evaluated_models(self, self.collaborators, self.settings)
