"""FedeRiCo's clients without rounds: models that are asked for, and come when they come.

A client has asked M peers for their models at most. A place among these is taken from the choice until the
iteration in which the model is evaluated, or its peer is given up, is over.
"""

import asyncio
from collections.abc import Mapping, Sequence

from actors.message import PeerUnavailable, RemoteError
from protocols.federico.collaborators import Collaborators
from protocols.federico.local_work import evaluated_models, loss_of, steps_of, train_by_weight, train_first
from protocols.federico.messages import ModelRequest, RequestedModel, WeightedUpdate
from protocols.federico.settings import FedericoSettings
from protocols.framework.client import Client
from protocols.framework.vectors import Vector
from protocols.shared.pace import LOSS_SHARE, TimeForPeers
from protocols.shared.silence import Silence

ATTEMPTS = 2
"""How often a model is asked for before it is given up, after three estimated round trips."""
ATTEMPTS_TO_RETURN = 4
"""How often an update is sent until its receiver has confirmed it."""


class FedericoAsynchronous(Client):
    """FedeRiCo without rounds."""

    Settings = FedericoSettings
    settings: FedericoSettings
    weights_are_shares = True

    def begin(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.silence = Silence(self, self.settings.patience)
        self.collaborators = Collaborators(self, self.settings)
        self.peer_time = TimeForPeers(self)
        # Who is chosen, with its model if it has come.
        self.places: dict[str, RequestedModel | None] = {}
        self.over: list[str] = []  # places that are free from the next iteration on
        self.judges_itself = False  # whether the own model is evaluated in this iteration
        self.news = asyncio.Event()

    async def run(self) -> None:
        self.places.clear()  # of a former life, whose questions ended with it
        self.over.clear()
        self.peer_time.paces.clear()
        self.earn_time()
        await super().run()

    async def step(self) -> None:
        """Evaluate and train the models that have come, and return each update to its model's owner."""
        if await train_first(self, self.settings):
            self.earn_time()
            return
        self.fill_places()
        models = await self._evaluated_candidates()
        self.collaborators.hold(models)
        for name, share in self.collaborators.worth_training(models).items():
            if name == self.name:
                share = self.own_share(share)
            elif not self.peer_time.try_spend(steps_of(self, self.settings)):
                continue
            update = await train_by_weight(self, self.settings, name, models[name], share)
            if name == self.name:
                self.params = self.params + update
            elif self.is_peer(name):
                self.spawn(self.return_update(name, WeightedUpdate(update, self._model_time(name))))
        self.earn_time()

    def fill_places(self) -> None:
        """Choose candidates for the places that are free, and ask for their models."""
        for name in [*self.over, self.name]:
            self.places.pop(name, None)
        self.over.clear()
        others = [name for name in self.collaborators.candidates if name not in self.places]
        if not self.settings.own_competes:
            others.remove(self.name)
        free = min(self.settings.neighbours - len(self.places), len(others))
        own_first = not self.judges_itself  # by turns, if there is not time for all
        self.judges_itself = own_first and self.peer_time.try_spend(self.loss_cost)
        chosen = self.collaborators.choose(
            others, sum([self.peer_time.try_spend(self.loss_cost) for _ in range(free)])
        )
        self.judges_itself = self.judges_itself or (
            not own_first and self.peer_time.try_spend(self.loss_cost)
        )
        if not (self.settings.own_competes and (chosen or self.places)):
            chosen = [self.name, *chosen]
        for name in chosen:
            self.places[name] = None
            if name != self.name:
                self.spawn(self.ask_for_model(name))

    async def ask_for_model(self, peer: str) -> None:
        """Have the model of a peer come, or free its place."""
        try:
            patience = self.settings.patience
            request = ModelRequest(self.iterations, self.now)
            answer: RequestedModel = await self.ask(peer, request, timeout=patience, attempts=ATTEMPTS)
            self.observe("staleness", self.now - answer.time)
            self.peer_time.met(peer, answer.time, answer.iterations)
            self.places[peer] = answer
        except (PeerUnavailable, RemoteError):
            self.over.append(peer)
            self.silence.suspect_if_silent(peer)
        self.news.set()

    async def _evaluated_candidates(self) -> dict[str, Vector]:
        """Those of the chosen models that are here, the own one first; their losses are in the table.

        Who comes while others are evaluated is as well, and who comes later is in the next iteration. Waits
        only if there is none at all.
        """
        models: dict[str, Vector] = {}
        losses: dict[str, float] = {}
        while True:
            if self.name in self.places and self.name not in models:
                self.places[self.name] = RequestedModel(self.params, self.now, self.iterations)
            here = [name for name, model in self.places.items() if model is not None and name not in models]
            if here:
                name = min(here, key=lambda name: (name != self.name, name))
                place = self.places[name]
                assert place is not None
                if name != self.name or self.judges_itself or self.settings.own_competes:
                    losses[name] = await loss_of(self, place.params, self.settings)
                models[name] = place.params
            elif models or len(self.over) == len(self.places):
                break
            else:
                self.news.clear()
                await self.news.wait()
        self.over += [name for name in models if name not in self.over]
        self.collaborators.note(losses)
        return models

    def _model_time(self, name: str) -> float:
        """When the model in a place was its owner's (seconds)."""
        place = self.places[name]
        assert place is not None
        return place.time

    async def return_update(self, peer: str, message: WeightedUpdate) -> None:
        """Send the owner of a model what it is to add; it does so once."""
        try:
            await self.ask(peer, message, timeout=self.settings.patience, attempts=ATTEMPTS_TO_RETURN)
        except (PeerUnavailable, RemoteError):
            return  # whether it is there shows when it is asked for its model

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case ModelRequest(iterations, time):
                self.peer_time.met(sender, time, iterations)
                return RequestedModel(self.params, self.now, self.iterations)
            case WeightedUpdate(update, time):
                self.observe("staleness", self.now - time)
                self.params = self.params + update
        return None

    # --- the time that it has for others --------------------------------------------------------------------

    @property
    def loss_cost(self) -> float:
        """What it costs to evaluate a model, in gradients."""
        return LOSS_SHARE * (1 if self.settings.losses_on == "batch" else self.compute.steps_per_epoch)

    def earn_time(self) -> None:
        """An iteration is over, which calls for work on M models of others; or none has begun yet."""
        steps = steps_of(self, self.settings)
        called_for = self.settings.neighbours * (self.loss_cost + steps) + self.loss_cost
        self.peer_time.earn(steps, self.settings.share_for_peers, called_for)

    def own_share(self, weight: float) -> float:
        """What a client trains its own model by, of which it has that weight.

        One that is slow trains it by itself: the others do so for those of their own pace.
        """
        pace = self.peer_time.pace
        return weight if pace is None else max(weight, 1.0 - pace)

    # --- for the observer -----------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, float]:
        return self.collaborators.weights()

    def evaluated(self) -> Mapping[str, Vector | Sequence[tuple[float, Vector]]]:
        return evaluated_models(self, self.collaborators, self.settings)
