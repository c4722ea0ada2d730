"""Rounds of a server and its clients: the common part of all methods with a server.

    each round: S <- max(1, floor(C m)) random clients of m
                each client in S gets a task, trains for E local epochs, and answers
                the server combines the answers

A client whose answer is overdue, judged by its earlier answers, gets its task again, and repeats an answer
that it has already given; after `patience` the round continues without this client. The result of a round is
sent once: a client that misses it, and is not sampled, gets the next round's instead. Only the server starts
a round: it waits for answers, never for clients that are gone, and samples clients from the time they come or
come back.

A client that has exhausted its budget still answers, but with the received model, untrained: averages keep
their weights, instead of leaning towards the few clients that still train. The client finishes with its first
task of this kind, whose model is the average of the last round in which the client trained. When all clients
have finished, the server pauses. After the last of `rounds`, the server sends all clients the result, and
they also finish.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from actors.message import PeerUnavailable, RemoteError
from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration, Weighing
from actors.source_location import name_with_line
from protocols.framework.client import Client
from protocols.framework.context import ClientContext
from protocols.framework.node import AreYouThere
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.server import Server, ServerPlan
from protocols.framework.vectors import Vector, mix


@dataclass(frozen=True)
class RoundTask:
    """Base class of the tasks that a server gives a client; the answer is the client's contribution."""


@dataclass(frozen=True)
class Assignment(RoundTask):
    """Task to train from these parameters."""

    params: Vector
    round: int


@dataclass(frozen=True)
class Contribution:
    """Trained parameters of a client, and the number of samples they were trained on."""

    params: Vector
    samples: int


@dataclass(frozen=True)
class GlobalModel:
    """New global model, which the server sends to clients after a round."""

    params: Vector


@dataclass(frozen=True)
class WithoutTraining:
    """Answer of a client that has exhausted its budget."""

    answer: object


@dataclass(frozen=True)
class LastRound:
    """Notice of the last round; news: its result, if the client gets one."""

    news: object | None


@dataclass(frozen=True)
class Ready:
    """Notice of an idle client that it is up, in case the server does not know."""


class RoundSettings(ProtocolSettings):
    """Rounds of a server: clients, local training, broadcast, and number of rounds."""

    changing: ClassVar[tuple[str, ...]] = ("fraction", "local_steps", "local_epochs")

    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share C of the clients that train in a round; at least one does."""
    local_steps: Count | None = None
    """Training steps of a client in a round, instead of `local_epochs`."""
    local_epochs: Count = 1
    """Passes of a client over its own samples in a round (E); each drops the last incomplete batch."""
    patience: PositiveDuration = default("1 min")
    """Maximum wait of the server for a client's answer; then the round continues without this answer. Until
    then, the server requests the answer again whenever it is overdue."""
    broadcast: Literal["sampled", "all"] = "sampled"
    """Receivers of a round's result: only the clients that train next, as in the paper, or all clients. A
    lost result is not repeated: the next round's replaces it."""
    rounds: Count | None = None
    """Rounds of the server; after the last one the run ends, whatever the progress of each client."""


_TASK = "a frozen dataclass that is derived from it, `class Task(RoundTask)`"


def shares(samples: Sequence[int], weights: Weighing) -> list[float]:
    """Return the share of each client in an average over clients with these numbers of samples."""
    counts = samples if weights == "samples" else [1] * len(samples)
    total = sum(counts)
    return [count / total for count in counts]


def averaged(answers: Mapping[str, Contribution], weights: Weighing = "samples") -> Vector:
    """Return the average of the clients' parameters."""
    received = list(answers.values())
    parts = shares([answer.samples for answer in received], weights)
    return mix([(share, answer.params) for share, answer in zip(parts, received, strict=True)])


class RoundServer(Server):
    """Server that runs rounds. A method overrides the tasks and the use of the answers.

    By default it is the server of federated averaging: whole models are sent, and averaged.
    """

    _machinery = True
    settings: RoundSettings
    number = 0
    """Number of completed rounds; a server that returns with its state continues with the next round."""

    def __init__(
        self,
        name: str,
        context: ClientContext,
        settings: ProtocolSettings,
        initial: Vector,
    ) -> None:
        self.done: set[str] = set()  # clients with exhausted budgets; never iterated over
        super().__init__(name, context, settings, initial)

    def task(self, client: str, number: int) -> RoundTask:
        """Return the task of `client` in round `number`."""
        return Assignment(self.params, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        """Use the answers of round `number`: a dict by client name, with at least one answer."""
        for answer in answers.values():
            if not (hasattr(answer, "params") and hasattr(answer, "samples")):
                what = type(answer).__name__
                raise TypeError(
                    f"work() returned {what}, but the server averages Contributions (params, samples): "
                    "return one, or set `server = ...` in the client's class to a server that accepts this "
                    "result"
                )
        self.params = averaged(answers)

    def news(self, client: str) -> object | None:
        """Return a message to `client` after a round, or None; not a RoundTask.

        Called after each round with `broadcast = "all"`, and after the last of `rounds`.
        """
        return GlobalModel(self.params)

    async def refine(self, number: int) -> None:
        """Do the server's work, such as training, after a round with answers, before any news is sent."""

    async def run(self) -> None:
        self.round_trips.initial_s = self.settings.patience  # the first answers of a round set later limits
        while not self.is_over:
            if self.done.issuperset(self.peers):  # also if there are none
                await self.sleep(self.settings.patience)
                continue
            await self.round(self.number)
            self.number += 1
        for client in self.peers:
            self.spawn(self._dismiss(client))

    @property
    def is_over(self) -> bool:
        """True if the last round is done."""
        return self.settings.rounds is not None and self.number >= self.settings.rounds

    async def _dismiss(self, client: str) -> None:
        last = LastRound(self._news(client))
        try:
            await self.ask(client, last, timeout=self.settings.patience, attempts=None)
        except (PeerUnavailable, RemoteError):
            self.suspect(client)

    async def on_message(self, message: object, sender: str) -> None:
        """Handle `Ready` of a client, whose arrival alone marks the client as up again.

        After the last round, tell the client that the rounds are over.
        """
        if self.is_over:
            self.spawn(self._dismiss(sender))

    def peer_changed(self, peer: str, up: bool) -> None:
        super().peer_changed(peer, up)
        if up and self._alive and self.is_over:
            self.spawn(self._dismiss(peer))

    def _news(self, client: str) -> object | None:
        news = self.news(client)
        if isinstance(news, RoundTask):
            what = type(news).__name__
            raise TypeError(
                f"{name_with_line(self.news)} returned {what}, a RoundTask: return another dataclass"
            )
        return news

    async def round(self, number: int) -> None:
        """Run one round with the clients that the server considers up."""
        chosen = self.sample()
        if not chosen:
            await self.sleep(self.settings.patience)
        received = await asyncio.gather(*[self.answer(client, number) for client in chosen])
        answers = dict(zip(chosen, received, strict=True))
        answers = {client: answer for client, answer in answers.items() if answer is not None}
        self._round_waits += 1
        self._round_waits_in_vain += not answers
        if self.context.compute is not None:
            self.context.compute.round = number
        if answers:
            self.combine(answers, number)
            await self.refine(number)
        for client in self.peers if self.settings.broadcast == "all" else ():
            news = self._news(client)
            if news is not None:
                self.tell(client, news)

    def sample(self) -> list[str]:
        """Return the names of the clients that train in a round. Override this method to choose the clients.

        By default, the share `fraction` of the clients that are up is drawn, at least one client. Return
        distinct names from `self.peers`. If you return no names, the server waits for `patience`, and the
        round ends. `self.number` is the number of the round. For a choice that needs messages, override
        `round`: ask the clients, and then call `await super().round(number)`.
        """
        peers = self.peers
        # Rounded before floor: 0.29 times 100 is 28.999999999999996.
        count = max(1, math.floor(round(self.settings.fraction * len(peers), 9)))
        if count == len(peers):
            return list(peers)
        return [peers[int(index)] for index in self.rng.choice(len(peers), size=count, replace=False)]

    async def answer(self, client: str, number: int) -> Any:
        """Return one client's answer; None if the client fails, or the answer does not arrive in time."""
        task = self.task(client, number)
        if not isinstance(task, RoundTask):
            what = type(task).__name__
            raise TypeError(
                f"{name_with_line(self.task)} returned {what}, which is not a RoundTask: write {_TASK}"
            )
        try:
            answer = await self.ask(client, task, timeout=self.settings.patience, attempts=None)
        except (PeerUnavailable, RemoteError):
            self.suspect(client)
            return None
        if not isinstance(answer, WithoutTraining):
            return answer
        self.done.add(client)
        return answer.answer


class RoundClient(Client):
    """Client of a `RoundServer`, which works only on request. A method overrides `work` and `learn`.

    By default it is a client of federated averaging: it trains the model from the server and returns it.

    Evaluations use the client's `params`, which `work` or `learn` assigns, unless `evaluated()` names other
    models. A client that has assigned no model before its second task ends with a TypeError that explains
    this.
    """

    _machinery = True
    Settings = RoundSettings
    settings: RoundSettings
    server: ClassVar[type[RoundServer]] = RoundServer
    """Class of the server."""
    _known = False  # whether a server has given it a task in this session
    _working = False
    _has_model: bool | None = None  # whether it has assigned a model since its first task started

    @classmethod
    def servers(
        cls, settings: ProtocolSettings, clients: Sequence[str], clusters: Sequence[int] | None
    ) -> list[ServerPlan]:
        return ServerPlan.one(cls.server, RoundServer, clients)

    @property
    def params(self) -> Vector:
        return self._params

    @params.setter
    def params(self, value: Vector) -> None:
        Client.params.__set__(self, value)  # type: ignore[attr-defined]
        self._has_model = True

    async def _start_from_peers(self) -> None:
        """Do nothing if backbones differ: no peer has a whole model to start from."""
        if not self.heterogeneous:
            await super()._start_from_peers()

    async def work(self, task: Any) -> object:
        """Do the server's task and return the answer, never None. Counts as an iteration."""
        self.params = task.params
        return Contribution(await self.trained(task.params), self.samples)

    def learn(self, news: Any) -> None:
        """Use a message that the server sends to all clients after a round."""
        self.params = news.params

    @property
    def steps_of_a_round(self) -> int:
        """Number of local steps in a round."""
        return self.settings.local_steps or self.settings.local_epochs * self.compute.steps_per_epoch

    async def trained(self, start: Vector) -> Vector:
        """Return `start` after the local steps of a round, with a fresh optimizer."""
        return start + await self.train(self.steps_of_a_round, start=start, fresh_optimizer=True)

    async def step(self) -> None:
        """Run a round without a server; called only for a client that is alone."""
        self.compute.round = self.iterations
        self.params = await self.trained(self.params)

    async def run(self) -> None:
        """Announce this client to the server until it gets a task: an earlier announcement may be lost.

        A client that is alone trains round after round.
        """
        if self.context.alone:
            await super().run()
            return
        self._known = False
        while True:
            await self.sleep(self.settings.patience)
            if self._known:
                return
            for server in self.peers:
                self.tell(server, Ready())

    async def on_message(self, message: object, sender: str) -> object:
        try:
            return await self._answer_of(message)
        except AttributeError as error:
            if error.obj is not message:
                raise
            method, what = self.work if isinstance(message, RoundTask) else self.learn, type(message).__name__
            raise TypeError(
                f"{name_with_line(method)} reads {error.name}, which the server's {what} does not have: set "
                f"`server = ...` in {type(self).__name__} to a server that sends it"
            ) from error

    async def _answer_of(self, message: object) -> object:
        if isinstance(message, LastRound):
            self._known = True
            if message.news is not None:
                self.learn(message.news)
            self._finish()
            return True
        if not isinstance(message, RoundTask):
            self.learn(message)
            return None
        self._known = self._working = True
        self._require_models()
        self.compute.round = getattr(message, "round", None)  # tasks of users may have no round
        try:
            answer = await self.work(message)
        finally:
            self._working = False
        if answer is None:
            raise TypeError(
                f"{name_with_line(self.work)} returned nothing: return an answer for the server to use"
            )
        self._finish_iteration()
        return WithoutTraining(answer) if self.finished else answer

    def _require_models(self) -> None:
        """Raise TypeError for a method that would always be evaluated by its initial model."""
        if self._has_model is None:
            self._has_model = False
        elif not self._has_model and type(self).evaluated is Client.evaluated:
            raise TypeError(
                f"{type(self).__name__} has finished a task without assigning self.params, the model that "
                "is evaluated: assign it in work() or learn(), or name the models in evaluated()"
            )

    def intercept(self, message: object, sender: str) -> bool:
        done = super().intercept(message, sender)
        if isinstance(message, AreYouThere) and not self._working:
            self.tell(sender, Ready())  # no other message would show that an idle client is up
        return done
