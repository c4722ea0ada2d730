"""Specific Pareto optimization (SPO): the coordinator learns the Pareto front, and searches it for each."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.vectors import Vector, mix
from protocols.learn_to_collaborate.benefit_weights import moved, necessary
from protocols.learn_to_collaborate.leader_election import LeaderElection
from protocols.learn_to_collaborate.local_gradients import LocalGradients
from protocols.learn_to_collaborate.messages import GradientFound, GradientWanted, HeadStepWanted
from protocols.learn_to_collaborate.pareto_front import ParetoFront
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings

NEGLIGIBLE = 1e-3
"""A client of less weight in a round is not asked: its gradient would hardly count."""
_MISSED_MAX = 0.1
"""The share of its rounds that a client may miss, down or cut off, without needing more of them."""
Shares = Mapping[str, float]
"""Weights d by client; whoever is not named has none."""


@dataclass(frozen=True)
class Optimum:
    """The weights that suit a client best among certain clients, who of these are necessary, and its loss."""

    shares: Shares
    collaborators: frozenset[str]
    loss: float


class ParetoSearch(Component):
    """The front of one coordinator, which it learns from all clients' gradients, and searches."""

    front: ParetoFront
    limit_s: float | None = None
    """How long the gradients of a round are waited for; None: until all have come."""

    def __init__(
        self,
        client: Client,
        settings: LearnToCollaborateSettings,
        election: LeaderElection,
        gradients: LocalGradients,
    ) -> None:
        super().__init__(client)
        self.settings = settings
        self.election = election
        self.gradients = gradients
        self.arrived: list[tuple[str, Shares, Vector]] = []  # gradients that have yet to count
        self.at_work: dict[str, asyncio.Task[None]] = {}  # who computes one, or did last
        self.rounds: Counter[str] = Counter()  # of training in which each client took part
        self.first: frozenset[str] = frozenset()  # the clients with which the front began

    def begin(self) -> None:
        """Begin a front of its own, with those that are up."""
        self.arrived.clear()  # of an earlier front of its own
        self.rounds.clear()
        up = self.election.up()
        self.first = frozenset(up)
        start = self.gradients.common(self.client.compute.initial())
        self.front = ParetoFront(self.client, self.settings, up, start)

    def missing_rounds(self, client: str) -> int:
        """The rounds of training that a client still needs; 0 if it took part in nearly all of them.

        A client that comes while the front is learned needs as many as one that comes later: what is left of
        the phase may be too short for the front to hold anything of its loss.
        """
        settings = self.settings
        needed = settings.rounds if client in self.first else settings.newcomer_rounds
        missing = needed - self.rounds[client]
        return missing if missing > _MISSED_MAX * needed else 0

    # --- gradients ------------------------------------------------------------------------------------------

    async def training_gradient(self, client: str, shares: Shares, model: Vector) -> GradientFound | None:
        """A client's gradient in a round of training, in which its own head takes a step; None if gone."""
        term = self.election.term[0]
        if self.gradients.head is None:
            return await self.gradient_of(client, GradientWanted(term, model, "batch"))
        return await self.gradient_of(client, HeadStepWanted(term, model, "batch", shares[client]))

    async def validation_gradient(self, client: str, model: Vector) -> GradientFound | None:
        """A client's gradient and loss on what it holds back; None if it is gone."""
        return await self.gradient_of(client, GradientWanted(self.election.term[0], model, "validation"))

    async def gradient_of(self, client: str, wanted: GradientWanted) -> GradientFound | None:
        """A client's answer, perhaps this one's; None if it is gone."""
        if client == self.client.name:
            return await self.gradients.at(wanted)
        answer = await self.election.ask(client, wanted)
        return answer if isinstance(answer, GradientFound) else None

    # --- learning the front ---------------------------------------------------------------------------------

    async def learn_front(self, rounds: int) -> None:
        """Train the hypernetwork with all clients that are up, also with those that come meanwhile."""
        for _ in range(rounds):
            for client in self.election.up():
                if client not in self.front.clients:
                    self.front.admit(client)
            await self.take_round()

    async def take_round(self) -> None:
        """Send HN(d) for random d, and learn from what comes back."""
        up = self.election.up()
        there = [client for client in self.front.clients if client in up]
        self.rounds.update(there)
        concentration = self.settings.concentration or 1 / len(there)
        drawn = self.client.rng.dirichlet(np.full(len(there), concentration)).tolist()
        shares = {client: share for client, share in zip(there, drawn, strict=True) if share >= NEGLIGIBLE}
        model = await self.front.model(shares)
        for client in shares:
            if client not in self.at_work or self.at_work[client].done():
                self.at_work[client] = self.client.spawn(self.contribute(client, shares, model))
        await self.wait_for_gradients()
        arrived, self.arrived = self.arrived, []
        if arrived:
            await self.front.learn(summed(arrived))

    async def wait_for_gradients(self) -> None:
        """Until all that are under way have come, or time is up."""
        under_way = [task for task in self.at_work.values() if not task.done()]
        if under_way:
            await asyncio.wait(under_way, timeout=self.limit_s)

    async def contribute(self, client: str, shares: Shares, model: Vector) -> None:
        """One client's gradient of a round."""
        answer = await self.training_gradient(client, shares, model)
        if answer is not None:
            self.arrived.append((client, shares, answer.gradient))

    def cancel(self) -> None:
        """Ask nobody for gradients any more."""
        for task in self.at_work.values():
            task.cancel()

    # --- searching it ---------------------------------------------------------------------------------------

    async def search(self, target: str, clients: Sequence[str]) -> Optimum | None:
        """The weights d that suit `target` best, by descent on its validation loss. None if it is gone."""
        settings, count = self.settings, len(clients)
        d = np.full(count, 1 / count)
        for _ in range(settings.search_steps if count > 1 else 0):
            shares = dict(zip(clients, d.tolist(), strict=True))
            self.watch(target, shares)
            answer = await self.validation_gradient(target, await self.front.model(shares))
            if answer is None:
                return None
            slope = await self.front.slope(shares, answer.gradient)
            before, floor = d, settings.floor / count
            d = moved(
                d, [slope[c] for c in clients], settings.search_learning_rate, floor, settings.projection
            )
            if np.abs(d - before).max() <= settings.search_tolerance:
                break
        shares = dict(zip(clients, d.tolist(), strict=True))
        self.watch(target, shares)
        found = await self.validation_gradient(target, await self.front.model(shares))
        if found is None or found.loss is None:
            return None
        numbers = necessary(d, clients.index(target), settings.rule, settings.least)
        return Optimum(shares, frozenset([clients[number] for number in numbers]), float(found.loss))

    def watch(self, target: str, shares: Shares) -> None:
        """Observe the weights of the client that is `watched`."""
        if target == f"client-{self.settings.watched}":
            for client, share in shares.items():
                self.client.observe(f"d_{client}", share)

    async def search_all(
        self, targets: Iterable[str], clients: Sequence[str], limit_s: float | None = None
    ) -> tuple[dict[str, Optimum], list[str]]:
        """Search for all targets at once: the optima of those that are not gone, and those that are late."""
        searches = {target: self.client.spawn(self.search(target, clients)) for target in targets}
        try:
            await asyncio.wait(list(searches.values()), timeout=limit_s)
            late = [target for target, task in searches.items() if not task.done()]
            optima = {target: task.result() for target, task in searches.items() if task.done()}
            return {target: each for target, each in optima.items() if each is not None}, late
        finally:
            for task in searches.values():
                task.cancel()


def summed(arrived: Sequence[tuple[str, Shares, Vector]]) -> list[tuple[Shares, Vector]]:
    """For each d that gradients have come for: d, and sum_i d_i g_i over the clients that answered."""
    rounds: dict[int, tuple[Shares, list[tuple[float, Vector]]]] = {}
    for client, shares, gradient in arrived:
        rounds.setdefault(id(shares), (shares, []))[1].append((shares[client], gradient))
    return [(shares, mix(weighted)) for shares, weighted in rounds.values()]
