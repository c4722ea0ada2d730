"""FedeRiCo without rounds: models that are asked for, and come when they come."""

from __future__ import annotations

import asyncio
import math

from actors.message import PeerUnavailable, RemoteError
from protocols.federico.collaborators import Collaborators
from protocols.federico.messages import ModelRequest, RequestedModel, WeightedUpdate
from protocols.federico.settings import FedericoSettings
from protocols.framework import learner
from protocols.framework.vectors import Vector

ATTEMPTS = 2
"""How often a model is asked for before it is given up, after three estimated round trips."""
ATTEMPTS_TO_RETURN = 4
"""How often an update is sent until its receiver has confirmed it."""


class Visits(Collaborators):
    """A client that has asked some peers for their models: M of them at most.

    A place is taken from the choice until the iteration in which the model is evaluated, or its peer is given
    up, is over; so in no iteration it turns to more than M peers.
    """

    def __init__(
        self,
        name: str,
        surroundings: learner.Surroundings,
        compute: learner.Compute,
        settings: FedericoSettings,
    ) -> None:
        super().__init__(name, surroundings, compute, settings)
        self.places: dict[str, Vector | None] = {}  # who is chosen, with its model if it has come
        self.over: list[str] = []  # places that are free from the next iteration on
        self.news = asyncio.Event()
        self.heard_s: dict[str, float] = {}
        self.began_s = 0.0

    async def run(self) -> None:
        self.places.clear()  # of a former life, whose questions ended with it
        self.over.clear()
        self.began_s = self.now
        await super().run()

    def fill_places(self) -> None:
        """Choose candidates for the places that are free, and ask for their models."""
        for name in [*self.over, self.name]:
            self.places.pop(name, None)
        self.over.clear()
        others = [name for name in self.candidates if name not in self.places]
        if not self.own_competes:
            others.remove(self.name)
        chosen = self.choose(others, self.settings.neighbours - len(self.places))
        for name in chosen if self.own_competes else [self.name, *chosen]:
            self.places[name] = None
            if name != self.name:
                self.spawn(self.ask_for_model(name))

    async def ask_for_model(self, peer: str) -> None:
        """Have the model of a peer come, or free its place."""
        try:
            patience = self.settings.patience
            answer: RequestedModel = await self.ask(peer, ModelRequest(), timeout=patience, attempts=ATTEMPTS)
            self.observe("staleness", self.now - answer.time)
            self.places[peer] = answer.params
        except (PeerUnavailable, RemoteError):
            self.over.append(peer)
            if self.now - max(self.heard_s.get(peer, -math.inf), self.began_s) > patience:
                self.suspect(peer)
        self.news.set()

    async def evaluated_models(self) -> dict[str, Vector]:
        """Those of the chosen models that are here, the own one first; their losses are in the table.

        Who comes while others are evaluated is as well, and who comes later is in the next iteration. Waits
        only if there is none at all.
        """
        models: dict[str, Vector] = {}
        losses: dict[str, float] = {}
        while True:
            if self.name in self.places and self.name not in models:
                self.places[self.name] = self.params
            here = [name for name, model in self.places.items() if model is not None and name not in models]
            if here:
                name = min(here, key=lambda name: (name != self.name, name))
                model = self.places[name]
                assert model is not None
                losses[name] = await self.loss_of(model)
                models[name] = model
            elif models or len(self.over) == len(self.places):
                break
            else:
                self.news.clear()
                await self.news.wait()
        self.over += [name for name in models if name not in self.over]
        self.table.note({name: loss for name, loss in losses.items() if name in self.table.records})
        return models

    async def return_update(self, peer: str, update: Vector) -> None:
        """Send the owner of a model what it is to add; it does so once."""
        message = WeightedUpdate(update, self.now)
        try:
            await self.ask(peer, message, timeout=self.settings.patience, attempts=ATTEMPTS_TO_RETURN)
        except (PeerUnavailable, RemoteError):
            return  # whether it is there shows when it is asked for its model

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case ModelRequest():
                return RequestedModel(self.params, self.now)
            case WeightedUpdate(update):
                self.params = self.params + update
        return None

    def heard(self, message: object, sender: str) -> bool:
        self.heard_s[sender] = self.now
        return super().heard(message, sender)
