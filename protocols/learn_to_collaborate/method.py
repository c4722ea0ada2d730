"""Iteration of Learning to Collaborate: wait for a coalition, then train in it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import final

from protocols.framework.client import Client
from protocols.framework.coalition import Coalition
from protocols.framework.requirements import ProtocolSettings, Requirement
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.learn_to_collaborate.coordinator import Coordinator
from protocols.learn_to_collaborate.local_gradients import LocalGradients
from protocols.learn_to_collaborate.messages import (
    FromLeader,
    GradientWanted,
    HigherTerm,
    LeaderPing,
    Members,
    PartnerModel,
    Pong,
)
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings


class CollaboratingClient(Client):
    """Common base of both forms of Learning to Collaborate: only their coordinators differ."""

    Settings = LearnToCollaborateSettings
    settings: LearnToCollaborateSettings
    weights_are_shares = True
    edge_threshold = 0.0  # only collaborators have weights

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.gradients = LocalGradients(self, self.settings)
        self.coordinator = Coordinator(self, self.settings, self.gradients, self.join)
        self.settled: Members | None = None
        self.front_models: dict[str, Vector] = {}  # models of the Pareto front from the coordinator
        self.has_settled = asyncio.Event()
        self.joined_s = 0.0
        self.age = 0  # training steps of the model, or of older models mixed into it

    async def on_start(self) -> None:
        election = self.coordinator.election
        election.reset()
        await super().on_start()
        if not self.context.alone:
            election.start()

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, LearnToCollaborateSettings)
        divided = Requirement(
            "model.name",
            lambda name: name == "decoupled",
            'has heads = "own", which needs a backbone and a head; must be "decoupled"',
        )
        watched = Requirement(
            "clients.count",
            lambda count: count > (settings.watched or 0),
            f"has watched = {settings.watched}, which is the number of a client, from 0; must be greater "
            "than this number",
        )
        return (
            watched,
            *([divided] if settings.heads == "own" else []),
            Requirement(
                "data.validation_share",
                lambda share: share > 0,
                "chooses collaborators by validation losses; must be more than 0",
            ),
            Requirement(
                "clients.topology.kind",
                lambda kind: kind == "complete",
                'has a coordinator that communicates with all clients; must be "complete"',
            ),
        )

    async def step(self) -> None:
        if not self.context.alone:
            await self.has_settled.wait()  # the coordinator (`Coordinator.lead`) runs the Pareto search and
            # algorithm 1 or 2
        if self.is_content:
            await self.sleep(self.settings.patience)  # idle: a new coalition comes in a message
        else:
            await self.train_in_coalition()

    async def train_in_coalition(self) -> None:
        """Train some local steps, then send the model to one partner."""
        steps = int(min(self.settings.local_steps, self.compute.steps_left))
        update = await self.train(self.settings.local_steps)
        if self.is_content:
            return  # it got the front's model meanwhile: this update belongs to another model
        self.params = self.params + update
        self.age += steps
        partners = [member for member in self.partners if self.is_peer(member)]
        if partners:
            chosen = partners[int(self.rng.integers(len(partners)))]
            self.tell(chosen, PartnerModel(self.gradients.common(self.params), self.age, self.now))

    @property
    def partners(self) -> list[str]:
        """Other members of this client's coalition."""
        return [] if self.settled is None else [name for name in self.settled.members if name != self.name]

    @property
    def is_content(self) -> bool:
        """True if this client keeps its model from the Pareto front."""
        return self.settings.inside == "pareto" and bool(self.partners)

    def join(self, settled: Members) -> None:
        """Join a coalition.

        If this is the first one, or if `is_content`, continue from the client's best model on the coalition's
        Pareto front.
        """
        before, self.settled = self.settled, settled
        if before is None or before.members != settled.members:
            self.joined_s = self.now
        self.front_models = {"pareto": self.gradients.whole(settled.pareto)}
        if settled.full is not None:
            self.front_models["full"] = self.gradients.whole(settled.full)
        if before is None or self.is_content:
            self.params = self.front_models["pareto"]
        self.has_settled.set()

    async def on_message(self, message: object, sender: str) -> object:
        if isinstance(message, PartnerModel):
            self.merge(message, sender)
            return None
        if not isinstance(message, FromLeader):
            return None
        election = self.coordinator.election
        if not election.recognises((message.term, sender)):
            return HigherTerm(*election.term)
        match message:
            case LeaderPing():
                return Pong()
            case GradientWanted():
                return self.spawn(self.gradients.at(message))  # a task, so that other messages need not wait
            case Members():
                newest = (-1, -1) if self.settled is None else (self.settled.term, self.settled.version)
                if (message.term, message.version) > newest:
                    self.join(message)
                return Pong()
        return None

    def merge(self, message: PartnerModel, sender: str) -> None:
        """Mix a partner's model with this client's, in proportion to the ages of both.

        No effect if `is_content`, or if `sender` is no partner.
        """
        if sender in self.partners and not self.is_content:
            self.context.report(self.name, "staleness", self.now - message.time)
            share = message.age / (self.age + message.age) if message.age else 0.0
            mixed = mix([(1 - share, self.gradients.common(self.params)), (share, message.params)])
            own = self.gradients.head is not None
            self.params = self.with_part(self.params, "backbone", mixed) if own else mixed
            self.age = max(self.age, message.age)

    # --- for the observer -----------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, float]:
        return {} if self.settled is None else dict(self.settled.benefits)

    def coalition(self) -> Coalition | None:
        if self.settled is None:
            return None
        return Coalition(self.settled.members, self.joined_s, dict(self.settled.losses))

    def evaluated(self) -> Mapping[str, Vector]:
        return {"coalition": self.params, **self.front_models}


@final
class LearnToCollaborateAsynchronous(CollaboratingClient):
    """Learning to Collaborate with a coordinator that continues without late gradients."""

    def setup(self) -> None:
        super().setup()
        self.coordinator.search.limit_s = self.settings.time_limit


@final
class LearnToCollaborate(CollaboratingClient):
    """Learning to Collaborate with a coordinator that waits for all gradients of a round."""

    search_space = SearchSpace(
        "coterie's defaults, with a decade or more on each side",
        {
            "hypernetwork_learning_rate": Range(0.003, 0.3, log=True),
            "search_learning_rate": Range(0.01, 1.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    asynchronous = LearnToCollaborateAsynchronous
