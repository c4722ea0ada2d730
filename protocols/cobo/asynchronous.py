"""CoBo's clients without rounds: nobody waits, and updates of pairs are asked for, answered and owed."""

from collections.abc import Mapping
from dataclasses import dataclass

from actors.message import PeerUnavailable, RemoteError
from protocols.cobo.messages import LatestModel, PairAnswer, PairDeclined, PairRequest, PairResult
from protocols.cobo.pairs import PairWeights
from protocols.cobo.settings import CoBoSettings, expected_updates, pair_probability
from protocols.framework.client import Client
from protocols.framework.vectors import Scalar, Vector
from protocols.shared.pace import HelpBudget
from protocols.shared.pair_ledger import Account, Ledger
from protocols.shared.silence import Silence

OWED_MAX = 10
"""Updates of a pair that an end can owe; what was called for beyond these is not made up for."""
ATTEMPTS = 2
"""How often a request is sent; when both are overdue (`round_trips`) it is given up, and stays owed."""


@dataclass
class PairState:
    """What a client knows of one peer.

    `ledger`: the updates of their weight. `latest`: the peer's last model, towards which it has pulled this
    client `pulled` times. `owed`: updates that the sampling has called for and that this end has yet to make.
    `asking`: an update is in progress. `declined`: the peer has refused one, since when neither its model
    came nor the pair was sampled.
    """

    ledger: Ledger
    latest: LatestModel | None = None
    pulled: int = 0
    owed: int = 0
    asking: bool = False
    declined: bool = False


class CoBoAsynchronous(Client):
    """CoBo without rounds."""

    Settings = CoBoSettings
    settings: CoBoSettings

    def begin(self) -> None:
        self.weights_are_shares = self.settings.domain == "simplex"
        self.pairs = PairWeights(self, simplex=self.settings.domain == "simplex")
        self.known = {peer: PairState(Ledger(self.name < peer)) for peer in self.peers}
        self.help = HelpBudget(self, self.settings.gradients_when_behind)
        self.silence = Silence(self, self.settings.patience)

    def pair_with(self, peer: str) -> PairState:
        """What is known of a peer, and of the weight in common."""
        if peer not in self.known:
            self.known[peer] = PairState(Ledger(self.name < peer))
        return self.known[peer]

    async def step(self) -> None:
        """Train near the models last received, pass the own one on, start updates of some pairs."""
        update = await self.train(self.settings.local_steps, proximal=self.proximal())
        self.params = self.params + update
        if self.settings.exchange == "all":
            for peer in self.peers:
                self.tell(peer, LatestModel(self.params, self.now, self.iterations + 1))
        self.sample_pairs()

    def proximal(self) -> list[tuple[float | Scalar, Vector]]:
        """Towards the latest model of each peer that is believed to be up."""
        self.forget_strangers()
        proximal = []
        for peer in self.peers:
            pair = self.pair_with(peer)
            if pair.latest is not None:
                self.observe("staleness", self.now - pair.latest.time)
                pair.pulled += 1
                share = self.evidence(peer) / (pair.pulled if self.settings.fading else 1)
                proximal.append((self.settings.rho * share * self.pairs.weight(peer), pair.latest.params))
        return proximal

    def evidence(self, peer: str) -> float:
        """How much a pair's weight counts, from 0 to 1: the updates made, divided by those expected by now.

        By the iterations of the slower end, since a newcomer or a slow client cannot have made more.
        """
        pair = self.pair_with(peer)
        if not self.settings.evidence or pair.latest is None:
            return 1.0
        iterations = min(self.iterations, pair.latest.iterations)
        wanted = expected_updates(self.settings, iterations, len(self.peers) + 1) / self.settings.evidence
        return min(1.0, pair.ledger.steps_in_all / wanted) if wanted > 1 else 1.0

    def forget_strangers(self) -> None:
        """Whoever is no peer has no proximal term: its model would be too old once it is one again."""
        peers = set(self.peers)
        for peer, pair in self.known.items():
            if peer not in peers:
                pair.latest = None
        self.pairs.take_back_shares()

    def peer_changed(self, peer: str, up: bool) -> None:
        super().peer_changed(peer, up)
        if not up:
            self.forget_strangers()

    # --- updates of pairs -----------------------------------------------------------------------------------

    def sample_pairs(self) -> None:
        """Start updates of the pairs that are sampled now, or are still owed."""
        count = len(self.peers)
        probability = pair_probability(self.settings, self.iterations + 1, count + 1)
        self.help.earn(pair_probability(self.settings, 1, count + 1) * count)
        known = [(peer, self.pair_with(peer)) for peer in self.peers]
        for _, pair in known:
            if self.rng.random() < probability / 2:
                pair.owed = min(pair.owed + 1, OWED_MAX)
                pair.declined = False
        # Those that are owed most first: a client that is behind has not time for all.
        for peer, pair in sorted(known, key=lambda named: -named[1].owed):
            if pair.owed and not pair.asking and not pair.declined and self.help.suffices:
                pair.asking = True
                self.help.spend()
                self.spawn(self.update_pair(peer, pair))

    async def update_pair(self, peer: str, pair: PairState) -> None:
        """Ask one peer for its gradient at our midpoint, and move our weight."""
        asked_s, patience = self.now, self.settings.patience
        try:
            sent = self.params
            request = PairRequest(sent, self.now, self.iterations, self.account(peer))
            answer = await self.ask(peer, request, timeout=patience, attempts=ATTEMPTS)
            if isinstance(answer, PairAnswer):
                pair.owed -= 1
                gradient = await self.gradient((sent + answer.params) / 2)
                step = self.pairs.step(gradient, answer.gradient)
                self.pairs.ascend(peer, step)
                pair.ledger.note(step)
                self.tell(peer, PairResult(self.account(peer)))
            else:
                pair.declined = True
                self.help.refund()
        except PeerUnavailable:
            self.help.refund()
            if self.now - asked_s >= patience:  # one update less, instead of asking for ever
                pair.owed -= 1
            self.silence.suspect_if_silent(peer)
        except RemoteError:
            self.help.refund()
            self.suspect(peer)
        finally:
            pair.asking = False

    def account(self, peer: str) -> Account:
        """This end's books of a pair's weight, see `pair_ledger`."""
        return self.pair_with(peer).ledger.account(self.pairs.weight(peer))

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case PairRequest():
                return self.spawn(
                    self.answer_pair(message, sender)
                )  # a gradient must not block other messages
        return None

    async def answer_pair(self, request: PairRequest, sender: str) -> PairAnswer | PairDeclined:
        """Gradient at the midpoint with the asker."""
        if not (self.help.suffices or self.finished):
            return PairDeclined()
        self.help.spend()
        sent, time, iterations = self.params, self.now, self.iterations
        gradient = await self.gradient((sent + request.params) / 2)
        return PairAnswer(sent, time, iterations, gradient, self.account(sender))

    def heard(self, message: object, sender: str) -> bool:
        """Models count from their arrival on, whatever this client is doing."""
        done = super().heard(message, sender)
        if not self.is_peer(sender):
            return done
        pair = self.pair_with(sender)
        if isinstance(message, LatestModel):
            self.help.met(sender, message.time, message.iterations)
            pair.declined = False
            if pair.latest is None or message.time > pair.latest.time:
                # The model alone: a request or an answer would keep its account and gradient alive.
                pair.latest, pair.pulled = LatestModel(message.params, message.time, message.iterations), 0
        if isinstance(message, PairRequest | PairAnswer | PairResult):
            self.settle(sender, message.account)
        return done or type(message) in (LatestModel, PairResult)

    def settle(self, peer: str, account: Account) -> None:
        """Make up for what this end has missed of the pair's updates."""
        news = self.pair_with(peer).ledger.settle(account)
        if not self.pairs.simplex and news.value is not None:
            self.pairs.replace(peer, news.value)
        else:
            for step in news.steps:
                self.pairs.ascend(peer, step)

    def weights(self) -> Mapping[str, float | Scalar]:
        known = self.pairs.known()
        return known if self.pairs.simplex else {peer: self.evidence(peer) * w for peer, w in known.items()}
