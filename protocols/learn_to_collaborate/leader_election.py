"""Leader election: one coordinator at a time, which is replaced when it is gone.

A term has a number and a leader. The highest number wins; if two clients both assumed that the leader had
crashed, and lead with the same number, the client whose name sorts last wins. A leader that learns of a later
term steps down. A leader sends heartbeats to all clients and gets answers: it thus notices which clients are
gone, and the clients notice when the leader is gone. The clients need not watch each other.

The successors of a leader that is gone are the others, sorted by name, starting after its name. The first
takes over at once if the departure is known, otherwise after one patience of silence. Each later one waits
for one patience more, in case those before it are also gone.
"""

import asyncio
from collections.abc import Callable, Coroutine

from actors.message import PeerUnavailable, RemoteError
from protocols.framework.client import Client
from protocols.framework.component import Component, weak_callback
from protocols.learn_to_collaborate.messages import FromLeader, HigherTerm, LeaderPing
from protocols.shared.silence import Silence

PATIENCES = 3
"""Maximum time to an answer, in patiences, from a peer whose other messages arrive."""
HEARTBEATS = 4
"""Number of heartbeats that the leader sends to each client in one patience."""

Term = tuple[int, str]
"""Number of a term, and its leader."""


class LeaderElection(Component):
    """Leader election in one client: tracks the leader, and makes the client lead when it is next in line.

    first: the first leader. lead(): the leader's work, which is canceled when this client steps down.
    stepped_down(): called after this client has stepped down.
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
        self._lead, self._stepped_down = weak_callback(lead), weak_callback(stepped_down)
        self._leading: list[asyncio.Task[None]] = []
        self._received_s = 0.0  # time of the leader's last message
        self._silence = Silence(client, patience)
        self._missed_s = 0.0  # time at which the leader was declared gone

    def reset(self) -> None:
        """Restart the clocks for a new session; the tasks of an earlier session have ended with it."""
        self._leading = []
        self._received_s = self._missed_s = self.client.now

    def start(self) -> None:
        """Lead if this client is the first leader and was up from the start; watch the leader."""
        if self.term == (0, self.client.name) and not self.client.late:
            self.start_term()
        self.client.spawn(self._watch())

    @property
    def leads(self) -> bool:
        """True if this client is the active leader."""
        return bool(self._leading)

    def step_down(self) -> None:
        """Stop leading, because another client leads."""
        self._stepped_down()
        for task in self._leading:
            task.cancel()
        self._leading = []

    def start_term(self) -> None:
        """Lead in the next term, from the beginning."""
        self.term = (self.term[0] + 1, self.client.name)
        self._leading = [self.client.spawn(self._lead()), self.client.spawn(self._send_heartbeats())]

    def recognises(self, term: Term) -> bool:
        """Adopt a later term; return whether the leader of `term` is the one to follow."""
        if term > self.term:
            if self.term[1] != term[1]:
                self.step_down()
            self.term, self._received_s = term, self.client.now
        return term == self.term

    def message_received(self, message: object | None, sender: str) -> None:
        if sender == self.term[1]:
            self._received_s = self.client.now

    def up(self) -> list[str]:
        """Return all clients that are believed to be up, including this one; sorted."""
        return sorted([self.client.name, *self.client.peers])

    async def _watch(self) -> None:
        """Lead when it is this client's turn."""
        client, patience_s = self.client, self.patience
        while True:
            await client.sleep(patience_s / HEARTBEATS)
            if self.leads:
                continue
            silent_s, leader = client.now - self._received_s, self.term[1]
            if silent_s > patience_s and leader != client.name:
                client.suspect(leader)
            heirs = [name for name in self.up() if name != leader]
            heirs = [name for name in heirs if name > leader] + [name for name in heirs if name < leader]
            if leader == client.name:  # it is back from a crash, and no other has taken over
                its_turn = silent_s > patience_s
            else:
                waited_s = client.now - self._missed_s
                its_turn = leader not in client.peers and waited_s >= heirs.index(client.name) * patience_s
            if its_turn:
                self.start_term()

    def peer_changed(self, peer: str, up: bool) -> None:
        if peer == self.term[1] and not up:
            self._missed_s = self.client.now

    async def _send_heartbeats(self) -> None:
        """Send heartbeats to all peers regularly, and find out which are gone."""
        while True:
            for peer in self.client.peers:
                self.client.spawn(self.ask(peer, LeaderPing(self.term[0])))
            await self.client.sleep(self.patience / HEARTBEATS)

    async def ask(self, peer: str, message: FromLeader) -> object | None:
        """Ask a peer; return None if it is gone, or follows another leader.

        A peer counts as gone if it has sent no message at all for one patience (a question alone may be lost
        several times), or if it does not answer within `PATIENCES` patiences.
        """
        client, start_s = self.client, self.client.now
        for attempt in range(PATIENCES):
            if not client.is_peer(peer):
                break
            try:
                answer = await client.ask(peer, message, timeout=self.patience, attempts=None)
            except PeerUnavailable:
                if self._silence.is_silent(peer, start_s) or attempt == PATIENCES - 1:
                    client.suspect(peer)
            except RemoteError:
                client.suspect(peer)
            else:
                if not isinstance(answer, HigherTerm):
                    return answer
                self.recognises((answer.term, answer.broker))
                return None
        return None
