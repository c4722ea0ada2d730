"""The coordinator: from the clients' optima to coalitions, and again for those whom a change affects."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component, weakly
from protocols.learn_to_collaborate.equilibrium import (
    Benefits,
    equilibrium_at_once,
    kept,
    left_by,
    reached_by,
    stable_coalitions,
)
from protocols.learn_to_collaborate.leader_election import LeaderElection
from protocols.learn_to_collaborate.local_gradients import LocalGradients
from protocols.learn_to_collaborate.messages import Settled
from protocols.learn_to_collaborate.pareto_search import Optimum, ParetoSearch, Shares
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings

Stage = list[tuple[str, ...]]


@dataclass(frozen=True)
class Place:
    """What the coordinator has found for a client, as in `Settled`.

    `shares` suit it best in its coalition, `full` among all; None where that is not known.
    """

    members: tuple[str, ...]
    benefits: tuple[tuple[str, float], ...]
    losses: tuple[tuple[str, float], ...]
    shares: Shares
    full: Shares | None


class Coordinator(Component):
    """Settles who joins whom, while its client leads. join(settled): belong to a coalition oneself."""

    def __init__(
        self,
        client: Client,
        settings: LearnToCollaborateSettings,
        gradients: LocalGradients,
        join: Callable[[Settled], None],
    ) -> None:
        super().__init__(client)
        self.settings = settings
        self.election = LeaderElection(
            client, settings.broker, settings.patience, self.lead, self.stepped_down
        )
        self.search = ParetoSearch(client, settings, self.election, gradients)
        self.version = 0
        self.changes: asyncio.Queue[str] = asyncio.Queue()  # who has come or gone
        self.stages: list[Stage] = []
        self.places: dict[str, Place] = {}
        self.told: dict[str, Place] = {}
        self._join = weakly(join)

    def stepped_down(self) -> None:
        """Somebody else leads."""
        self.search.cancel()

    async def lead(self) -> None:
        """Learn the front, settle everybody, and then whom an arrival or a departure affects."""
        self.stages, self.places, self.told = [], {}, {}
        self.search.begin()
        await self.search.learn_front(self.settings.rounds)
        everybody = [client for client in self.election.up() if client in self.search.front.clients]
        for late in await self.settle(everybody, self.settings.search_limit):
            self.changes.put_nowait(late)
        while True:
            client = await self.changes.get()
            is_up = client in self.election.up()
            is_settled = any(client in coalition for stage in self.stages for coalition in stage)
            if is_up and not is_settled:
                await self.let_in(client)
            elif is_settled and not is_up:
                await self.let_go(client)
            elif is_settled:  # it was cut off, and may have missed what it was told
                await self.tell_all()

    def peer_changed(self, peer: str, up: bool) -> None:
        if self.election.leads:
            self.changes.put_nowait(peer)

    async def settle(
        self, pool: Sequence[str], limit_s: float | None = None, beside: Sequence[str] = ()
    ) -> list[str]:
        """Form coalitions among these clients, behind those that there are, and tell them.

        beside: the members of coalitions that stay, of the last stage that there is: what these clients are
        searched among at first, too, as if all were found anew. Returns who of the pool needs longer than
        `limit_s` for its search and is left out.
        """
        rest, left_out = sorted(pool), list[str]()
        if not rest:
            return left_out
        among = sorted([*rest, *beside])
        optima, late = await self.search.searched(rest, among, limit_s)
        if late:  # who is left out can be nobody's collaborator yet
            left_out, rest = late, sorted(optima)
            among = sorted([*rest, *beside])
            optima = (await self.search.searched(rest, among))[0] if rest else {}
        full = {} if self.stages or left_out else optima  # else these are not all clients
        while optima:
            rest = sorted(optima)
            stage = self.coalitions_of(optima, beside)
            await self.conclude(stage, optima, among, full)
            if beside:
                self.stages[-1] = sorted([*self.stages[-1], *stage])
            else:
                self.stages.append(stage)
            settled = frozenset([client for coalition in stage for client in coalition])
            among = rest = [client for client in rest if client not in settled]
            beside = ()
            optima = (await self.search.searched(rest, rest))[0] if rest else {}
        await self.tell_all()
        return left_out

    def coalitions_of(self, optima: Mapping[str, Optimum], beside: Sequence[str]) -> Stage:
        """The next coalitions among those whose optima these are, with what is known of those beside them."""
        known = {client: optimum.collaborators for client, optimum in optima.items()}
        if self.settings.equilibrium == "at-once":
            return equilibrium_at_once(Benefits(known), known)
        for client in beside:
            known[client] = frozenset([client, *[helper for helper, _ in self.places[client].benefits]])
        found = stable_coalitions(Benefits(known), known)
        return [coalition for coalition in found if coalition[0] in optima]

    async def conclude(
        self, stage: Stage, optima: Mapping[str, Optimum], among: Sequence[str], full: Mapping[str, Optimum]
    ) -> None:
        """Find what suits the members of these coalitions best in them, and what each would have alone.

        among: the clients that the optima were found among.
        """

        async def place(client: str, coalition: tuple[str, ...]) -> None:
            optimum = optima[client]
            is_found = len(coalition) == len(among)
            inside = optimum if is_found else await self.search.search(client, coalition)
            alone = await self.search.search(client, [client])
            if inside is None or alone is None:
                return  # it is gone, which will be dealt with
            benefits = [(c, optimum.shares[c]) for c in sorted(optimum.collaborators) if c != client]
            losses = [("alone", alone.loss), ("equilibrium", inside.loss)]
            losses += [("full", full[client].loss)] if client in full else []
            shares = full[client].shares if client in full else None
            self.places[client] = Place(coalition, tuple(benefits), tuple(losses), inside.shares, shares)

        await asyncio.gather(*[place(client, coalition) for coalition in stage for client in coalition])

    async def let_go(self, client: str) -> None:
        """After a departure: settle those whom it affects anew."""
        pool = left_by(self.stages, client)
        beside = self.beside([client])
        self.stages = kept(self.stages, [client, *pool])
        self.told.pop(client, None)
        await self.settle([other for other in pool if other in self.election.up()], beside=beside)

    def beside(self, affected: Sequence[str]) -> list[str]:
        """Whose coalitions stay of the first stage in which there are some of these clients."""
        for stage in self.stages:
            staying = [coalition for coalition in stage if not set(affected) & set(coalition)]
            if len(staying) < len(stage):
                return [client for coalition in staying for client in coalition]
        return []

    async def let_in(self, client: str) -> None:
        """After an arrival: find out who would have the newcomer for a collaborator, and settle those."""
        if client not in self.search.front.clients:
            await self.search.learn_front(self.settings.newcomer_rounds)
        rest = sorted([client, *[other for stage in self.stages for one in stage for other in one]])
        pool: list[str] = []
        for stage in self.stages:
            members = [other for coalition in stage for other in coalition]
            optima, _ = await self.search.searched(members, rest)
            pool = reached_by(self.stages, [c for c, each in optima.items() if client in each.collaborators])
            if pool:
                break
            rest = [other for other in rest if other not in members]
        beside = self.beside(pool)
        self.stages = kept(self.stages, pool)
        await self.settle([other for other in [client, *pool] if other in self.election.up()], beside=beside)

    async def tell_all(self) -> None:
        """Tell each client where it belongs, unless it knows."""
        self.version += 1
        clients = [client for stage in self.stages for coalition in stage for client in coalition]
        news = [c for c in clients if c in self.places and self.told.get(c) != self.places[c]]
        await asyncio.gather(*[self.tell_place(client, self.places[client]) for client in news])

    async def tell_place(self, client: str, place: Place) -> None:
        """Until it has heard it."""
        pareto = await self.search.front.model(place.shares)
        full = None if place.full is None else await self.search.front.model(place.full)
        settled = Settled(
            self.election.term[0], self.version, place.members, place.benefits, place.losses, pareto, full
        )
        if client == self.client.name:
            self._join(settled)
        elif await self.election.asked(client, settled) is None:
            return
        self.told[client] = place
