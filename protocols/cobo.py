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
back with its model; the asker does the same, computes the new weight and tells the peer, so that both hold
the same number. A client that is in the middle of such an update with a peer declines a second one. Each end
starts an update with half the pair's probability per iteration. A pair that is sampled while its last update
is on the way is left out, so it meets less often than in the synchronous form: about 1/(1 + p d) as often
where its probability is p and an update lasts d iterations. With 8, 16 and 40 clients, `sampling_scale = 2`
and a latency of half a step that is .51, .64 and .73.

Differences to the paper:
- Time-dependent sampling is 1/t per pair, as in the paper; the authors' code uses `sampling_scale = 2` (2/n),
  `constant_iterations = 800` and `decay = "1/sqrt(t)"` for "mixed". The paper's "first 0.2 % of iterations"
  is `constant_iterations` here (0.2 % of 40,000 by default).
- The authors' code updates the models before the weights; that equals this order without the very first
  update of the weights. Their momentum (0.9 m + 0.1 g) is `training.momentum = 0.9` with a tenth of the
  learning rate.
- Pulls in one iteration of more than one local step keep their anchors fixed.
- A peer that does not answer for `patience` is suspected: it pulls no more until it is heard from again, its
  weight is kept (on the simplex its share goes to the others, as does that of a peer that left the view). A
  newcomer is given the initial weight (on the simplex: 0, and its share as soon as gradients agree).
- If a message of a pair's update is lost, its ends may differ until their next update, which starts from the
  newer of their two weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import model_validator

from actors.message import PeerUnavailable, RemoteError
from protocols import learner
from protocols.mathematics import project_on_simplex, shared_uniform
from protocols.rounds import RoundLearner, RoundModel
from protocols.settings import Count, PositiveDuration, PositiveWeight, SettingError, Weight, default
from protocols.vectors import Scalar, Vector


@dataclass(frozen=True)
class RoundGradient:
    """Synchronous form: the sender's gradient at its midpoint with the receiver, in `round`.

    `weight`, after `version` updates, is what the sender held before this one.
    """

    gradient: Vector
    round: int
    version: int
    weight: float | Scalar


@dataclass(frozen=True)
class LatestModel:
    """Asynchronous form: the sender's parameters at `time` (seconds)."""

    params: Vector
    time: float


@dataclass(frozen=True)
class PairRequest:
    """Asks for the peer's gradient at our midpoint. The sender holds `weight`, after `version` updates."""

    params: Vector
    time: float
    version: int
    weight: float | Scalar


@dataclass(frozen=True)
class PairAnswer:
    """The peer's model when it took up the request, its gradient at the midpoint, and what it holds."""

    params: Vector
    gradient: Vector
    time: float
    version: int
    weight: float | Scalar


@dataclass(frozen=True)
class PairBusy:
    """The peer is in the middle of an update of this same pair."""


@dataclass(frozen=True)
class PairResult:
    """The pair's inner product, and the weight that both ends hold from now on, after `version` updates."""

    version: int
    weight: float | Scalar
    product: Scalar


@dataclass
class Pair:
    """What a client knows of one peer: their weight, how often it was updated, and the last model received.

    `asking`: this end has asked for an update. `answering_until`: the other end has, and its result is
    awaited (s).
    """

    weight: float | Scalar
    version: int = 0
    asking: bool = False
    answering_until: float = -math.inf
    model: Vector | None = None
    model_time: float = 0.0


class CoBoSettings(learner.Settings):
    """Train with pulls towards the peers, whose strengths are learned from the alignment of gradients."""

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """In rounds with all neighbours, or with nobody waiting for anybody."""
    rho: Weight = 0.05
    """Strength of the pulls."""
    gamma: PositiveWeight = 0.01
    """Step size of the weights."""
    domain: Literal["box", "simplex"] = "box"
    """Each weight in [0, 1], or each client's weights on the simplex (remark 1)."""
    sampling: Literal["constant", "time-dependent", "mixed", "none"] = "constant"
    """A pair updates its weight in an iteration with probability `sampling_scale`/n ("constant"), `decay`
    ("time-dependent"), the former for `constant_iterations` and then the latter ("mixed"), or 1 ("none")."""
    sampling_scale: PositiveWeight = 1.0
    """Expected number of pair updates of a client in an iteration, while their probability is constant."""
    constant_iterations: Count = 80
    """Iterations before the decay begins, for "mixed"."""
    decay: Literal["1/t", "1/sqrt(t)"] = "1/t"
    """Probability of a pair's update in iteration t, once it decays."""
    exchange: Literal["all", "sampled"] = "all"
    """Asynchronous: models go to all peers after each iteration (as in the paper), or only to the peer of a
    pair that is updated (traffic per client that stays bounded, however many there are)."""
    local_steps: Count = 1
    """Training steps in an iteration."""
    patience: PositiveDuration = default("1 min")
    """How long a silent peer is waited for."""

    @model_validator(mode="after")
    def _exchange_fits_mode(self) -> CoBoSettings:
        if self.mode == "synchronous" and self.exchange == "sampled":
            raise SettingError("exchange", self.exchange, 'in rounds models go to all: must be "all"')
        return self


def pair_probability(settings: CoBoSettings, iteration: int, clients: int) -> float:
    """Probability that a pair updates its weight in `iteration` (from 1 on), of `clients` clients in all."""
    decaying = settings.sampling == "time-dependent" or (
        settings.sampling == "mixed" and iteration > settings.constant_iterations
    )
    if settings.sampling == "none":
        return 1.0
    if decaying:
        return 1.0 / (iteration if settings.decay == "1/t" else math.sqrt(iteration))
    return min(1.0, settings.sampling_scale / clients)


class CoBo(RoundLearner):
    """CoBo, synchronous and asynchronous."""

    Settings = CoBoSettings
    settings: CoBoSettings
    collected = (RoundModel, RoundGradient)

    def __init__(
        self,
        name: str,
        surroundings: learner.Surroundings,
        compute: learner.Compute,
        settings: CoBoSettings,
    ) -> None:
        super().__init__(name, surroundings, compute, settings)
        initial = 1.0 if self.settings.domain == "box" else 1.0 / max(1, len(self.peers))
        self.pairs = {peer: Pair(initial) for peer in self.peers}

    def pair(self, peer: str) -> Pair:
        """What is known of `peer`; one that was not there at the start begins as a newcomer."""
        pair = self.pairs.get(peer)
        if pair is None:
            pair = self.pairs[peer] = Pair(1.0 if self.settings.domain == "box" else 0.0)
        return pair

    def peer_changed(self, peer: str, up: bool) -> None:
        """One that is gone is forgotten at once."""
        super().peer_changed(peer, up)
        if not up:
            self.forget_strangers()

    def forget_strangers(self) -> None:
        """Whoever is no peer pulls no more; on the simplex its share is the others'.

        Not everybody who leaves a sampled view is reported as gone, so this is looked up now and then. By the
        time that it is a peer again, its model would be too old to be of use.
        """
        peers = set(self.peers)
        strangers = [pair for name, pair in self.pairs.items() if name not in peers]
        for pair in strangers:
            pair.model = None
        if self.settings.domain == "simplex" and any(pair.weight != 0 for pair in strangers):
            for pair in strangers:
                pair.weight = 0.0
            self.share_out(self.row())

    def row(self) -> dict[str, float]:
        """On the simplex: each peer's share."""
        return {name: float(self.pair(name).weight) for name in self.peers}

    def share_out(self, row: Mapping[str, float]) -> None:
        """Give the peers the shares of 1 that are nearest to the numbers in `row`."""
        if row:
            for name, weight in zip(row, project_on_simplex(list(row.values())), strict=True):
                self.pair(name).weight = float(weight)

    def weights(self) -> Mapping[str, float | Scalar]:
        if self.settings.domain == "box":
            return {peer: pair.weight for peer, pair in self.pairs.items()}
        return {peer: self.pairs[peer].weight for peer in self.peers if peer in self.pairs}

    @property
    def weights_are_shares(self) -> bool:
        return self.settings.domain == "simplex"

    async def step(self) -> None:
        if self.settings.mode == "synchronous":
            await self.take_round()
        else:
            await self.iterate()

    # --- the weights ----------------------------------------------------------------------------------------

    def ascend(self, peer: str, product: Scalar) -> None:
        """One projected gradient step on the weight of `peer` (eq. 4); on the simplex only a peer has one."""
        pair = self.pair(peer)
        pair.version += 1
        if self.settings.domain == "simplex":
            self.forget_strangers()
        moved = pair.weight + self.settings.gamma * product
        assert not isinstance(moved, float)
        if self.settings.domain == "box":
            pair.weight = moved.clip(0.0, 1.0)
        elif self.is_peer(peer):
            self.share_out(self.row() | {peer: float(moved)})

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
        own: dict[str, Vector] = {}
        for peer, model in received.items():
            # Of coin, iteration and number of clients both ends must think alike, or one waits for the other
            # in vain: so the round counts, not the client's own iterations, and the larger neighbourhood.
            clients = max(self.degree, model.degree) + 1
            pair = sorted((self.name, peer))
            coin = shared_uniform(self.surroundings.shared_seed, "pair", *pair, self.round)
            if model.partner and coin < pair_probability(self.settings, self.round + 1, clients):
                own[peer] = await self.gradient((self.params + model.params) / 2)
                held = self.pair(peer)
                self.tell(peer, RoundGradient(own[peer], self.round, held.version, held.weight))
        answers = await self.collect(
            RoundGradient,
            own,
            timeout=self.settings.patience,
            where=lambda answer: answer.round == self.round,
        )
        self.discard(RoundGradient, lambda answer: answer.round <= self.round)
        for peer, answer in answers.items():
            self.adopt(peer, answer.version, answer.weight)
            self.ascend(peer, self.dot(own[peer], answer.gradient))

    # --- asynchronous ---------------------------------------------------------------------------------------

    async def iterate(self) -> None:
        """Train with pulls to the models last received, pass the model on, start updates of some pairs."""
        update = await self.train(self.settings.local_steps, pulls=self.pulls(self.latest_models()))
        self.params = self.params + update
        if self.settings.exchange == "all":
            for peer in self.peers:
                self.tell(peer, LatestModel(self.params, self.now))
        half = pair_probability(self.settings, self.iterations + 1, len(self.peers) + 1) / 2
        for peer in self.peers:
            if self.rng.random() < half:
                self.spawn(self.update_pair(peer))

    def latest_models(self) -> dict[str, Vector]:
        """The last model received from each peer that is believed to be up."""
        latest = {}
        self.forget_strangers()
        for peer in self.peers:
            pair = self.pair(peer)
            if pair.model is not None:
                self.observe("staleness", self.now - pair.model_time)
                latest[peer] = pair.model
        return latest

    async def update_pair(self, peer: str) -> None:
        """Ask one peer for its gradient at our midpoint, and agree on a new weight."""
        pair = self.pair(peer)
        if pair.asking or self.now < pair.answering_until:
            return
        pair.asking = True
        sent = self.params
        request = PairRequest(sent, self.now, pair.version, pair.weight)
        try:
            answer = await self.ask(peer, request, timeout=self.settings.patience)
            if isinstance(answer, PairAnswer):
                self.remember(peer, answer.params, answer.time)
                own = await self.gradient((sent + answer.params) / 2)
                self.adopt(peer, answer.version, answer.weight)
                product = self.dot(own, answer.gradient)
                self.ascend(peer, product)
                self.tell(peer, PairResult(pair.version, pair.weight, product))
        except (PeerUnavailable, RemoteError):
            self.suspect(peer)
        finally:
            pair.asking = False

    def heard(self, message: object, sender: str) -> bool:
        """Models count from their arrival on: a handler may be busy with a gradient for long."""
        if super().heard(message, sender):
            return True
        if isinstance(message, LatestModel | PairRequest) and self.is_peer(sender):
            self.remember(sender, message.params, message.time)
        return isinstance(message, LatestModel)

    async def on_message(self, message: object, sender: str) -> object:
        match message:
            case PairRequest():
                return await self.answer_pair(message, sender)
            case PairResult():
                self.take_result(message, sender)
        return None

    async def answer_pair(self, request: PairRequest, sender: str) -> PairAnswer | PairBusy:
        """Gradient at the midpoint with the asker. When both ask at once, the first one by name goes on."""
        pair = self.pair(sender)
        if self.now < pair.answering_until or (pair.asking and self.name < sender):
            return PairBusy()
        pair.answering_until = self.now + self.settings.patience
        self.adopt(sender, request.version, request.weight)
        own, time = self.params, self.now
        gradient = await self.gradient((own + request.params) / 2)
        return PairAnswer(own, gradient, time, pair.version, pair.weight)

    def take_result(self, result: PairResult, sender: str) -> None:
        """The asker has computed the pair's new weight."""
        pair = self.pair(sender)
        pair.answering_until = -math.inf
        if result.version <= pair.version:
            return  # overtaken by a later update
        if self.settings.domain == "box":
            self.adopt(sender, result.version, result.weight)
        else:
            self.ascend(sender, result.product)
            pair.version = result.version

    def adopt(self, peer: str, version: int, weight: float | Scalar) -> None:
        """Take over a weight that has seen more updates; on the simplex each row is its client's own."""
        pair = self.pair(peer)
        if self.settings.domain == "box" and version > pair.version:
            pair.weight, pair.version = weight, version

    def remember(self, peer: str, params: Vector, time: float) -> None:
        """Keep the latest model of a peer."""
        pair = self.pair(peer)
        if pair.model is None or time >= pair.model_time:
            pair.model, pair.model_time = params, time
