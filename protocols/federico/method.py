"""FedeRiCo's iteration, in rounds and without: expectation, then maximisation."""

from __future__ import annotations

from protocols.federico.messages import RoundUpdate, WeightedUpdate
from protocols.federico.rounds import UpdateRounds
from protocols.federico.settings import FedericoSettings
from protocols.federico.visits import Visits
from protocols.shared.two_forms import TwoForms


class FedeRiCo(TwoForms, UpdateRounds, Visits):
    """FedeRiCo, synchronous and asynchronous."""

    Settings = FedericoSettings

    async def take_round(self) -> None:
        """One iteration of algorithm 1."""
        if await self.trained_alone():
            return
        self.announce()
        received = await self.gather(self.settings.patience)
        partners = {peer: model.params for peer, model in received.items() if model.partner}
        own = {self.name: self.params}
        offered = own | partners if self.own_competes else partners
        chosen = {name: offered[name] for name in self.choose(offered, self.settings.neighbours)}
        models = chosen if self.own_competes else own | chosen
        self.table.note({name: await self.loss_of(model) for name, model in models.items()})
        self.hold(models)
        shares = self.worth_training(models)
        for peer in partners:
            if peer not in shares:
                self.post(peer, RoundUpdate(None, self.round, delayed=self.delayed))
        for name, share in shares.items():
            update = await self.weighted_update(name, models[name], share)
            if name == self.name:
                self.params = self.params + update
            else:
                self.post(name, RoundUpdate(update, self.round, delayed=self.delayed))
        for update in await self.returned(list(partners)):
            self.params = self.params + update
        self.round += 1

    async def iterate(self) -> None:
        """Evaluate and train the models that have come, and return each update to its model's owner."""
        if await self.trained_alone():
            self.earn()
            return
        self.fill_places()
        models = await self.evaluated_models()
        self.hold(models)
        for name, share in self.worth_training(models).items():
            if name == self.name:
                share = self.own_share(share)
            elif not self.allowance.afford(self.steps):
                continue
            update = await self.weighted_update(name, models[name], share)
            if name == self.name:
                self.params = self.params + update
            elif self.is_peer(name):
                self.spawn(self.return_update(name, WeightedUpdate(update, self.model_time(name))))
        self.earn()
