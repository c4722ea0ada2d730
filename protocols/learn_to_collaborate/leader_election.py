"""Leader election: one coordinator at a time, replaced when it is gone.

Every client knows a term: its number and the name of its leader. A later term is the right one; of two
leaders in the same term, who both took a third for dead, the one whose name comes last. A leader that hears
of a term above its own steps down. It sends heartbeats to everybody, so that its silence means something, and
that of others does: in a complete graph nobody else need watch anybody.

Of the others, sorted by name and beginning behind the leader that is gone, the first takes its place at once
where its departure is known, and after a patience of silence otherwise; each that follows waits for one
patience more, in case those before it are gone, too.
"""

import asyncio
from collections.abc import Callable, Coroutine

from actors.message import PeerUnavailable, RemoteError
from protocols.framework.client import Client
from protocols.framework.component import Component, weakly
from protocols.learn_to_collaborate.messages import FromLeader, StillThere, Superseded

PATIENCES = 3
"""For how many patiences an answer is waited for, of a peer that is heard from otherwise."""
HEARTBEATS = 4
"""How often in a patience the leader makes sure that everybody is there."""

Term = tuple[int, str]
"""The number of a term, and who leads in it."""


class LeaderElection(Component):
    """One client's part in it: it knows who leads, and leads when it is its turn.

    first: who leads at first. lead(): all that a leader does; cancelled when it steps down. stepped_down():
    called then.
    """

    def __init__(
        self,
        client: Client,
        first: str,
        patience: float,
        lead: Callable[[], Coroutine[None, None, None]],
        stepped_down: Callable[[], None],
    ) -> None:
        super().__init__(client)
        self.patience = patience
        self.term: Term = (0, first)
        self._lead, self._stepped_down = weakly(lead), weakly(stepped_down)
        self._leading: list[asyncio.Task[None]] = []
        self._heard_s = 0.0  # from the leader
        self._heard_of_s: dict[str, float] = {}  # when each peer was heard from last
        self._missed_s = 0.0  # when the leader was taken for gone

    def reset(self) -> None:
        """The client is back: a crash has ended what it did."""
        self._leading = []
        self._heard_s = self._missed_s = self.client.now

    def start(self) -> None:
        """Lead if this client is the first leader, and watch the leader."""
        if self.term == (0, self.client.name) and not self.client.late:
            self.begin_term()
        self.client.spawn(self._watch())

    @property
    def leads(self) -> bool:
        """Whether this client is the leader, and at work."""
        return bool(self._leading)

    def step_down(self) -> None:
        """Somebody else leads."""
        self._stepped_down()
        for task in self._leading:
            task.cancel()
        self._leading = []

    def begin_term(self) -> None:
        """Lead in the next term, and begin from the beginning."""
        self.term = (self.term[0] + 1, self.client.name)
        self._leading = [self.client.spawn(self._lead()), self.client.spawn(self._send_heartbeats())]

    def recognises(self, term: Term) -> bool:
        """Whether whoever has this term leads, now that it is known."""
        if term > self.term:
            if self.term[1] != term[1]:
                self.step_down()
            self.term, self._heard_s = term, self.client.now
        return term == self.term

    def heard(self, message: object | None, sender: str) -> None:
        self._heard_of_s[sender] = self.client.now
        if sender == self.term[1]:
            self._heard_s = self.client.now

    def up(self) -> list[str]:
        """Everybody who is believed to be up, this client among them; sorted."""
        return sorted([self.client.name, *self.client.peers])

    async def _watch(self) -> None:
        """Lead when it is this client's turn."""
        client, patience_s = self.client, self.patience
        while True:
            await client.sleep(patience_s / HEARTBEATS)
            if self.leads:
                continue
            silent_s, leader = client.now - self._heard_s, self.term[1]
            if silent_s > patience_s and leader != client.name:
                client.suspect(leader)
            heirs = [name for name in self.up() if name != leader]
            heirs = [name for name in heirs if name > leader] + [name for name in heirs if name < leader]
            if leader == client.name:  # it comes back, and nobody has missed it
                its_turn = silent_s > patience_s
            else:
                waited_s = client.now - self._missed_s
                its_turn = leader not in client.peers and waited_s >= heirs.index(client.name) * patience_s
            if its_turn:
                self.begin_term()

    def peer_changed(self, peer: str, up: bool) -> None:
        if peer == self.term[1] and not up:
            self._missed_s = self.client.now

    async def _send_heartbeats(self) -> None:
        """Tell everybody now and then that the leader is there, and find out who is not."""
        while True:
            for peer in self.client.peers:
                self.client.spawn(self.asked(peer, StillThere(self.term[0])))
            await self.client.sleep(self.patience / HEARTBEATS)

    async def asked(self, peer: str, message: FromLeader) -> object | None:
        """The answer; None if the peer is gone, or has another leader by now.

        It is gone that has been silent for a patience: a question alone may be lost again and again. One
        that is there, but does not answer for so many times a patience, is too slow, and counts as gone.
        """
        client, asked_s = self.client, self.client.now
        for attempt in range(PATIENCES):
            if not client.is_peer(peer):
                break
            try:
                answer = await client.ask(peer, message, timeout=self.patience, attempts=None)
            except PeerUnavailable:
                silent_s = client.now - max(self._heard_of_s.get(peer, 0.0), asked_s)
                if silent_s >= self.patience or attempt == PATIENCES - 1:
                    client.suspect(peer)
            except RemoteError:
                client.suspect(peer)
            else:
                if not isinstance(answer, Superseded):
                    return answer
                self.recognises((answer.term, answer.broker))
                return None
        return None
