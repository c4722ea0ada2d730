"""EL-Oracle: epidemic learning on a random regular graph that is drawn anew in each round.

De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, "Epidemic Learning: Boosting Decentralized
Learning with Randomized Communication" (NeurIPS 2023), algorithm 1 with the sampling of EL-Oracle:

    y_i <- x_i - eta g_i(x_i)      `local_steps` times
    x_i <- (y_i + sum of y_j)/(s+1)    over the s neighbours j of i in this round's graph

The oracle is a seed that all clients know: each draws the same graph by itself, without a message. Nobody
waits for others than the neighbours of a round, so that clients may be several rounds apart.

Differences to the paper: clients come and go. The graph is one of those whom a client believes to be up, and
clients that believe otherwise draw other graphs until they have heard the same; who is told a model by one
that is no neighbour of its own answers with its own. With an odd product of s and their number there is no
such graph, and s is one more. A neighbour that stays silent for `patience` is left out, and its weight given
to the client itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import networkx as nx

from actors.delivery.reminders import Reminders
from actors.delivery.round_messages import mark_of
from actors.delivery.round_trips import INITIAL_S, PROMPT
from actors.message import Envelope, RoundMark
from actors.settings.base import default
from actors.settings.quantities import Count, PositiveDuration
from protocols.framework.client import Client
from protocols.framework.mathematics import shared_uniform
from protocols.framework.requirements import ProtocolSettings, Requirement, common_start
from protocols.framework.rounds import RoundModel, Rounds
from protocols.shared.averaging import neighbour_mean


class ELOracleSettings(ProtocolSettings):
    """Train, and average with some clients, drawn anew in each round."""

    changing = ("local_steps",)

    degree: Count = 4
    """Neighbours of each client in a round (s), or all others if they are fewer."""
    local_steps: Count = 1
    """Training steps in a round."""
    patience: PositiveDuration = default("1 min")
    """How long a silent neighbour is waited for at most, and asked again whenever it is overdue."""


@lru_cache(maxsize=64)  # all clients of a round ask for the same
def regular_graph(names: tuple[str, ...], degree: int, seed: int, number: int) -> Mapping[str, Sequence[str]]:
    """The neighbours of each of `names` in round `number`, the same whoever asks."""
    count = len(names)
    degree = min(degree, count - 1)
    degree += degree * count % 2  # one less may be none
    drawn_by = int(shared_uniform(seed, "regular graph", number) * 2**53)
    # Its algorithm pairs free ends at random, which hardly ever succeeds if most pairs are linked.
    if 2 * degree > count:
        graph = nx.complement(nx.random_regular_graph(count - 1 - degree, count, drawn_by))
    else:
        graph = nx.random_regular_graph(degree, count, drawn_by)
    return {names[i]: [names[j] for j in sorted(graph[i])] for i in graph}


class _Persistent(Reminders):
    """Asks on while a peer is rounds behind, as what it tells in the end may be lost; a stranger, too.

    Whoever is waited for may wait itself, and so on. Were the time between requests ever longer, each of such
    a chain would add as much as all before it have waited. So it doubles up to a second only.
    """

    def _doubles(self, peer: str, requests: int) -> bool:
        trips = self._round_trips
        if trips.knows(Reminders):
            return requests >= 4 * PROMPT and trips.limit_s(peer, Reminders) < INITIAL_S
        # How long an answer takes is unknown. Where models come within a second, it does so, too.
        return trips.limit_s(peer, self._kind, self._initial_s) > INITIAL_S


class ChangingRounds(Rounds):
    """Rounds with other partners in each, so that these may be several rounds ahead or behind.

    Who is behind has yet to be waited for by many, and what it lost may be of a round long past for others.
    """

    client: "ELOracle"
    earlier = 4
    reminders = _Persistent

    def arrived(self, envelope: Envelope) -> None:
        # Of all rounds, here: by what the sender was delayed more than this client, it may be late.
        mark = mark_of(envelope)
        more_s = max(0.0, mark.delayed_s - self.delayed_s)
        super().arrived(replace(envelope, request=replace(mark, delayed_s=more_s)))

    def _note_delay(self, kind: type, names: list[str], found: Iterable[Envelope], waited_s: float) -> None:
        self._delayed_in = self.number  # so that it adds to that of earlier rounds
        super()._note_delay(kind, names, found, waited_s)

    def _is_wanted(self, mark: RoundMark) -> bool:
        """Also a partner's next message tells nothing of the present round, however far it is ahead."""
        in_its_turn = mark.awaits and mark.repeat is None
        return mark.number == self.number or (mark.number > self.number and not in_its_turn)

    def heard_of_round(self, peer: str, kind: type, mark: RoundMark) -> None:
        is_to_come = mark.number >= self.number and not self.client.finished
        if is_to_come and peer in self.client.neighbours(mark.number):
            return  # it is told when that round is announced here
        super().heard_of_round(peer, kind, mark)


class ELOracle(Client):
    """A client that averages with the neighbours of each round."""

    Settings = ELOracleSettings
    settings: ELOracleSettings
    collected = (RoundModel,)
    two_way = True

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        everybody = "draws graphs of all clients, each of which has to know all others; must"
        return (
            common_start("shared"),
            Requirement(
                "clients.topology.kind", lambda kind: kind == "complete", f'{everybody} be "complete"'
            ),
            Requirement(
                "network.membership.kind", lambda kind: kind != "bootstrap", f'{everybody} not be "bootstrap"'
            ),
        )

    def begin(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = ChangingRounds(self, self.settings.patience, neighbours=self.neighbours)

    def neighbours(self, number: int | None = None) -> Collection[str]:
        """This client's neighbours in round `number`, or else in the present one."""
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
