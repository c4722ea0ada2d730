"""FedeRiCo without rounds: models that are asked for, and come when they come."""

from __future__ import annotations

import asyncio

from actors.message import PeerUnavailable, RemoteError
from protocols.federico.collaborators import Collaborators
from protocols.federico.messages import ModelRequest, RequestedModel, WeightedUpdate
from protocols.framework.vectors import Vector
from protocols.shared.allowance import LOSS_SHARE, GradientAllowance
from protocols.shared.pace import PeerPace, relative_pace

ATTEMPTS = 2
"""How often a model is asked for before it is given up, after three estimated round trips."""
ATTEMPTS_TO_RETURN = 4
"""How often an update is sent until its receiver has confirmed it."""


class Visits(Collaborators):
    """A client that has asked some peers for their models: M of them at most.

    A place is taken from the choice until the iteration in which the model is evaluated, or its peer is given
    up, is over; so in no iteration it turns to more than M peers.
    """

    def begin(self) -> None:
        super().begin()
        # Who is chosen, with its model if it has come.
        self.places: dict[str, RequestedModel | None] = {}
        self.over: list[str] = []  # places that are free from the next iteration on
        self.judges_itself = False  # whether the own model is evaluated in this iteration
        self.news = asyncio.Event()
        self.paces: dict[str, PeerPace] = {}
        self.allowance = GradientAllowance(self.settings.gradients_when_behind)

    async def run(self) -> None:
        self.places.clear()  # of a former life, whose questions ended with it
        self.over.clear()
        self.paces.clear()
        self.allowance.earn(None, self.called_for)
        await super().run()

    def fill_places(self) -> None:
        """Choose candidates for the places that are free, and ask for their models."""
        for name in [*self.over, self.name]:
            self.places.pop(name, None)
        self.over.clear()
        others = [name for name in self.candidates if name not in self.places]
        if not self.own_competes:
            others.remove(self.name)
        free = min(self.settings.neighbours - len(self.places), len(others))
        own_first = not self.judges_itself  # by turns, if there is not time for all
        self.judges_itself = own_first and self.allowance.afford(self.loss_cost)
        chosen = self.choose(others, sum([self.allowance.afford(self.loss_cost) for _ in range(free)]))
        self.judges_itself = self.judges_itself or (not own_first and self.allowance.afford(self.loss_cost))
        if not (self.own_competes and (chosen or self.places)):
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
            self.pace(peer).met(answer.time, answer.iterations)
            self.places[peer] = answer
        except (PeerUnavailable, RemoteError):
            self.over.append(peer)
            self.suspect_if_silent(peer)
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
                self.places[self.name] = RequestedModel(self.params, self.now, self.iterations)
            here = [name for name, model in self.places.items() if model is not None and name not in models]
            if here:
                name = min(here, key=lambda name: (name != self.name, name))
                place = self.places[name]
                assert place is not None
                if name != self.name or self.judges_itself or self.own_competes:
                    losses[name] = await self.loss_of(place.params)
                models[name] = place.params
            elif models or len(self.over) == len(self.places):
                break
            else:
                self.news.clear()
                await self.news.wait()
        self.over += [name for name in models if name not in self.over]
        self.table.note({name: loss for name, loss in losses.items() if name in self.table.records})
        return models

    def model_time(self, name: str) -> float:
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
                self.pace(sender).met(time, iterations)
                return RequestedModel(self.params, self.now, self.iterations)
            case WeightedUpdate(update, time):
                self.observe("staleness", self.now - time)
                self.params = self.params + update
        return None

    # --- the time that it has for others --------------------------------------------------------------------

    def pace(self, peer: str) -> PeerPace:
        """How fast a peer is."""
        return self.paces.setdefault(peer, PeerPace())

    @property
    def loss_cost(self) -> float:
        """What it costs to evaluate a model, in gradients."""
        return LOSS_SHARE * (1 if self.settings.losses_on == "batch" else self.compute.steps_per_epoch)

    @property
    def called_for(self) -> float:
        """What all M models of others cost in an iteration, and to evaluate the own one, in gradients."""
        return self.settings.neighbours * (self.loss_cost + self.steps) + self.loss_cost

    def earn(self) -> None:
        """An iteration is over, which allows for some work on others' models."""
        self.allowance.earn(self.own_pace, self.called_for)

    @property
    def own_pace(self) -> float | None:
        """How fast this client is beside its peers (median), with the iteration that ends now."""
        done = self.iterations + 1 - self.iterations_before
        paces = [self.pace(peer) for peer in self.peers]
        return relative_pace(done, self.now - self.began_s, paces)

    def own_share(self, weight: float) -> float:
        """What a client trains its own model by, of which it has that weight.

        One that is slow trains it by itself: the others do so for those of their own pace.
        """
        pace = self.own_pace
        return weight if pace is None else max(weight, 1.0 - pace)
