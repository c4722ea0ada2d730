"""Who is broker: one at a time, found again when it is gone.

Every client knows a mandate: a term and the name of the broker in it. A later term is the right one; of two
brokers in the same term, who both took a third for dead, the one whose name comes last. A broker that hears
of a mandate above its own resigns. It makes sure now and then that everybody is there, so that its silence
means something, and that of others does: in a complete graph nobody else need watch anybody.

Of the others, sorted by name and beginning behind the broker that is gone, the first takes its place at once
where its departure is known, and after a patience of silence otherwise; each that follows waits for one
patience more, in case those before it are gone, too.
"""

from __future__ import annotations

import asyncio

from actors.message import PeerUnavailable, RemoteError
from protocols.framework.client import Client
from protocols.framework.compute import Compute
from protocols.framework.context import ClientContext
from protocols.framework.requirements import ProtocolSettings
from protocols.learn_to_collaborate.messages import FromBroker, Here, StillThere, Superseded
from protocols.learn_to_collaborate.settings import LearnToCollaborateSettings

PATIENCES = 3
"""For how many patiences an answer is waited for, of a peer that is heard from otherwise."""
SIGNS_OF_LIFE = 4
"""How often in a patience the broker makes sure that everybody is there."""


class Office(Client):
    """A client that knows who is broker, and becomes it when it is its turn."""

    settings: LearnToCollaborateSettings

    def __init__(
        self,
        name: str,
        context: ClientContext,
        compute: Compute,
        settings: ProtocolSettings,
    ) -> None:
        super().__init__(name, context, compute, settings)
        self.mandate = (0, self.settings.broker)  # the term, and who is broker in it
        self.duties: list[asyncio.Task[None]] = []
        self.heard_s = 0.0  # from the broker
        self.heard_of_s: dict[str, float] = {}  # when each peer was heard from last
        self.missed_s = 0.0  # when the broker was taken for gone

    async def on_start(self) -> None:
        self.duties = []  # a crash has ended them
        self.heard_s = self.missed_s = self.now
        await super().on_start()
        if not self.context.alone:
            if self.mandate == (0, self.name) and not self.late:
                self.take_office()
            self.spawn(self.watch())

    @property
    def presides(self) -> bool:
        """Whether it is the broker, and at work."""
        return bool(self.duties)

    def take_office(self) -> None:
        """Become the broker of the next term, and begin from the beginning."""
        self.mandate = (self.mandate[0] + 1, self.name)
        self.duties = [self.spawn(self.preside()), self.spawn(self.make_sure())]

    async def preside(self) -> None:
        """All that a broker does."""
        raise NotImplementedError

    def resign(self) -> None:
        """Somebody else is broker."""
        for duty in self.duties:
            duty.cancel()
        self.duties = []

    def recognises(self, mandate: tuple[int, str]) -> bool:
        """Whether whoever has this mandate is the broker, now that it is known."""
        if mandate > self.mandate:
            if self.mandate[1] != mandate[1]:
                self.resign()
            self.mandate, self.heard_s = mandate, self.now
        return mandate == self.mandate

    def heard(self, message: object, sender: str) -> bool:
        self.heard_of_s[sender] = self.now
        if sender == self.mandate[1]:
            self.heard_s = self.now
        return super().heard(message, sender)

    def up(self) -> list[str]:
        """Everybody who is believed to be up, this client among them; sorted."""
        return sorted([self.name, *self.peers])

    async def watch(self) -> None:
        """Take office when it is this client's turn."""
        patience_s = self.settings.patience
        while True:
            await self.sleep(patience_s / SIGNS_OF_LIFE)
            if self.presides:
                continue
            silent_s, broker = self.now - self.heard_s, self.mandate[1]
            if silent_s > patience_s and broker != self.name:
                self.suspect(broker)
            heirs = [client for client in self.up() if client != broker]
            heirs = [name for name in heirs if name > broker] + [name for name in heirs if name < broker]
            if broker == self.name:  # it comes back, and nobody has missed it
                its_turn = silent_s > patience_s
            else:
                waited_s = self.now - self.missed_s
                its_turn = broker not in self.peers and waited_s >= heirs.index(self.name) * patience_s
            if its_turn:
                self.take_office()

    def peer_changed(self, peer: str, up: bool) -> None:
        super().peer_changed(peer, up)
        if peer == self.mandate[1] and not up:
            self.missed_s = self.now

    async def make_sure(self) -> None:
        """Tell everybody now and then that the broker is there, and find out who is not."""
        while True:
            for peer in self.peers:
                self.spawn(self.asked(peer, StillThere(self.mandate[0])))
            await self.sleep(self.settings.patience / SIGNS_OF_LIFE)

    async def asked(self, peer: str, message: FromBroker) -> object | None:
        """The answer; None if the peer is gone, or has another broker by now.

        It is gone that has been silent for a patience: a question alone may be lost again and again. One
        that is there, but does not answer for so many times a patience, is too slow, and counts as gone.
        """
        asked_s = self.now
        for attempt in range(PATIENCES):
            if not self.is_peer(peer):
                break
            try:
                answer = await self.ask(peer, message, timeout=self.settings.patience, attempts=None)
            except PeerUnavailable:
                silent_s = self.now - max(self.heard_of_s.get(peer, 0.0), asked_s)
                if silent_s >= self.settings.patience or attempt == PATIENCES - 1:
                    self.suspect(peer)
            except RemoteError:
                self.suspect(peer)
            else:
                if not isinstance(answer, Superseded):
                    return answer
                self.recognises((answer.term, answer.broker))
                return None
        return None

    async def on_message(self, message: object, sender: str) -> object:
        if not isinstance(message, FromBroker):
            return None
        if not self.recognises((message.term, sender)):
            return Superseded(*self.mandate)
        return Here() if isinstance(message, StillThere) else self.work_for(message)

    def work_for(self, message: FromBroker) -> object:
        """The answer to the broker, or a task that will have it."""
        raise NotImplementedError
