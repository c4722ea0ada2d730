"""Updates of pairs without rounds: which are called for, asked for and owed, and what comes of them."""

from __future__ import annotations

from actors.message import PeerUnavailable, RemoteError
from protocols.cobo.messages import LatestModel, PairAnswer, PairDeclined, PairRequest, PairResult
from protocols.cobo.pairs import Pair, PairLearner
from protocols.cobo.settings import CoBoSettings, pair_probability
from protocols.framework.client import ClientContext, Compute
from protocols.framework.vectors import Vector
from protocols.shared.allowance import GradientAllowance
from protocols.shared.pace import relative_pace

OWED_MAX = 10
"""Updates of a pair that an end can owe; what was called for beyond these is not made up for."""
ATTEMPTS = 2
"""How often a request is sent before it is given up, after three estimated round trips; it stays owed."""


class PairUpdates(PairLearner):
    """A client that asks its peers, and is asked by them, for gradients at the midpoint of their models."""

    began_s = 0.0
    """When this client began, in this life; `iterations_before`: what it had done by then."""
    iterations_before = 0

    def __init__(
        self,
        name: str,
        context: ClientContext,
        compute: Compute,
        settings: CoBoSettings,
    ) -> None:
        super().__init__(name, context, compute, settings)
        self.allowance = GradientAllowance(settings.gradients_when_behind)

    async def run(self) -> None:
        self.began_s = self.now
        self.iterations_before = self.iterations
        await super().run()

    def sample_pairs(self) -> None:
        """Start updates of the pairs that are sampled now, or were and have yet to meet."""
        probability = pair_probability(self.settings, self.iterations + 1, len(self.peers) + 1)
        peers = len(self.peers)
        self.allowance.earn(self.pace, pair_probability(self.settings, 1, peers + 1) * peers)
        pairs = [(peer, self.pair(peer)) for peer in self.peers]
        for _, pair in pairs:
            if self.rng.random() < probability / 2:
                pair.owed = min(pair.owed + 1, OWED_MAX)
                pair.declined = False
        # Those that are owed most first: a client that is behind has not time for all.
        for peer, pair in sorted(pairs, key=lambda named: -named[1].owed):
            if pair.owed and not pair.asking and not pair.declined and self.allowance.suffices:
                pair.asking = True
                self.allowance.spend()
                self.spawn(self.update_pair(peer, pair))

    @property
    def pace(self) -> float | None:
        """This client's iterations per second beside the median of its peers', since it began.

        None as long as none of theirs is known.
        """
        done = self.iterations + 1 - self.iterations_before  # with the one that ends now
        paces = [self.pair(peer).pace for peer in self.peers]
        return relative_pace(done, self.now - self.began_s, paces)

    async def update_pair(self, peer: str, pair: Pair) -> None:
        """Ask one peer for its gradient at our midpoint, and move our weight."""
        asked_s = self.now
        try:
            sent, answer = await self.asked_gradient(peer, pair)
            if isinstance(answer, PairAnswer):
                pair.owed -= 1
                gradient = await self.gradient((sent + answer.params) / 2)
                step = self.settings.gamma * self.dot(gradient, answer.gradient)
                self.ascend(peer, step)
                pair.ledger.note(step)
                self.tell(peer, PairResult(pair.ledger.account(pair.weight)))
            else:
                pair.declined = True
                self.allowance.spend(-1.0)
        except PeerUnavailable:
            self.allowance.spend(-1.0)
            if self.now - asked_s >= self.settings.patience:  # it is too slow for what is owed
                pair.owed -= 1
            if self.now - max(pair.heard_s, self.began_s) > self.settings.patience:
                self.suspect(peer)
        except RemoteError:
            self.allowance.spend(-1.0)
            self.suspect(peer)
        finally:
            pair.asking = False

    async def asked_gradient(self, peer: str, pair: Pair) -> tuple[Vector, PairAnswer | PairDeclined]:
        """Our model, and what a peer answers to it. PeerUnavailable, RemoteError."""
        sent = self.params
        request = PairRequest(sent, self.now, self.iterations, pair.ledger.account(pair.weight))
        patience = self.settings.patience
        return sent, await self.ask(peer, request, timeout=patience, attempts=ATTEMPTS)

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case PairRequest():
                return self.spawn(self.answer_pair(message, sender))  # a gradient holds up no other message
        return None

    async def answer_pair(self, request: PairRequest, sender: str) -> PairAnswer | PairDeclined:
        """Gradient at the midpoint with the asker."""
        if not (self.allowance.suffices or self.finished):
            return PairDeclined()
        self.allowance.spend()
        sent, time, iterations = self.params, self.now, self.iterations
        gradient = await self.gradient((sent + request.params) / 2)
        pair = self.pair(sender)
        return PairAnswer(sent, time, iterations, gradient, pair.ledger.account(pair.weight))

    def heard_without_rounds(self, message: object, sender: str) -> None:
        """Models count from their arrival on, whatever this client is doing."""
        pair = self.pair(sender)
        pair.heard_s = self.now
        if isinstance(message, LatestModel):
            self.remember(pair, message)
            pair.declined = False
        if isinstance(message, PairRequest | PairAnswer | PairResult):
            self.settle(sender, message.account)

    def remember(self, pair: Pair, message: LatestModel) -> None:
        """Keep the latest model of a peer, without what else the message says."""
        pair.pace.met(message.time, message.iterations)
        if pair.latest is None or message.time > pair.latest.time:
            pair.latest = LatestModel(message.params, message.time, message.iterations)
            pair.pulled = 0
