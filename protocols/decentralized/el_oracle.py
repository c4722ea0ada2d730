"""EL-Oracle: epidemic learning on a new random regular graph in each round.

De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, "Epidemic Learning: Boosting Decentralized
Learning with Randomized Communication" (NeurIPS 2023), algorithm 1 with the sampling of EL-Oracle:

    y_i <- x_i - eta g_i(x_i)      `local_steps` times
    x_i <- (y_i + sum of y_j)/(s+1)    over the s neighbors j of i in this round's graph

The oracle is a seed that all clients know: each draws the same graph by itself, without a message. A client
waits only for the neighbors of a round, so that clients may be several rounds apart.

Differences from the paper: clients come and go. The graph contains the clients that a client believes to be
up, and clients with different beliefs draw different graphs until they have the same news; a client that gets
a model from a peer that is not its neighbor answers with its own model. If the product of s and the number of
clients is odd, no regular graph exists, and s is increased by one. A neighbor that stays silent for
`patience` is left out, and the client itself gets its weight.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import networkx as nx

from actors.delivery.reminders import Reminders
from actors.delivery.round_messages import round_mark
from actors.delivery.round_trips import INITIAL_S, PROMPT
from actors.message import Envelope, RoundMark
from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from protocols.framework.client import Client
from protocols.framework.mathematics import shared_uniform
from protocols.framework.requirements import ProtocolSettings, Requirement, common_start_requirement
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.shared.averaging import neighbour_mean


class ELOracleSettings(ProtocolSettings):
    """Train, and average with some clients, which are drawn again in each round."""

    changing = ("local_steps",)

    degree: Count = 4
    """Number of neighbors of each client in a round (s), or all other clients if there are fewer."""
    local_steps: Count = 1
    """Training steps in a round."""
    patience: PositiveDuration = default("1 min")
    """Maximum wait for a silent neighbor, which gets repeated requests meanwhile."""


@lru_cache(maxsize=64)  # all clients of a round need the same graph
def regular_graph(names: tuple[str, ...], degree: int, seed: int, number: int) -> Mapping[str, Sequence[str]]:
    """Return the neighbors of each of `names` in round `number`; all clients get the same result."""
    count = len(names)
    degree = min(degree, count - 1)
    degree += degree * count % 2  # one fewer could be none
    drawn_by = int(shared_uniform(seed, "regular graph", number) * 2**53)
    # networkx pairs free ends at random, which hardly ever succeeds if most pairs are linked.
    if 2 * degree > count:
        graph = nx.complement(nx.random_regular_graph(count - 1 - degree, count, drawn_by))
    else:
        graph = nx.random_regular_graph(degree, count, drawn_by)
    return {names[i]: [names[j] for j in sorted(graph[i])] for i in graph}


class _PersistentReminders(Reminders):
    """Reminders that continue while a peer is rounds behind, because its late message may be lost.

    A peer may itself wait for others, and so on. If the time between requests grew without limit, each link
    of this chain would add as much as all earlier ones have waited. The time therefore doubles only up to a
    second.
    """

    def _doubles(self, peer: str, requests: int) -> bool:
        trips = self._round_trips
        if trips.knows(Reminders):
            return requests >= 4 * PROMPT and trips.limit_s(peer, Reminders) < INITIAL_S
        # The time of an answer is unknown. If models arrive within a second, requests do too.
        return trips.limit_s(peer, self._kind, self._initial_s) > INITIAL_S


class ChangingRounds(Rounds):
    """Rounds with different partners in each round; partners may be several rounds ahead or behind.

    Many peers may still wait for a client that is behind, and the lost messages that they wait for may belong
    to rounds long past.
    """

    client: "ELOracle"
    earlier = 4
    reminders = _PersistentReminders

    def arrived(self, envelope: Envelope) -> None:
        # Summed over all rounds here: a sender with more delay than this client may be late by that much.
        mark = round_mark(envelope)
        more_s = max(0.0, mark.delayed_s - self.delayed_s)
        super().arrived(replace(envelope, request=replace(mark, delayed_s=more_s)))

    def _record_delay(self, kind: type, names: list[str], found: Iterable[Envelope], waited_s: float) -> None:
        self._delayed_in = self.number  # so that the delay adds to that of earlier rounds
        super()._record_delay(kind, names, found, waited_s)

    def _is_wanted(self, mark: RoundMark) -> bool:
        """Return whether a message belongs to this round, or shows that its sender has gone ahead without it.

        A later round's first transmission, by a sender that waits for this client, is not wanted yet: this
        client uses it when it reaches that round.
        """
        in_its_turn = mark.awaits and mark.repeat is None
        return mark.number == self.number or (mark.number > self.number and not in_its_turn)

    def round_message_received(self, peer: str, kind: type, mark: RoundMark) -> None:
        is_to_come = mark.number >= self.number and not self.client.finished
        if is_to_come and peer in self.client.neighbours(mark.number):
            return  # it gets a message when this client announces that round
        super().round_message_received(peer, kind, mark)


class ELOracle(Client):
    """Client that averages with the neighbors of each round."""

    Settings = ELOracleSettings
    search_space = SearchSpace(
        "the paper's text was not available; degrees around coterie's default",
        {
            "degree": OneOf((1, 2, 4, 6)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: ELOracleSettings
    collected = (RoundModel,)
    two_way = True

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        all_known = "draws graphs of all clients, so each client must know all others; must"
        return (
            common_start_requirement("shared"),
            Requirement(
                "clients.topology.kind", lambda kind: kind == "complete", f'{all_known} be "complete"'
            ),
            Requirement(
                "network.membership.kind", lambda kind: kind != "bootstrap", f'{all_known} not be "bootstrap"'
            ),
        )

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = ChangingRounds(self, self.settings.patience, neighbours=self.neighbours)

    def neighbours(self, number: int | None = None) -> Collection[str]:
        """Return this client's neighbors in round `number`, by default the current round."""
        number = self.rounds.number if number is None else number
        names = tuple(sorted([*self.peers, self.name]))
        graph = regular_graph(names, self.settings.degree, self.context.shared_seed, number)
        return graph[self.name]

    async def step(self) -> None:
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.rounds.announce()
        models = await self.rounds.gather()
        share = 1 / (1 + self.rounds.degree)
        self.params = neighbour_mean(self.params, dict.fromkeys(models, share), models)
