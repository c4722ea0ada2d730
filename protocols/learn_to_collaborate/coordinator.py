"""Coordinator: forms coalitions from the clients' optima, and updates them after joins and departures."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from protocols.framework.client import Client
from protocols.framework.component import Component, weak_callback
from protocols.learn_to_collaborate.equilibrium import (
    Benefits,
    affected_by_arrival,
    affected_by_departure,
    equilibrium_at_once,
    stable_coalitions,
    without_coalitions_of,
)
from protocols.learn_to_collaborate.leader_election import LeaderElection
from protocols.learn_to_collaborate.local_gradients import LocalGradients
from protocols.learn_to_collaborate.messages import Members
from protocols.learn_to_collaborate.pareto_search import Optimum, ParetoSearch, Shares
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings

Stage = list[tuple[str, ...]]
"""Coalitions that are formed together, each with its members; later stages use the remaining clients."""


@dataclass(frozen=True)
class CoalitionAssignment:
    """Coalition found for a client, and its benefits and losses, as in `Members`.

    `shares`: the client's best weights within its coalition; `full`: the client's best weights among all
    clients, None if unknown.
    """

    members: tuple[str, ...]
    benefits: tuple[tuple[str, float], ...]
    losses: tuple[tuple[str, float], ...]
    shares: Shares
    full: Shares | None


class Coordinator(Component):
    """Coordinator, active while its client leads. join(settled): called with the client's own coalition."""

    def __init__(
        self,
        client: Client,
        settings: LearnToCollaborateSettings,
        gradients: LocalGradients,
        join: Callable[[Members], None],
    ) -> None:
        super().__init__(client)
        self.settings = settings
        self.election = LeaderElection(
            client, settings.broker, settings.patience, self.lead, self.stepped_down
        )
        self.search = ParetoSearch(client, settings, self.election, gradients)
        self.version = 0
        self.changes: asyncio.Queue[str] = asyncio.Queue()  # clients that have joined or left
        self.stages: list[Stage] = []
        self.assignments: dict[str, CoalitionAssignment] = {}
        self.confirmed: dict[str, CoalitionAssignment] = {}
        self._join = weak_callback(join)

    def stepped_down(self) -> None:
        """Stop searching: another client leads."""
        self.search.cancel()

    async def lead(self) -> None:
        """Learn the front, form all coalitions, and update the affected ones after joins and departures."""
        self.stages, self.assignments, self.confirmed = [], {}, {}
        self.search.start()
        await self.search.learn_front(self.settings.rounds)
        up = [client for client in self.election.up() if client in self.search.front.clients]
        ready = [client for client in up if not self.search.missing_rounds(client)] or up
        left_out = await self.form_coalitions(ready, self.settings.search_limit)
        for client in [*[client for client in up if client not in ready], *left_out]:
            self.changes.put_nowait(client)
        while True:
            client = await self.changes.get()
            is_up = client in self.election.up()
            is_settled = any(client in coalition for stage in self.stages for coalition in stage)
            if is_up and not is_settled:
                await self.handle_arrival(client)
            elif is_settled and not is_up:
                await self.handle_departure(client)
            elif is_settled:  # it was cut off, and may have missed messages
                await self.tell_all()

    def peer_changed(self, peer: str, up: bool) -> None:
        if self.election.leads:
            self.changes.put_nowait(peer)

    async def form_coalitions(
        self, pool: Sequence[str], limit_s: float | None = None, unaffected: Sequence[str] = ()
    ) -> list[str]:
        """Form coalitions among the clients of `pool`, in stages after the current ones; notify the clients.

        unaffected: the members of coalitions of the last stage that stay unchanged. The first search is among
        these members and the pool, as if all coalitions were formed again. Returns the clients of the pool
        that are left out, because their searches take longer than `limit_s`.
        """
        remaining, left_out = sorted(pool), list[str]()
        if not remaining:
            return left_out
        among = sorted([*remaining, *unaffected])
        optima, late = await self.search.search_all(remaining, among, limit_s)
        if late:  # a client that is left out cannot be a collaborator yet
            left_out, remaining = late, sorted(optima)
            among = sorted([*remaining, *unaffected])
            optima = (await self.search.search_all(remaining, among))[0] if remaining else {}
        full = {} if self.stages or left_out else optima  # only if the search was among all clients
        while optima:
            remaining = sorted(optima)
            stage = self.coalitions_of(optima, unaffected)
            await self.assign(stage, optima, among, full)
            if unaffected:
                self.stages[-1] = sorted([*self.stages[-1], *stage])
            else:
                self.stages.append(stage)
            settled = frozenset([client for coalition in stage for client in coalition])
            among = remaining = [client for client in remaining if client not in settled]
            unaffected = ()
            optima = (await self.search.search_all(remaining, remaining))[0] if remaining else {}
        await self.tell_all()
        return left_out

    def coalitions_of(self, optima: Mapping[str, Optimum], unaffected: Sequence[str]) -> Stage:
        """Return the next coalitions of the clients with these optima.

        unaffected: clients that also take part in the search for stable coalitions; coalitions of these
        clients only are not returned. Not used with `equilibrium = "at-once"`.
        """
        known = {client: optimum.collaborators for client, optimum in optima.items()}
        if self.settings.equilibrium == "at-once":
            return equilibrium_at_once(Benefits(known), known)
        for client in unaffected:
            if client not in self.assignments:  # it departed before it had one; its departure follows
                continue
            known[client] = frozenset([client, *[helper for helper, _ in self.assignments[client].benefits]])
        found = stable_coalitions(Benefits(known), known)
        return [coalition for coalition in found if coalition[0] in optima]

    async def assign(
        self, stage: Stage, optima: Mapping[str, Optimum], among: Sequence[str], full: Mapping[str, Optimum]
    ) -> None:
        """Record each member's assignment: coalition, best weights within the coalition, and losses.

        among: the clients among which the optima were found. full: the optima by client if the search was
        among all clients; otherwise empty.
        """

        async def assign_member(client: str, coalition: tuple[str, ...]) -> None:
            optimum = optima[client]
            is_found = len(coalition) == len(among)
            inside = optimum if is_found else await self.search.search(client, coalition)
            alone = await self.search.search(client, [client])
            if inside is None or alone is None:
                return  # the client is gone: `lead` handles its departure
            benefits = [(c, optimum.shares[c]) for c in sorted(optimum.collaborators) if c != client]
            losses = [("alone", alone.loss), ("equilibrium", inside.loss)]
            losses += [("full", full[client].loss)] if client in full else []
            shares = full[client].shares if client in full else None
            self.assignments[client] = CoalitionAssignment(
                coalition, tuple(benefits), tuple(losses), inside.shares, shares
            )

        await asyncio.gather(
            *[assign_member(client, coalition) for coalition in stage for client in coalition]
        )

    async def handle_departure(self, client: str) -> None:
        """Form again the coalitions that a departure affects."""
        pool = affected_by_departure(self.stages, client)
        unaffected = self.unaffected([client])
        self.stages = without_coalitions_of(self.stages, [client, *pool])
        self.confirmed.pop(client, None)
        await self.form_coalitions(
            [other for other in pool if other in self.election.up()], unaffected=unaffected
        )

    def unaffected(self, affected: Sequence[str]) -> list[str]:
        """Find the first stage with an `affected` client, and return the members of its other coalitions.

        The list is empty if no stage has such a client.
        """
        for stage in self.stages:
            staying = [coalition for coalition in stage if not set(affected) & set(coalition)]
            if len(staying) < len(stage):
                return [client for coalition in staying for client in coalition]
        return []

    async def handle_arrival(self, client: str) -> None:
        """Find the clients that would choose a newcomer as collaborator, and form their coalitions again."""
        await self.search.learn_front(self.search.missing_rounds(client))
        remaining = sorted([client, *[other for stage in self.stages for one in stage for other in one]])
        pool: list[str] = []
        for stage in self.stages:
            members = [other for coalition in stage for other in coalition]
            optima, _ = await self.search.search_all(members, remaining)
            pool = affected_by_arrival(
                self.stages, [c for c, each in optima.items() if client in each.collaborators]
            )
            if pool:
                break
            remaining = [other for other in remaining if other not in members]
        unaffected = self.unaffected(pool)
        self.stages = without_coalitions_of(self.stages, pool)
        await self.form_coalitions(
            [other for other in [client, *pool] if other in self.election.up()], unaffected=unaffected
        )

    async def tell_all(self) -> None:
        """Send each client its assignment, unless the client already has it."""
        self.version += 1
        clients = [client for stage in self.stages for coalition in stage for client in coalition]
        news = [c for c in clients if c in self.assignments and self.confirmed.get(c) != self.assignments[c]]
        await asyncio.gather(*[self.tell_assignment(client, self.assignments[client]) for client in news])

    async def tell_assignment(self, client: str, assignment: CoalitionAssignment) -> None:
        """Send a client its assignment repeatedly until it confirms, is gone, or has another leader."""
        pareto = await self.search.front.model(assignment.shares)
        full = None if assignment.full is None else await self.search.front.model(assignment.full)
        settled = Members(
            self.election.term[0],
            self.version,
            assignment.members,
            assignment.benefits,
            assignment.losses,
            pareto,
            full,
        )
        if client == self.client.name:
            self._join(settled)
        elif await self.election.ask(client, settled) is None:
            return
        self.confirmed[client] = assignment
