"""SPDB: neighbours agree on a backbone by a primal-dual method, and each has a head of its own for it.

Lu, Cui, Squillante, Kingsbury and Horesh, "Decentralized bilevel optimization for personalized client
learning" (ICASSP 2022): min over x_1 = ... = x_n of sum_i f_i(x_i, y_i*(x_i)), where y_i*(x) minimises
g_i(x, y) over y. Here, as in SCooL's tables, x is the backbone and y_i client i's head, and f_i = g_i is its
loss. In rounds with a barrier among neighbours:

    y_i  <- y_i - eta grad_y f_i(x_i, y_i)                       `head_steps` times, alone
    x_i  <- sum_j W_ij x_j - eta grad_x f_i(x_i, y_i) - sum_j l_ij
    l_ij <- l_ij + theta W_ij (x_i - x_j), with the x before     W: Metropolis-Hastings weights

l_ij are the multipliers of x_i = x_j, times eta, and the mixing is the gradient of the penalty on x_i - x_j:
without multipliers (`dual_rate` 0) it is D-PSGD on backbones, whose heterogeneous clients do not agree at a
constant eta; with theta = 1/2 it is EXTRA (Shi, Ling, Wu and Yin 2015), which they do. As f_i = g_i, the
gradient of f_i by y is 0 at y_i*(x), and with it what the upper level's gradient has beside grad_x f_i.

Differences to the paper, whose text was not at hand: which primal-dual update it has was not to be checked,
and with other losses for x than for y the implicit part of the gradient would be needed. l_ij = -l_ji as long
as both ends see the same models; a pair that has missed a round begins again at 0. There is no asynchronous
form: one-sided updates of multipliers would push the mean of all backbones away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from actors.settings.quantities import Count, CountOrZero
from protocols.framework.client import Client
from protocols.framework.mathematics import metropolis_weights
from protocols.framework.requirements import ProtocolSettings, Requirement, common_start, plain_sgd
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.vectors import Vector, mix
from protocols.shared.averaging import neighbour_mean
from protocols.shared.silence import PatienceSettings


@dataclass(frozen=True)
class Multiplier:
    """l_ij times eta, and the last round in which it moved."""

    round: int
    value: Vector


class SPDBSettings(PatienceSettings):
    """Agree on a backbone with the neighbours, and keep a head."""

    changing = ("local_steps",)

    local_steps: Count = 1
    """Turns of head and backbone in a round."""
    head_steps: CountOrZero = 1
    """Steps of the head before each step of the backbone; with 0 both move in the same step."""
    dual_rate: Annotated[float, Field(ge=0, le=1)] = 0.5
    """theta: the step of the multipliers; 0 is D-PSGD on backbones."""


class SPDB(Client):
    """A client that shares its backbone with its neighbours."""

    Settings = SPDBSettings
    settings: SPDBSettings
    collected = (RoundModel,)
    parts: ClassVar[tuple[str, ...] | None] = ()

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (common_start("shared", "shared-backbone"), *plain_sgd("is a method of stochastic gradients"))

    def begin(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience, announced=self.announced)
        self.multipliers: dict[str, Multiplier] = {}

    @property
    def backbone(self) -> Vector:
        """x_i."""
        return self.part(self.params, "backbone")

    def announced(self) -> RoundModel:
        """The message to the neighbours: the backbone."""
        return RoundModel(self.backbone, len(self.peers), self.now)

    async def step(self) -> None:
        """One round: send, train, and step once every neighbour's backbone of this round is there."""
        self.rounds.announce()
        before = self.backbone
        change = await self.turns()
        models = await self.rounds.gather()
        after = neighbour_mean(before, self.shares(models), models) + change
        pushes = [(-1.0, each.value) for each in self.multipliers.values()]
        self.multipliers = self.moved(before, models)
        self.params = self.with_part(self.params, "backbone", mix([(1.0, after), *pushes]))

    async def turns(self) -> Vector:
        """Train head and backbone by turns; keeps the heads, and returns the backbone's change."""
        params = self.params
        for _ in range(self.settings.local_steps):
            for _ in range(self.settings.head_steps):
                trained = params + await self.train(start=params)
                params = self.with_part(params, "head", self.part(trained, "head"))
            trained = params + await self.train(start=params)
            if self.settings.head_steps:
                params = self.with_part(params, "backbone", self.part(trained, "backbone"))
            else:
                params = trained
        change = self.part(params, "backbone") - self.backbone
        self.params = self.with_part(self.params, "head", self.part(params, "head"))
        return change

    def shares(self, models: Mapping[str, RoundModel]) -> dict[str, float]:
        """W_ij of the partners."""
        return metropolis_weights(self.rounds.degree, {peer: model.degree for peer, model in models.items()})

    def moved(self, own: Vector, models: Mapping[str, RoundModel]) -> dict[str, Multiplier]:
        """The multipliers after a step; those of pairs that were not both in this round and the last go."""
        found, rate = {}, self.settings.dual_rate
        shares = self.shares(models)
        for peer, model in models.items() if rate else ():
            if not self.rounds.is_mutual(peer):
                continue  # it takes no account of this client
            step = rate * shares[peer] * (own - model.params)
            known = self.multipliers.get(peer)
            going_on = known is not None and known.round == self.rounds.number - 1
            found[peer] = Multiplier(self.rounds.number, known.value + step if known and going_on else step)
        return found
