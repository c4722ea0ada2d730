"""Clients of FedeRiCo without rounds: they request models, and use each in the iteration after its arrival.

A client has at most M chosen candidates at a time. A candidate stays chosen until the end of the iteration in
which its model is evaluated, or in which it is given up as silent; then another one is chosen in its place.
"""

import asyncio
from collections.abc import Mapping, Sequence

from actors.message import PeerUnavailable, RemoteError
from protocols.federico.collaborators import Collaborators
from protocols.federico.local_work import (
    evaluated_models,
    local_loss,
    steps_per_model,
    train_by_weight,
    trained_alone,
)
from protocols.federico.messages import ModelRequest, RequestedModel, WeightedUpdate
from protocols.federico.settings import FedericoSettings
from protocols.framework.client import Client
from protocols.framework.vectors import Vector
from protocols.shared.pace import LOSS_SHARE, TimeForPeers
from protocols.shared.silence import Silence

ATTEMPTS = 2
"""Number of requests for a model before the client gives up on the peer."""
ATTEMPTS_TO_RETURN = 4
"""Maximum number of times that an update is sent before its receiver confirms it."""


class FedericoAsynchronous(Client):
    """Client of FedeRiCo without rounds."""

    Settings = FedericoSettings
    settings: FedericoSettings
    weights_are_shares = True

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.silence = Silence(self, self.settings.patience)
        self.collaborators = Collaborators(self, self.settings)
        self.peer_time = TimeForPeers(self)
        # Models of the chosen candidates by name; None: not received yet.
        self.chosen: dict[str, RequestedModel | None] = {}
        self.used_up: list[str] = []  # chosen candidates that others replace in the next iteration
        self.judges_itself = False  # whether its own model is evaluated in this iteration
        self.news = asyncio.Event()

    async def run(self) -> None:
        self.chosen.clear()  # the requests of an earlier session ended with it
        self.used_up.clear()
        self.peer_time.paces.clear()
        self.earn_time()
        await super().run()

    async def step(self) -> None:
        """Evaluate and train the models that have arrived, and return each update to its model's owner."""
        if await trained_alone(self, self.settings):
            self.earn_time()
            return
        self.choose_models()
        models = await self._evaluated_candidates()
        self.collaborators.hold(models)
        for name, share in self.collaborators.worth_training(models).items():
            if name == self.name:
                share = self.own_share(share)
            elif not (self.gives_back and self.peer_time.try_spend(steps_per_model(self, self.settings))):
                continue
            update = await train_by_weight(self, self.settings, name, models[name], share)
            if name == self.name:
                self.params = self.params + update
            elif self.is_peer(name):
                self.spawn(self.return_update(name, WeightedUpdate(update, self._model_time(name))))
        self.earn_time()

    def choose_models(self) -> None:
        """Choose candidates until there are M, or the time for peers is used up; ask for their models."""
        for name in [*self.used_up, self.name]:
            self.chosen.pop(name, None)
        self.used_up.clear()
        others = [name for name in self.collaborators.candidates if name not in self.chosen]
        if not self.settings.own_competes:
            others.remove(self.name)
        free = min(self.settings.neighbours - len(self.chosen), len(others))
        own_first = not self.judges_itself  # every other time, in case there is not enough time for all
        self.judges_itself = own_first and self.peer_time.try_spend(self.loss_cost)
        names = self.collaborators.choose(
            others, sum([self.peer_time.try_spend(self.loss_cost) for _ in range(free)])
        )
        self.judges_itself = self.judges_itself or (
            not own_first and self.peer_time.try_spend(self.loss_cost)
        )
        if not (self.settings.own_competes and (names or self.chosen)):
            names = [self.name, *names]
        for name in names:
            self.chosen[name] = None
            if name != self.name:
                self.spawn(self.ask_for_model(name))

    async def ask_for_model(self, peer: str) -> None:
        """Ask a peer for its model; give the peer up if it does not answer."""
        try:
            patience = self.settings.patience
            request = ModelRequest(self.iterations, self.now)
            answer: RequestedModel = await self.ask(peer, request, timeout=patience, attempts=ATTEMPTS)
            self.context.report(self.name, "staleness", self.now - answer.time)
            self.peer_time.met(peer, answer.time, answer.iterations)
            self.chosen[peer] = answer
        except (PeerUnavailable, RemoteError):
            self.used_up.append(peer)
            self.silence.suspect_if_silent(peer)
        self.news.set()

    async def _evaluated_candidates(self) -> dict[str, Vector]:
        """Evaluate the chosen models that have arrived, and record their losses; return the models by name.

        The client's own model comes first, if it is chosen. Models that arrive during these evaluations are
        also evaluated; models that arrive later wait for the next iteration. Waits only if no model has come.
        """
        models: dict[str, Vector] = {}
        losses: dict[str, float] = {}
        while True:
            if self.name in self.chosen and self.name not in models:
                self.chosen[self.name] = RequestedModel(self.params, self.now, self.iterations)
            ready = [name for name, model in self.chosen.items() if model is not None and name not in models]
            if ready:
                name = min(ready, key=lambda name: (name != self.name, name))
                model = self.chosen[name]
                assert model is not None
                if name != self.name or self.judges_itself or self.settings.own_competes:
                    losses[name] = await local_loss(self, model.params, self.settings, brief=self.is_brief)
                models[name] = model.params
            elif models or len(self.used_up) == len(self.chosen):
                break
            else:
                self.news.clear()
                await self.news.wait()
        self.used_up += [name for name in models if name not in self.used_up]
        self.collaborators.record(losses)
        return models

    def _model_time(self, name: str) -> float:
        """Return the time at which the owner sent a chosen model (seconds)."""
        model = self.chosen[name]
        assert model is not None
        return model.time

    async def return_update(self, peer: str, message: WeightedUpdate) -> None:
        """Send an update to `peer`, the owner of the model, repeatedly if necessary; it counts once."""
        try:
            await self.ask(peer, message, timeout=self.settings.patience, attempts=ATTEMPTS_TO_RETURN)
        except (PeerUnavailable, RemoteError):
            return  # if the peer is gone, the next request for its model notices

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case ModelRequest(iterations, time):
                self.peer_time.met(sender, time, iterations)
                return RequestedModel(self.params, self.now, self.iterations)
            case WeightedUpdate(update, time):
                self.context.report(self.name, "staleness", self.now - time)
                self.params = self.params + update
        return None

    # --- time for others ------------------------------------------------------------------------------------

    @property
    def loss_cost(self) -> float:
        """Time to evaluate a model, in units of a gradient's time."""
        one_batch = self.settings.losses_on == "batch" or self.is_brief
        return LOSS_SHARE * (1 if one_batch else self.compute.steps_per_epoch)

    @property
    def is_protected(self) -> bool:
        """True if `safeguard` is on and this client is so slow that its own training comes first."""
        return self.settings.safeguard and self.peer_time.was_far_behind

    @property
    def is_brief(self) -> bool:
        """True if a protected client evaluates models on one batch where the settings state all samples."""
        return self.settings.losses_on == "train" and self.is_protected

    @property
    def gives_back(self) -> bool:
        """True if this client trains models of others; if protected, only once a peer's model helps."""
        return not self.is_protected or self.collaborators.has_better

    def earn_time(self) -> None:
        """Add the device time for peers that an iteration earns; also called at the start of a session."""
        steps = steps_per_model(self, self.settings)
        called_for = self.settings.neighbours * (self.loss_cost + steps) + self.loss_cost
        self.peer_time.earn(steps, self.settings.share_for_peers, called_for)

    def own_share(self, weight: float) -> float:
        """Return the factor of this client's update of its own model.

        weight: the weight of the client's own model in its posterior. For a slow client, the factor may be
        larger: the client gets few updates, since the others mostly train each other's models.
        """
        pace = self.peer_time.pace
        return weight if pace is None else max(weight, 1.0 - pace)

    # --- for the observer -----------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, float]:
        return self.collaborators.weights()

    def evaluated(self) -> Mapping[str, Vector | Sequence[tuple[float, Vector]]]:
        return evaluated_models(self, self.collaborators, self.settings)
