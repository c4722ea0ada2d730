"""Clients of CoBo without rounds: no client waits; missed updates of a pair's weight are applied later."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.message import PeerUnavailable, RemoteError
from protocols.cobo.messages import LatestModel, PairAnswer, PairRequest, PairResult
from protocols.cobo.pairs import PairWeights
from protocols.cobo.settings import CoBoSettings, expected_updates, pair_probability
from protocols.framework.client import Client
from protocols.framework.per_peer import PerPeer
from protocols.framework.vectors import Scalar, Vector
from protocols.shared.pace import TimeForPeers
from protocols.shared.pair_ledger import Account, PairStepLedger
from protocols.shared.silence import Silence

OWED_MAX = 30
"""Maximum number of sampled updates of a pair that a client keeps for later; further updates are dropped."""
ATTEMPTS = 2
"""Number of times that a request is sent. If the last one is not answered in time, the update stays owed."""
MEETINGS = 2
"""Exchanges of gradients after which `evidence` can give a pair full weight: a single one is too noisy."""


@dataclass
class PairState:
    """Knowledge of a client about one peer.

    `ledger`: the updates of the pair's weight. `latest`: the peer's last model. `pulled`: how often the
    peer's last model has been in the proximal term. `sampled`: on the simplex, the sum of the probabilities
    of its updates, starting from a random number; each time it passes a whole number, an update is due.
    `owed`: sampled updates that this client has yet to make. `offered`: how many owed updates this client
    reported in its last answer to the peer; the peer makes these updates together with its own owed ones.
    `meetings`: how often both have computed gradients for an update.
    `asking`: an update is in progress.
    """

    ledger: PairStepLedger = field(default_factory=PairStepLedger)
    latest: LatestModel | None = None
    pulled: int = 0
    sampled: float = 0.0
    owed: int = 0
    offered: int = 0
    meetings: int = 0
    asking: bool = False


def is_far_behind(iterations: int, others: int) -> bool:
    """Return whether `iterations` is less than half of `others`."""
    return 2 * iterations < others


def state_of_departed_peer(peer: str, pair: PairState | None) -> PairState | None:
    """Return the state to keep for a peer that leaves: all except the model, which would be outdated."""
    if pair is not None:
        pair.latest = None
    return pair


class CoBoAsynchronous(Client):
    """Client of CoBo without rounds."""

    Settings = CoBoSettings
    settings: CoBoSettings

    def setup(self) -> None:
        self.weights_are_shares = self.settings.domain == "simplex"
        self.pairs = PairWeights(self, self.settings.domain == "simplex", lazy=True)
        self.known = PerPeer(self, PairState, on_departure=state_of_departed_peer)
        self.peer_time = TimeForPeers(self)
        self.silence = Silence(self, self.settings.patience)
        self.earlier: list[tuple[Vector, float, int]] = []

    async def step(self) -> None:
        """Train near the last models received, send the client's model, and start updates of some pairs.

        With `exchange = "sampled"`, the model is sent only in these updates.

        On the simplex the updates come first, as in rounds: gradients show most about two clients before
        these have trained.
        """
        if self.pairs.simplex:
            if self.iterations.bit_count() <= 1:  # only 0, 1, 2, 4, ...
                self.earlier.append((self.params, self.now, self.iterations))
            self.sample_pairs()
        update = await self.train(self.settings.local_steps, proximal=self.proximal())
        self.params = self.params + update
        self.earn_time()
        if self.settings.exchange == "all":
            takes_requests = not self.peer_time.is_behind
            latest = LatestModel(self.params, self.now, self.iterations + 1, takes_requests)
            for peer in self.peers:
                self.tell(peer, latest)
        if not self.pairs.simplex:
            self.sample_pairs()

    def proximal(self) -> list[tuple[float | Scalar, Vector]]:
        """Return proximal terms towards the last models of the peers that are up and have sent one."""
        self.forget_strangers()
        proximal = []
        for peer in self.peers:
            pair = self.known[peer]
            if pair.latest is not None:
                self.context.report(self.name, "staleness", self.now - pair.latest.time)
                pair.pulled += 1
                share = self.evidence(peer) / (pair.pulled if self.settings.fading else 1)
                proximal.append((self.settings.rho * share * self.pairs.weight(peer), pair.latest.params))
        return proximal

    def evidence(self, peer: str) -> float:
        """Return the factor of a pair's weight, from 0 to 1.

        The factor is 1 if `evidence` is 0, and before the peer's first model arrives. Otherwise, it is the
        smaller of two ratios: the updates so far to the wanted updates, and the gradient pairs so far to the
        required pairs. Wanted are the updates expected from the iterations of the slower client, because a
        newcomer or slow client cannot have made more, divided by the setting `evidence`. As long as at most
        one update is wanted, the factor is 1.
        """
        pair = self.known[peer]
        if not self.settings.evidence or pair.latest is None:
            return 1.0
        iterations = min(self.iterations, pair.latest.iterations)
        wanted = expected_updates(self.settings, iterations, len(self.peers) + 1) / self.settings.evidence
        return min(1.0, pair.ledger.steps_in_all / wanted, pair.meetings / MEETINGS) if wanted > 1 else 1.0

    def forget_strangers(self) -> None:
        """Drop the models of peers that a sampled view no longer contains; no event reports this change.

        On the simplex, the other peers get the shares of these peers.
        """
        peers = set(self.peers)
        for peer, pair in self.known.items():
            if peer not in peers:
                state_of_departed_peer(peer, pair)
        self.pairs.take_back_shares()

    # --- updates of pairs -----------------------------------------------------------------------------------

    def sample_pairs(self) -> None:
        """Start updates of the pairs that are sampled now or still owed, as time for peers allows."""
        peers, simplex = self.peers, self.pairs.simplex
        whole = pair_probability(self.settings, self.iterations + 1, len(peers) + 1)
        chances = [] if simplex else self.rng.random(len(peers)).tolist()
        for index, peer in enumerate(peers):
            pair, probability = self.known[peer], whole * self.share_of_updates(peer)
            sampled = self.sample(pair, probability) if simplex else int(chances[index] < probability)
            pair.owed = min(pair.owed + sampled, OWED_MAX)
        for peer in self.pairs_to_update():
            pair = self.known[peer]
            if self.peer_time.suffices and not pair.asking:
                pair.asking = True
                self.peer_time.spend()
                self.spawn(self.update_pair(peer, pair))

    def sample(self, pair: PairState, probability: float) -> int:
        """Return the number of a pair's updates to start on the simplex, with this probability per iteration.

        As the steps of a row compete there, they are spread evenly (systematic sampling) from a random start.
        Independent draws would give some peers more updates than others by chance.
        """
        before = pair.sampled = pair.sampled or self.rng.random()
        pair.sampled += probability
        return int(pair.sampled) - int(before)

    def share_of_updates(self, peer: str) -> float:
        """Return the share of the pair's updates that this client starts: usually one half.

        On the simplex with `exchange = "all"`, where the weights of a row compete, the slower end of a pair
        starts all updates if the other has done more than twice as many iterations: as in rounds, the slower
        end's iterations set the number of updates.
        """
        if not self.pairs.simplex or self.settings.exchange == "sampled":
            return 0.5
        if self.is_late(peer):
            return 0.0
        return 1.0 if is_far_behind(self.iterations, self.iterations_of(peer)) else 0.5

    def iterations_of(self, peer: str) -> int:
        """Return the iterations in a peer's last message; 0 before the first."""
        latest = self.known[peer].latest
        return 0 if latest is None else latest.iterations

    def is_late(self, peer: str) -> bool:
        """Return whether a peer is far behind this client."""
        return is_far_behind(self.iterations_of(peer), self.iterations)

    def pairs_to_update(self) -> list[str]:
        """Return the peers to start updates with, as time allows: those with owed updates, most owed first.

        If this client is behind, the list is sorted by meetings, fewest first, since these weights are least
        known; without the simplex, it then has all peers, also those without owed updates. (Peers of weight 0
        could come last; but reading weights would make a run depend on their rounding.)
        """
        if self.peer_time.is_behind:
            due = [peer for peer in self.peers if self.known[peer].owed or not self.pairs.simplex]
            return sorted(due, key=lambda peer: self.known[peer].meetings)
        owed = [peer for peer in self.peers if self.known[peer].owed and self.takes_requests(peer)]
        return sorted(owed, key=lambda peer: -self.known[peer].owed)

    def takes_requests(self, peer: str) -> bool:
        """Return True if this client may send a peer requests.

        A peer states in its models whether it takes requests. A peer that has not sent a model yet is slow or
        absent. It is asked anyway on the simplex (without its first updates, a row would be unbalanced), with
        `exchange = "sampled"`, and after a silence of `patience`.
        """
        latest = self.known[peer].latest
        if latest is None:
            return self.pairs.simplex or self.settings.exchange == "sampled" or self.silence.is_silent(peer)
        return latest.takes_requests

    def earn_time(self) -> None:
        """Add the device time for peers that this client earns by the training of an iteration."""
        count = len(self.peers)
        called_for = pair_probability(self.settings, self.iterations + 1, count + 1) * count
        self.peer_time.earn(self.settings.local_steps, self.settings.share_for_peers, called_for)

    async def update_pair(self, peer: str, pair: PairState) -> None:
        """Ask a peer for its gradient at the midpoint, and apply all owed updates to the weight."""
        start_s, patience = self.now, self.settings.patience
        try:
            sent = self.params
            request = PairRequest(
                sent, self.now, self.iterations, not self.peer_time.is_behind, self.account(peer)
            )
            answer: PairAnswer | None = await self.ask(peer, request, timeout=patience, attempts=ATTEMPTS)
            if answer is None:  # the peer has no time
                self.peer_time.refund()
                return
            gradient = await self.gradient((sent + answer.params) / 2)
            step = self.pairs.increment(gradient, answer.gradient)
            for _ in range(max(1, pair.owed + answer.owed)):
                self.pairs.ascend({peer: step})
                pair.ledger.record(step)
            pair.owed = 0
            pair.meetings += 1
            self.tell(peer, PairResult(self.account(peer)))
        except PeerUnavailable:
            self.peer_time.refund()
            if self.now - start_s >= patience:  # otherwise the request could be repeated without end
                pair.owed = max(0, pair.owed - 1)
            self.silence.suspect_if_silent(peer)
        except RemoteError:
            self.peer_time.refund()
            self.suspect(peer)
        finally:
            pair.asking = False

    def account(self, peer: str) -> Account:
        """Return the `Account` of this end of a pair: its value of the weight, and its unconfirmed steps."""
        return self.known[peer].ledger.account(self.pairs.weight(peer))

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case PairRequest() if self.peer_time.has_credit or self.finished:
                return self.spawn(
                    self.answer_pair(message, sender)
                )  # a gradient must not block other messages
        return None

    async def answer_pair(self, request: PairRequest, sender: str) -> PairAnswer:
        """Answer with the gradient at the midpoint between both models, and the number of owed updates."""
        self.peer_time.spend()
        pair = self.known[sender]
        sent, time, iterations = self.as_far_as(request.iterations)
        gradient = await self.gradient((sent + request.params) / 2)
        pair.offered = 0 if pair.asking else pair.owed
        return PairAnswer(
            sent,
            time,
            iterations,
            not self.peer_time.is_behind,
            gradient,
            self.account(sender),
            pair.offered,
        )

    def as_far_as(self, iterations: int) -> tuple[Vector, float, int]:
        """Return the model to compare with a peer's model, with this model's time (s) and iterations.

        iterations: those of the peer's model. On the simplex, for a peer that is far behind, return the model
        after the same number of iterations, interpolated between the two nearest kept models. With the newest
        model, the gradients of all such pairs would be larger and would agree. Otherwise, return the newest
        model.
        """
        newest = (self.params, self.now, self.iterations)
        if not self.earlier or not is_far_behind(iterations, self.iterations):
            return newest
        kept, iterations = [*self.earlier, newest], max(0, iterations)
        index = bisect_right(kept, iterations, key=lambda each: each[2])
        (before, start_s, first), (after, ended_s, last) = kept[index - 1 : index + 1]
        share = (iterations - first) / (last - first)
        return (1 - share) * before + share * after, (1 - share) * start_s + share * ended_s, iterations

    def intercept(self, message: object, sender: str) -> bool:
        """Use models and accounts as soon as they arrive, even while this client trains."""
        done = super().intercept(message, sender)
        if not self.is_peer(sender):
            return done
        pair = self.known[sender]
        if isinstance(message, LatestModel):
            self.peer_time.met(sender, message.time, message.iterations)
            if pair.latest is None or message.time > pair.latest.time:
                pair.latest, pair.pulled = message.alone(), 0
        if isinstance(message, PairRequest | PairAnswer | PairResult):
            self.merge_account(sender, message.account)
        return done or type(message) in (LatestModel, PairResult)

    def merge_account(self, peer: str, account: Account) -> None:
        """Apply the pair's updates that this end has missed."""
        pair = self.known[peer]
        missed = pair.ledger.merge(account, leads=self.name < peer)
        if missed.steps:
            pair.owed, pair.offered = max(0, pair.owed - pair.offered), 0
            pair.meetings += 1
        if not self.pairs.simplex and missed.value is not None:
            self.pairs.catch_up(peer, missed.value)
        else:
            for step in missed.steps:
                self.pairs.ascend({peer: step})

    def weights(self) -> Mapping[str, float | Scalar]:
        known = self.pairs.known()
        return known if self.pairs.simplex else {peer: self.evidence(peer) * w for peer, w in known.items()}
