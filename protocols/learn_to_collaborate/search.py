"""Specific Pareto optimization (SPO): the broker learns the Pareto front, and searches it for each client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from protocols.framework.compute import Compute
from protocols.framework.context import ClientContext
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.vectors import Vector, mix
from protocols.learn_to_collaborate.front import ParetoFront
from protocols.learn_to_collaborate.messages import (
    FromBroker,
    GradientFound,
    GradientWanted,
    HeadStepWanted,
)
from protocols.learn_to_collaborate.office import Office
from protocols.learn_to_collaborate.weighing import moved, necessary

NEGLIGIBLE = 1e-3
"""A client of less weight in a round is not asked: its gradient would hardly count."""
Shares = Mapping[str, float]
"""Weights d by client; whoever is not named has none."""


@dataclass(frozen=True)
class Optimum:
    """The weights that suit a client best among certain clients, who of these are necessary, and its loss."""

    shares: Shares
    collaborators: frozenset[str]
    loss: float


class Searcher(Office):
    """A client that can learn the front, and answers whoever does."""

    front: ParetoFront

    def __init__(
        self,
        name: str,
        context: ClientContext,
        compute: Compute,
        settings: ProtocolSettings,
    ) -> None:
        super().__init__(name, context, compute, settings)
        self.arrived: list[tuple[str, Shares, Vector]] = []  # gradients that have yet to count
        self.at_work: dict[str, asyncio.Task[None]] = {}  # who computes one, or did last
        self.head: Vector | None = None  # with which it sees the front's models; None where they have theirs
        if self.settings.heads == "own":
            self.head = self.part(compute.initial(), "head")

    def common(self, model: Vector) -> Vector:
        """What of a model, or of a gradient by one, is the front's: all of it, or the backbone."""
        return model if self.head is None else self.part(model, "backbone")

    def whole(self, common: Vector) -> Vector:
        """The model that this client makes of what is the front's."""
        if self.head is None:
            return common
        return self.with_part(self.with_part(self.compute.initial(), "backbone", common), "head", self.head)

    # --- gradients ------------------------------------------------------------------------------------------

    def work_for(self, message: FromBroker) -> object:
        if isinstance(message, GradientWanted):
            return self.spawn(self.gradient_for(message))  # it holds up no other message
        return super().work_for(message)

    async def gradient_for(self, wanted: GradientWanted) -> GradientFound:
        """This client's own gradient, and its validation loss."""
        at = self.whole(wanted.params)
        if wanted.on == "batch":
            gradient = await self.gradient(at)
            if self.head is not None and isinstance(wanted, HeadStepWanted):
                rate = self.settings.head_learning_rate * wanted.share
                self.head = self.head - rate * self.part(gradient, "head")
            return GradientFound(self.common(gradient))
        # Both at once, so that no training comes between them on the device.
        gradient, loss = await asyncio.gather(
            self.gradient(at, on="validation"), self.loss(at, on="validation")
        )
        return GradientFound(self.common(gradient), loss)

    async def training_gradient(self, client: str, shares: Shares, model: Vector) -> GradientFound | None:
        """A client's gradient in a round of training, in which its own head takes a step; None if gone."""
        term = self.mandate[0]
        if self.head is None:
            return await self.gradient_of(client, GradientWanted(term, model, "batch"))
        return await self.gradient_of(client, HeadStepWanted(term, model, "batch", shares[client]))

    async def validation_gradient(self, client: str, model: Vector) -> GradientFound | None:
        """A client's gradient and loss on what it holds back; None if it is gone."""
        return await self.gradient_of(client, GradientWanted(self.mandate[0], model, "validation"))

    async def gradient_of(self, client: str, wanted: GradientWanted) -> GradientFound | None:
        """A client's answer, perhaps this one's; None if it is gone."""
        if client == self.name:
            return await self.gradient_for(wanted)
        answer = await self.asked(client, wanted)
        return answer if isinstance(answer, GradientFound) else None

    # --- learning the front ---------------------------------------------------------------------------------

    async def learn_front(self, rounds: int) -> None:
        """Train the hypernetwork with everybody who is up; who comes meanwhile takes part."""
        for _ in range(rounds):
            for client in self.up():
                if client not in self.front.clients:
                    self.front.admit(client)
            await self.take_round()

    async def take_round(self) -> None:
        """Send HN(d) for random d, and learn from what comes back."""
        up = self.up()
        there = [client for client in self.front.clients if client in up]
        concentration = self.settings.concentration or 1 / len(there)
        drawn = self.rng.dirichlet(np.full(len(there), concentration)).tolist()
        shares = {client: share for client, share in zip(there, drawn, strict=True) if share >= NEGLIGIBLE}
        model = await self.front.model(shares)
        for client in shares:
            if client not in self.at_work or self.at_work[client].done():
                self.at_work[client] = self.spawn(self.contribute(client, shares, model))
        await self.wait_for_gradients()
        arrived, self.arrived = self.arrived, []
        if arrived:
            await self.front.learn(summed(arrived))

    async def wait_for_gradients(self) -> None:
        """Until all that are under way have come, or time is up."""
        limit_s = None if self.settings.mode == "synchronous" else self.settings.time_limit
        under_way = [task for task in self.at_work.values() if not task.done()]
        if under_way:
            await asyncio.wait(under_way, timeout=limit_s)

    async def contribute(self, client: str, shares: Shares, model: Vector) -> None:
        """One client's gradient of a round."""
        answer = await self.training_gradient(client, shares, model)
        if answer is not None:
            self.arrived.append((client, shares, answer.gradient))

    def resign(self) -> None:
        for task in self.at_work.values():
            task.cancel()
        super().resign()

    # --- searching it ---------------------------------------------------------------------------------------

    async def search(self, target: str, clients: Sequence[str]) -> Optimum | None:
        """What suits one of `clients` best: d by descent on its validation loss. None if it is gone."""
        settings, count = self.settings, len(clients)
        d = np.full(count, 1 / count)
        for _ in range(settings.search_steps if count > 1 else 0):
            shares = dict(zip(clients, d.tolist(), strict=True))
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
        found = await self.validation_gradient(target, await self.front.model(shares))
        if found is None or found.loss is None:
            return None
        numbers = necessary(d, clients.index(target), settings.rule, settings.least)
        return Optimum(shares, frozenset([clients[number] for number in numbers]), float(found.loss))

    async def searched(
        self, targets: Iterable[str], clients: Sequence[str], limit_s: float | None = None
    ) -> tuple[dict[str, Optimum], list[str]]:
        """The optima of those that are not gone, all searched for at once, and who needs longer than that."""
        searches = {target: self.spawn(self.search(target, clients)) for target in targets}
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
