"""Specific Pareto optimization (SPO): the coordinator learns the Pareto front, and searches it."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from protocols.framework.client import Client
from protocols.framework.component import Component
from protocols.framework.vectors import Vector, mix
from protocols.learn_to_collaborate.benefit_weights import optimal_collaborators, projected_step
from protocols.learn_to_collaborate.leader_election import LeaderElection
from protocols.learn_to_collaborate.local_gradients import LocalGradients
from protocols.learn_to_collaborate.messages import GradientFound, GradientWanted, HeadStepWanted
from protocols.learn_to_collaborate.pareto_front import ParetoFront
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings

NEGLIGIBLE = 1e-3
"""Weight in a round below which a client is not asked: its gradient would hardly count."""
_MISSED_MAX = 0.1
"""Maximum share of missed rounds, while down or cut off, before a client needs additional rounds."""
Shares = Mapping[str, float]
"""Weights d by client; clients without an entry have 0."""


@dataclass(frozen=True)
class Optimum:
    """Result of a client's search: its best weights, its optimal collaborators with itself, and its loss."""

    shares: Shares
    collaborators: frozenset[str]
    loss: float


class ParetoSearch(Component):
    """Pareto front of one coordinator, learned from the gradients of all clients, and searches on it."""

    front: ParetoFront
    limit_s: float | None = None
    """Time to wait for the gradients of a round; None: until all have come."""

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
        self.at_work: dict[str, asyncio.Task[None]] = {}  # the last gradient task of each client
        self.rounds: Counter[str] = Counter()  # number of training rounds of each client
        self.first: frozenset[str] = frozenset()  # the clients at the start of the front

    def start(self) -> None:
        """Start a new front, with the clients that are up."""
        self.arrived.clear()  # gradients of an earlier front of this client
        self.rounds.clear()
        up = self.election.up()
        self.first = frozenset(up)
        start = self.gradients.common(self.client.compute.initial())
        self.front = ParetoFront(self.client, self.settings, up, start)

    def missing_rounds(self, client: str) -> int:
        """Return the rounds of training that a client still needs; 0 if it took part in nearly all of them.

        A client that joins while the front is learned needs as many as one that joins later: the remainder of
        the phase may be too short to represent its loss in the front.
        """
        settings = self.settings
        needed = settings.rounds if client in self.first else settings.newcomer_rounds
        missing = needed - self.rounds[client]
        return missing if missing > _MISSED_MAX * needed else 0

    # --- gradients ------------------------------------------------------------------------------------------

    async def training_gradient(self, client: str, shares: Shares, model: Vector) -> GradientFound | None:
        """Return a client's gradient; None if it is gone. With own heads, its head also takes a step."""
        term = self.election.term[0]
        if self.gradients.head is None:
            return await self.gradient_of(client, GradientWanted(term, model, "batch"))
        return await self.gradient_of(client, HeadStepWanted(term, model, "batch", shares[client]))

    async def validation_gradient(self, client: str, model: Vector) -> GradientFound | None:
        """Return a client's gradient and loss on its held-out samples; None if it is gone."""
        return await self.gradient_of(client, GradientWanted(self.election.term[0], model, "validation"))

    async def gradient_of(self, client: str, wanted: GradientWanted) -> GradientFound | None:
        """Return the answer of a client, which may be this one; None if it is gone or has another leader."""
        if client == self.client.name:
            return await self.gradients.at(wanted)
        answer = await self.election.ask(client, wanted)
        return answer if isinstance(answer, GradientFound) else None

    # --- learning -------------------------------------------------------------------------------------------

    async def learn_front(self, rounds: int) -> None:
        """Train the hypernetwork with all clients that are up, including those that join meanwhile."""
        for _ in range(rounds):
            for client in self.election.up():
                if client not in self.front.clients:
                    self.front.admit(client)
            await self.take_round()

    async def take_round(self) -> None:
        """Send HN(d) for random d, and learn from the answers."""
        up = self.election.up()
        present = [client for client in self.front.clients if client in up]
        self.rounds.update(present)
        concentration = self.settings.concentration or 1 / len(present)
        drawn = self.client.rng.dirichlet(np.full(len(present), concentration)).tolist()
        shares = {client: share for client, share in zip(present, drawn, strict=True) if share >= NEGLIGIBLE}
        model = await self.front.model(shares)
        for client in shares:
            if client not in self.at_work or self.at_work[client].done():
                self.at_work[client] = self.client.spawn(self.contribute(client, shares, model))
        await self.wait_for_gradients()
        arrived, self.arrived = self.arrived, []
        if arrived:
            await self.front.learn(sum_gradients(arrived))

    async def wait_for_gradients(self) -> None:
        """Wait until all requested gradients have come, or time is up."""
        under_way = [task for task in self.at_work.values() if not task.done()]
        if under_way:
            await asyncio.wait(under_way, timeout=self.limit_s)

    async def contribute(self, client: str, shares: Shares, model: Vector) -> None:
        """Get one client's gradient of a round."""
        answer = await self.training_gradient(client, shares, model)
        if answer is not None:
            self.arrived.append((client, shares, answer.gradient))

    def cancel(self) -> None:
        """Stop all requests for gradients."""
        for task in self.at_work.values():
            task.cancel()

    # --- search ---------------------------------------------------------------------------------------------

    async def search(self, target: str, clients: Sequence[str]) -> Optimum | None:
        """Find the best weights d for `target`, by descent on its validation loss; None if it has left."""
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
            d = projected_step(
                d, [slope[c] for c in clients], settings.search_learning_rate, floor, settings.projection
            )
            if np.abs(d - before).max() <= settings.search_tolerance:
                break
        shares = dict(zip(clients, d.tolist(), strict=True))
        self.watch(target, shares)
        found = await self.validation_gradient(target, await self.front.model(shares))
        if found is None or found.loss is None:
            return None
        numbers = optimal_collaborators(d, clients.index(target), settings.rule, settings.least)
        return Optimum(shares, frozenset([clients[number] for number in numbers]), float(found.loss))

    def watch(self, target: str, shares: Shares) -> None:
        """Record the weights of `target` as metrics, if it is the client of the setting `watched`."""
        if target == f"client-{self.settings.watched}":
            for client, share in shares.items():
                self.client.observe(f"d_{client}", share)

    async def search_all(
        self, targets: Iterable[str], clients: Sequence[str], limit_s: float | None = None
    ) -> tuple[dict[str, Optimum], list[str]]:
        """Search for all targets at once; return the optima, and the targets that exceeded `limit_s`."""
        searches = {target: self.client.spawn(self.search(target, clients)) for target in targets}
        try:
            await asyncio.wait(list(searches.values()), timeout=limit_s)
            late = [target for target, task in searches.items() if not task.done()]
            optima = {target: task.result() for target, task in searches.items() if task.done()}
            return {target: each for target, each in optima.items() if each is not None}, late
        finally:
            for task in searches.values():
                task.cancel()


def sum_gradients(arrived: Sequence[tuple[str, Shares, Vector]]) -> list[tuple[Shares, Vector]]:
    """Return (d, sum_i d_i g_i over the clients that answered) for each d with an answer."""
    rounds: dict[int, tuple[Shares, list[tuple[float, Vector]]]] = {}
    for client, shares, gradient in arrived:
        rounds.setdefault(id(shares), (shares, []))[1].append((shares[client], gradient))
    return [(shares, mix(weighted)) for shares, weighted in rounds.values()]
