"""meta-L2C: a small network computes the weights of other clients from their updates.

Li, Zhou, Tian and Tao, "Learning to collaborate in decentralized learning of personalized models" (CVPR
2022). With client i's encoder E(.; phi_i), its update u_i of some local epochs and its neighbors' u_j, in
rounds with a barrier among neighbors:

    w_i     <- softmax over j, i included, of <E(u_i; phi_i), E(u_j; phi_i)> / temperature
    theta_i <- theta_i + sum_j w_ij u_j
    phi_i   <- phi_i - r s/||s||,     s: gradient of the new theta_i's validation loss with respect to phi_i
    phi_i   <- mean of phi_i and its neighbors'

s needs one gradient g on the held-out samples, at the new theta_i: it is the gradient of
sum_j w_ij(phi) <g, u_j>. The encoder, which all clients average, also gives weights to clients never seen
before. After `sparse_after` rounds a client mixes only with the neighbors with the largest mean weights
(`kept`), and with neighbors that join later. If one of them leaves, the best of the others replaces it.

Asynchronous: a client trains without pause, sends each update to all peers, and mixes its own with those that
have arrived meanwhile, only the last of each peer. A client far behind its peers keeps its own update if the
mixture has a higher loss on its held-out samples (`safeguard`).

Differences from the paper (its text was not available): this follows its abstract, and SCooL's description of
the method. E is a perceptron with one hidden layer (tanh). Its input is a sketch of the update: the
normalized update is multiplied by signs that all clients know, and added up in `sketch` groups. A sketch
preserves inner products on average, and its size keeps phi small for models of any size. Each step of phi has
the length r. Clients that are no longer mixed with still get updates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from actors.settings.quantities import Count, PositiveWeight, Weight
from protocols.framework.client import Client
from protocols.framework.mathematics import shared_rng
from protocols.framework.per_peer import PerPeer
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    common_start_requirement,
    two_way_links_requirement,
)
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Scalar, Vector, mix
from protocols.shared.pace import RelativePace
from protocols.shared.safeguard import Safeguard
from protocols.shared.silence import PatienceSettings

_EPSILON = 1e-12
_SMALLEST = 1e-38  # about the smallest share in float32: with a low temperature a share may be 0


@dataclass(frozen=True)
class LatestUpdate:
    """Last update of the sender and its encoder, concatenated, at `time` (seconds); asynchronous form."""

    params: Vector
    time: float


class MetaL2CSettings(PatienceSettings):
    """Mix the neighbors' updates with weights that a network computes from them."""

    changing = ("local_steps", "local_epochs")

    mode: Literal["synchronous", "asynchronous"] = "synchronous"
    """Rounds with all neighbors, or without rounds, with the updates that have arrived."""
    local_epochs: Count = 1
    """Passes over the client's samples in an iteration; each drops the last incomplete batch."""
    local_steps: Count | None = None
    """Training steps in an iteration, instead of `local_epochs`."""
    temperature: PositiveWeight = 1.0
    """Divisor of the products of codes; with a smaller divisor, fewer neighbors count."""
    encoder_rate: Weight = 0.3
    """Length r of a step of the encoder's parameters."""
    sketch: Count = 64
    """Length of the sketch of an update, the encoder's input."""
    hidden: Count = 10
    """Hidden units of the encoder."""
    codes: Count = 5
    """Length of the encoder's output."""
    kept: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the neighbors with which a client mixes after `sparse_after`; at least one neighbor."""
    sparse_after: Count = 10
    """Iterations with all neighbors; their weights determine which neighbors are kept."""
    safeguard: bool = True
    """In the asynchronous form, let a client that is less than half as fast as its peers compare models on
    held-out samples, and keep the result of its own training if the help of peers is worse."""


def sketch_update(update: Tensor, signs: Tensor, size: int) -> Tensor:
    """Return the sketch [size] of an update [P]: the sums of every size-th signed value.

    The update is first scaled to length 1.
    """
    unit = update * signs / (torch.linalg.vector_norm(update) + _EPSILON)
    return torch.nn.functional.pad(unit, (0, -unit.shape[0] % size)).reshape(-1, size).sum(dim=0)


def encode_sketch(phi: Tensor, sketch: Tensor, hidden: int, codes: int) -> Tensor:
    """Return the code [codes] of a sketch; phi: the hidden layer's matrix and biases, and the last matrix."""
    inner = hidden * sketch.shape[0]
    units = torch.tanh(phi[:inner].reshape(hidden, -1) @ sketch + phi[inner : inner + hidden])
    return phi[inner + hidden :].reshape(codes, hidden) @ units


def shares(phi: Tensor, sketches: Tensor, hidden: int, codes: int, temperature: float) -> Tensor:
    """Return the weights [n] that the first of n clients gives to their updates, from sketches [n, size]."""
    found = torch.stack([encode_sketch(phi, row, hidden, codes) for row in sketches])
    return torch.softmax(found @ found[0] / temperature, dim=0)


def attention(phi: Tensor, signs: Tensor, *updates: Tensor, size: int, **encoder: Any) -> tuple[Tensor, ...]:
    """Return the weight that the client of the first update gives to each update [P]."""
    sketches = torch.stack([sketch_update(update, signs, size) for update in updates])
    return tuple(shares(phi, sketches, **encoder))


def encoder_slope(
    phi: Tensor, signs: Tensor, gradient: Tensor, *updates: Tensor, size: int, **encoder: Any
) -> Tensor:
    """Return the normalized gradient of a loss at the mixed model, with respect to phi.

    gradient: the gradient of the loss with respect to the mixed model [P].
    """
    sketches = torch.stack([sketch_update(update, signs, size) for update in updates])
    worth = torch.stack(updates) @ gradient

    def value(phi: Tensor) -> Tensor:
        return shares(phi, sketches, **encoder) @ worth

    slope: Tensor = torch.func.grad(value)(phi)
    return slope / (torch.linalg.vector_norm(slope) + _EPSILON)


def concatenate_update(update: Tensor, phi: Tensor) -> Tensor:
    """Return both vectors, concatenated."""
    return torch.cat([update, phi])


class MetaL2CBase(Client):
    """Common base of both forms of meta-L2C."""

    Settings = MetaL2CSettings
    settings: MetaL2CSettings
    collected = (RoundModel,)
    weights_are_shares = True

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, MetaL2CSettings)
        needed = "has an encoder that learns from held-out samples; must be more than 0"
        in_rounds = settings.mode == "synchronous"
        return (
            *(two_way_links_requirement(settings) if in_rounds else ()),
            common_start_requirement("shared"),
            Requirement("data.validation_share", lambda share: share > 0, needed),
        )

    def setup(self) -> None:
        chosen = self.settings
        rng = shared_rng(self.context.shared_seed, "meta-l2c")
        [width] = self.params.shape
        self.signs = self.trainable(self.vector(rng.choice([-1.0, 1.0], size=width)))
        inner = rng.standard_normal(chosen.hidden * chosen.sketch)  # for a sketch of length 1
        outer = rng.standard_normal(chosen.codes * chosen.hidden) / np.sqrt(chosen.hidden)
        self.phi: Vector = self.vector(np.concatenate([inner, np.zeros(chosen.hidden), outer]))
        self.update: Vector = 0.0 * self.params
        self.shares = PerPeer[tuple[Scalar, Scalar]](self)  # of a peer, and of this client at the same time
        self.worth = PerPeer[list[Scalar]](self, list)  # weights until `sparse_after`
        # Peers no longer mixed with, and their mean weights; a peer that returns gets another chance.
        self.dropped = PerPeer[float](self, on_departure=self.replace_departed)
        self.round_trips.wait_at_first(self.settings.patience)

    def shared_vector(self) -> Vector:
        """Return the last update and the encoder; an update of zeros if the client no longer trains."""
        update = 0.0 * self.update if self.finished else self.update
        found: Vector = self.apply(concatenate_update, update, self.phi)
        return found

    async def local_update(self) -> Vector:
        """Return the update of local training, with a fresh optimizer."""
        settings = self.settings
        steps = settings.local_steps or settings.local_epochs * self.compute.steps_per_epoch
        return await self.train(steps, fresh_optimizer=True)

    async def aggregate(self, received: Mapping[str, Vector]) -> None:
        """Mix the updates by their weights, and improve the encoder."""
        [width] = self.params.shape
        mixed = [peer for peer in received if peer not in self.dropped]
        updates = [self.update, *[received[peer][:width] for peer in mixed]]
        weights = self.apply(attention, self.phi, self.signs, *updates, **self.encoder)
        mixture = self.params + mix(list(zip(weights, updates, strict=True)))
        self.params = await self.accepted(mixture, helped=bool(mixed))
        takes_help = self.params is mixture
        latest = dict(zip(mixed, weights[1:], strict=True))
        self.choose(latest)
        self.shares |= {peer: (share, weights[0]) for peer, share in latest.items()}
        for peer in self.dropped:
            self.shares.pop(peer, None)
        if mixed and takes_help and self.settings.encoder_rate and not self.finished:
            gradient = await self.gradient(self.params, on="validation")
            slope = self.apply(encoder_slope, self.phi, self.signs, gradient, *updates, **self.encoder)
            self.phi = self.phi - self.settings.encoder_rate * slope
        encoders = [self.phi, *[each[width:] for each in received.values()]]
        self.phi = mix([(1 / len(encoders), phi) for phi in encoders])

    async def accepted(self, mixture: Vector, *, helped: bool) -> Vector:
        """Return the model to continue from; `helped`: whether the mixture has updates of peers."""
        return mixture

    @property
    def encoder(self) -> dict[str, Any]:
        """Arguments of the encoder, which are the same for all clients."""
        settings = self.settings
        return {
            "size": settings.sketch,
            "hidden": settings.hidden,
            "codes": settings.codes,
            "temperature": settings.temperature,
        }

    def choose(self, latest: Mapping[str, Scalar]) -> None:
        """After `sparse_after` iterations, drop all neighbors but the share `kept` with the largest weights.

        `latest`: the weights in this iteration. Each neighbor's mean weight so far counts. Later calls do
        nothing, and no call does anything if `kept` is 1.
        """
        if self.settings.kept == 1 or self.iterations >= self.settings.sparse_after:
            return
        for peer, share in latest.items():
            self.worth[peer].append(share)
        if self.iterations + 1 == self.settings.sparse_after:
            means = {peer: float(sum(seen, 0.0)) / len(seen) for peer, seen in self.worth.items()}
            ranked = sorted(means, key=lambda peer: -means[peer])
            self.dropped.replace({peer: means[peer] for peer in ranked[self._kept_of(len(ranked)) :]})
            self.worth.clear()

    def _kept_of(self, count: int) -> int:
        """Return how many of `count` neighbors to mix with."""
        return max(1, round(self.settings.kept * count))

    def replace_departed(self, gone: str, mean: float | None) -> None:
        """Mix with the best dropped peers again, if the departure of a peer leaves too few others.

        `gone`: the peer that has left. `mean`: the mean weight of this peer if it was dropped; not used.
        """
        mixed = [other for other in self.peers if other not in self.dropped]
        ranked = sorted(
            [other for other in self.dropped if other != gone], key=lambda other: -self.dropped[other]
        )
        for other in ranked[: max(0, self._kept_of(len(self.peers)) - len(mixed))]:
            del self.dropped[other]

    def weights(self) -> Mapping[str, float | Scalar]:
        return {peer: share for peer, (share, _) in self.shares.items()}


@final
class MetaL2CAsynchronous(MetaL2CBase):
    """meta-L2C without rounds: updates are mixed as they arrive."""

    def setup(self) -> None:
        super().setup()
        self.arrived = PerPeer[LatestUpdate](self)
        self.pace = RelativePace(self)
        self.updates_of = PerPeer(self, int)  # number of updates received from each peer
        self.safeguard = Safeguard(
            self, self.pace, enabled=self.settings.safeguard, held_back=True, rests_first=True
        )

    async def run(self) -> None:
        self.arrived.clear()  # updates of an earlier session would be mixed in as if they were new
        self.pace.paces.clear()
        await super().run()

    async def step(self) -> None:
        self.update = await self.local_update()
        latest = LatestUpdate(self.shared_vector(), self.now)
        for peer in self.peers:
            self.tell(peer, latest)
        arrived = dict(self.arrived)
        self.arrived.clear()
        await self.aggregate({peer: arrived[peer].params for peer in sorted(arrived)})

    async def on_message(self, message: object, sender: str) -> None:
        match message:
            case LatestUpdate(_, time):
                self.context.report(self.name, "staleness", self.now - time)
                self.arrived[sender] = message
                self.updates_of[sender] += 1
                self.pace.met(sender, time, self.updates_of[sender])

    async def accepted(self, mixture: Vector, *, helped: bool) -> Vector:
        """Return the mixture, or the model trained alone if the safeguard chooses it.

        The safeguard, if enabled, compares both for a client that is far behind its peers.
        """
        return await self.safeguard.best(self.params + self.update, mixture) if helped else mixture

    def weights(self) -> Mapping[str, float]:
        """Return weights by peer, as if all peers' updates had been in one softmax.

        In fact, each iteration mixes only the updates that have arrived.
        """
        beside_own = {
            peer: float(share) / max(float(own), _SMALLEST) for peer, (share, own) in self.shares.items()
        }
        total = 1.0 + sum(beside_own.values())
        return {peer: times / total for peer, times in beside_own.items()}


@final
class MetaL2C(MetaL2CBase):
    """Client of meta-L2C in rounds."""

    search_space = SearchSpace(
        "the paper's text was not available; a decade on each side of coterie's defaults",
        {
            "temperature": Range(0.1, 10.0, log=True),
            "encoder_rate": Range(0.03, 3.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    collected = (RoundModel,)
    asynchronous = MetaL2CAsynchronous

    def setup(self) -> None:
        super().setup()
        self.rounds = Rounds(self, self.settings.patience, announced=self._announced)

    def _announced(self) -> RoundModel:
        """Return the message to the neighbors in a round."""
        return RoundModel(self.shared_vector(), len(self.peers), self.now)

    async def step(self) -> None:
        self.update = await self.local_update()
        self.rounds.announce()
        models = await self.rounds.gather()
        self.shares.clear()  # those of the previous round; without rounds each is valid until the next update
        await self.aggregate({peer: model.params for peer, model in models.items()})
