"""CoBo: collaborative learning via bilevel optimization (Hashemi, He and Jaggi, NeurIPS 2024).

Client i learns its model x_i, and with each peer j a common weight w_ij: whether they help each other.

    for each pair that is sampled, with z = (x_i + x_j)/2:
        w_ij <- Proj_[0,1](w_ij + gamma <g_i(z), g_j(z)>)                                              (eq. 4)
    x_i <- x_i - eta (g_i(x_i) + rho sum_k w_ik (x_i - x_k))                                     (algorithm 1)

from w_ij = 1 and equal x_i; g are stochastic gradients on fresh batches. `domain = "simplex"` projects each
client's row of weights on the simplex instead (remark 1, for language models): it starts at 1/(n-1) and is
not symmetric.

Synchronous: rounds in which a client waits for the models of its neighbours and for the gradients of its
sampled peers; both ends of a pair draw the same coin from the seed that all clients share.

Asynchronous (nobody waits): a client trains with pulls towards the last model it received from each peer,
however old. To update w_ij it asks that one peer, which evaluates its gradient at the midpoint and sends it
back with its model; the asker does the same, moves the weight, and tells the peer by how much. Each end
starts an update with half the pair's probability per iteration; what is sampled while the last one is on its
way, or in vain because messages were lost, it owes, and starts it later. Nothing is ever locked: both ends
may be at updates of their pair at the same time, and each counts (`protocols.pair_ledger`).

In bad weather (options of this form; what they bring is measured in docs/protocols.md):
- `fading`: the k-th pull in a row towards one and the same model weighs 1/k, so that the old model of a slow,
  cut off or dead peer holds nobody back.
- `evidence`: until a pair has met as often as 1/evidence of what the iterations of its slower end call for,
  its pull and its weight in the learned graph count in proportion to that: w = 1 at the start means that
  nobody knows, and who is too slow, or hears too little, to find out must not be pulled by all.
- `gradients_when_behind`: a client that is slower than its peers (median) spends its device on itself rather
  than on their pairs (`protocols.allowance`).

Differences to the paper:
- Time-dependent sampling is 1/t per pair, as in the paper; the authors' code uses `sampling_scale = 2` (2/n),
  `constant_iterations = 800` and `decay = "1/sqrt(t)"` for "mixed". The paper's "first 0.2 % of iterations"
  is `constant_iterations` here (0.2 % of 40,000 by default).
- The authors' code updates the models before the weights; that equals this order without the very first
  update of the weights. Their momentum is an average, m <- 0.9 m + 0.1 g from
  m = g at the first step: `training.momentum = 0.9` with `training.dampening = 0.9`.
- Pulls in one iteration of more than one local step keep their anchors fixed.
- A peer from which nothing came for `patience` is suspected: it pulls no more until it is heard from again,
  its weight is kept (on the simplex its share goes to the others, as does that of a peer that left the view).
  A newcomer is given the initial weight (on the simplex: 0, and its share as soon as gradients agree).
- n in `sampling_scale`/n is the number of clients where all know each other, as in the paper. On a sparse
  graph it is the larger neighbourhood of the pair's ends plus one (asynchronous: at each end, for its half of
  the probability, its own plus one), so that a client meets about `sampling_scale` peers in an iteration
  whatever its degree, fewer where its neighbours have more neighbours than it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from actors.message import PeerUnavailable, RemoteError
from protocols import learner
from protocols.allowance import GradientAllowance
from protocols.cobo_pairs import (
    LatestModel,
    Pair,
    PairAnswer,
    PairDeclined,
    PairLearner,
    PairRequest,
    PairResult,
)
from protocols.cobo_settings import CoBoSettings, pair_probability
from protocols.mathematics import shared_uniform
from protocols.rounds import RoundModel, delay_s
from protocols.vectors import Scalar, Vector


@dataclass(frozen=True)
class RoundGradient:
    """Synchronous form: the sender's gradient at its midpoint with the receiver, in `round`.

    `weight`, after `version` updates, is what the sender held before this one. `repeated`, `attempt`,
    `delayed`: as of a `RoundModel`.
    """

    gradient: Vector
    round: int
    version: int
    weight: float | Scalar
    repeated: bool = False
    attempt: int = 0
    delayed: float = 0.0


@dataclass(frozen=True)
class RoundGradientWanted:
    """The sender waits in `round` for the receiver's gradient; `attempt`: as of a `RoundModelWanted`."""

    round: int
    attempt: int = 0


OWED_MAX = 10
"""Updates of a pair that an end can owe; what was called for beyond these is not made up for."""
ATTEMPTS = 2
"""How often a request is sent before it is given up, after three estimated round trips; it stays owed."""


class CoBo(PairLearner):
    """CoBo, synchronous and asynchronous."""

    Settings = CoBoSettings
    collected = (RoundModel, RoundGradient)
    began_s = 0.0
    """When this client began, in this life; `iterations_before`: what it had done by then."""
    iterations_before = 0

    def __init__(
        self,
        name: str,
        surroundings: learner.Surroundings,
        compute: learner.Compute,
        settings: CoBoSettings,
    ) -> None:
        super().__init__(name, surroundings, compute, settings)
        self.sent_gradients: dict[str, RoundGradient] = {}  # the last one for each peer
        clients = len(self.peers) + 1
        called_for = pair_probability(settings, 1, clients) * (clients - 1)
        self.allowance = GradientAllowance(settings.gradients_when_behind * called_for)

    async def run(self) -> None:
        self.began_s = self.now
        self.iterations_before = self.iterations
        await super().run()

    async def step(self) -> None:
        if self.settings.mode == "synchronous":
            await self.take_round()
        else:
            await self.iterate()

    def pulls(self, models: Mapping[str, Vector]) -> list[tuple[float | Scalar, Vector]]:
        """Proximal pulls rho w_ik/2 ||x - x_k||^2 towards the given models."""
        return [(self.settings.rho * self.pair(peer).weight, model) for peer, model in models.items()]

    # --- synchronous ----------------------------------------------------------------------------------------

    async def take_round(self) -> None:
        """One iteration of algorithm 1."""
        self.announce()
        received = await self.gather(self.settings.patience)
        await self.update_sampled_pairs(received)
        models = {peer: model.params for peer, model in received.items()}
        update = await self.train(self.settings.local_steps, pulls=self.pulls(models))
        self.params = self.params + update
        self.round += 1

    async def update_sampled_pairs(self, received: Mapping[str, RoundModel]) -> None:
        """Exchange midpoint gradients with this round's sampled peers, and update the weights."""
        sent: dict[str, RoundGradient] = {}
        for peer, model in received.items():
            if self.is_sampled(peer, model):
                gradient = await self.gradient((self.params + model.params) / 2)
                held = self.pair(peer)
                sent[peer] = RoundGradient(
                    gradient, self.round, held.version, held.weight, delayed=self.delayed
                )
                self.sent_gradients[peer] = sent[peer]
                self.tell(peer, sent[peer])
        began_s = self.now
        answers = await self.collect(
            RoundGradient,
            sent,
            timeout=self.settings.patience,
            where=lambda answer: answer.round == self.round,
            reminder=RoundGradientWanted(self.round),
        )
        # The other end of a pair may still be at the round before.
        kept = [(peer, own) for peer, own in self.sent_gradients.items() if own.round >= self.round - 1]
        self.sent_gradients = dict(kept)
        usual_s = self.round_trips.usual_s(sent, RoundGradient)
        self.delayed += delay_s(answers.values(), self.now - began_s - usual_s)
        self.discard(RoundGradient, lambda answer: answer.round <= self.round)
        for peer, answer in answers.items():
            self.adopt(peer, answer.version, answer.weight)
            self.ascend(peer, self.settings.gamma * self.dot(sent[peer].gradient, answer.gradient))

    def is_sampled(self, peer: str, model: RoundModel) -> bool:
        """Whether the pair updates its weight in this round.

        Of coin, iteration and number of clients both ends must think alike, or one waits for the other in
        vain: so the round counts, not the client's own iterations, and the larger neighbourhood.
        """
        clients = max(self.degree, model.degree) + 1
        pair = sorted((self.name, peer))
        coin = shared_uniform(self.surroundings.shared_seed, "pair", *pair, self.round)
        return model.partner and coin < pair_probability(self.settings, self.round + 1, clients)

    def heard_in_round(self, message: object, sender: str) -> bool:
        """Send a gradient again that the other end has missed."""
        match message:
            case RoundGradientWanted(number, attempt):
                gradient = self.sent_gradients.get(sender)
                if gradient is not None and gradient.round == number:
                    self.tell(sender, replace(gradient, repeated=True, attempt=attempt))
                return True
        return False

    # --- asynchronous ---------------------------------------------------------------------------------------

    async def iterate(self) -> None:
        """Train with pulls to the models last received, pass the model on, start updates of some pairs."""
        update = await self.train(self.settings.local_steps, pulls=self.anchors())
        self.params = self.params + update
        if self.settings.exchange == "all":
            for peer in self.peers:
                self.tell(peer, LatestModel(self.params, self.now, self.iterations + 1))
        self.sample_pairs()

    def anchors(self) -> list[tuple[float | Scalar, Vector]]:
        """Pulls towards the latest model of each peer that is believed to be up."""
        self.forget_strangers()
        pulls = []
        for peer in self.peers:
            pair = self.pair(peer)
            if pair.latest is not None:
                self.observe("staleness", self.now - pair.latest.time)
                pair.pulled += 1
                share = self.evidence(pair) / (pair.pulled if self.settings.fading else 1)
                pulls.append((self.settings.rho * share * pair.weight, pair.latest.params))
        return pulls

    def sample_pairs(self) -> None:
        """Start updates of the pairs that are sampled now, or were and have yet to meet."""
        probability = pair_probability(self.settings, self.iterations + 1, len(self.peers) + 1)
        self.allowance.earn(self.pace)
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
        duration_s = self.now - self.began_s
        rates = [rate for rate in [self.pair(peer).rate for peer in self.peers] if rate > 0]
        if not rates or not duration_s:
            return None
        return (self.iterations - self.iterations_before) / duration_s / statistics.median(rates)

    async def update_pair(self, peer: str, pair: Pair) -> None:
        """Ask one peer for its gradient at our midpoint, and move our weight."""
        sent, asked_s = self.params, self.now
        request = PairRequest(sent, self.now, self.iterations, pair.ledger.account(pair.weight))
        try:
            answer = await self.ask(peer, request, timeout=self.settings.patience, attempts=ATTEMPTS)
            if isinstance(answer, PairAnswer):
                pair.owed -= 1
                own = await self.gradient((sent + answer.params) / 2)
                step = self.settings.gamma * self.dot(own, answer.gradient)
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
            self.suspect(peer)
        finally:
            pair.asking = False

    def heard(self, message: object, sender: str) -> bool:
        """Models count from their arrival on: a handler may be busy with a gradient for long."""
        done = super().heard(message, sender)
        if self.settings.mode == "synchronous":
            return self.heard_in_round(message, sender) or done
        if not self.is_peer(sender):
            return done
        pair = self.pair(sender)
        pair.heard_s = self.now
        if isinstance(message, LatestModel):
            self.remember(pair, message)
            pair.declined = False
        if isinstance(message, PairRequest | PairAnswer | PairResult):
            self.settle(sender, message.account)
        return done or type(message) in (LatestModel, PairResult)

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case PairRequest():
                return self.spawn(self.answer_pair(message, sender))  # a gradient holds up no other message
        return None

    async def answer_pair(self, request: PairRequest, sender: str) -> PairAnswer | PairDeclined:
        """Gradient at the midpoint with the asker."""
        if not self.allowance.suffices:
            return PairDeclined()
        self.allowance.spend()
        sent, time, iterations = self.params, self.now, self.iterations
        gradient = await self.gradient((sent + request.params) / 2)
        pair = self.pair(sender)
        return PairAnswer(sent, time, iterations, gradient, pair.ledger.account(pair.weight))

    def remember(self, pair: Pair, message: LatestModel) -> None:
        """Keep the latest model of a peer, without what else the message says."""
        pair.first = pair.first or (message.time, message.iterations)
        if pair.latest is None or message.time > pair.latest.time:
            pair.latest = LatestModel(message.params, message.time, message.iterations)
            pair.pulled = 0
