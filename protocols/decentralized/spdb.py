"""SPDB: neighbors agree on a backbone by a primal-dual method, and each keeps its own head.

Lu, Cui, Squillante, Kingsbury and Horesh, "Decentralized bilevel optimization for personalized client
learning" (ICASSP 2022): min over x_1 = ... = x_n of sum_i f_i(x_i, y_i*(x_i)), where y_i*(x) minimizes
g_i(x, y) over y. Here, as in SCooL's tables, x is the backbone and y_i client i's head, and f_i = g_i is its
loss. In rounds with a barrier among neighbors:

    y_i  <- y_i - eta grad_y f_i(x_i, y_i)                       `head_steps` times, alone
    x_i  <- sum_j W_ij x_j - eta grad_x f_i(x_i, y_i) - sum_j l_ij
    l_ij <- l_ij + theta W_ij (x_i - x_j), with the x before this step    W: Metropolis-Hastings weights

l_ij are the multipliers of x_i = x_j, times eta, and the mixing is the gradient of the penalty on x_i - x_j.
theta is `dual_rate`. Without multipliers (theta = 0), the method is D-PSGD on backbones, in which
heterogeneous clients do not agree at a constant eta; with theta = 1/2, it is EXTRA (Shi, Ling, Wu and Yin
2015), in which they do. As f_i = g_i, the gradient of f_i with respect to y is 0 at y_i*(x), and so are the
terms of the upper level's gradient besides grad_x f_i.

Differences from the paper (its text was not available): its primal-dual update could not be checked. If x and
y had different losses, the implicit part of the gradient would also be needed. l_ij = -l_ji as long as both
ends see the same models; a pair that has missed a round restarts at 0. There is no asynchronous form:
one-sided updates of multipliers would shift the mean of all backbones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from actors.settings.quantities import Count, CountOrZero
from protocols.framework.client import Client
from protocols.framework.mathematics import metropolis_weights
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    common_start_requirement,
    plain_sgd_requirements,
    two_way_links_requirement,
)
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.averaging import neighbour_mean
from protocols.shared.silence import PatienceSettings


@dataclass(frozen=True)
class Multiplier:
    """Multiplier l_ij of x_i = x_j, with the factor eta, and the last round in which it changed."""

    round: int
    value: Vector


class SPDBSettings(PatienceSettings):
    """Agree on a backbone with the neighbors, and keep a head."""

    changing = ("local_steps",)

    local_steps: Count = 1
    """Alternations of head and backbone in a round."""
    head_steps: CountOrZero = 1
    """Steps of the head before each step of the backbone; with 0 both change in the same step."""
    dual_rate: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Step theta of the multipliers; 0 is D-PSGD on backbones."""


class SPDB(Client):
    """Client that shares its backbone with its neighbors."""

    Settings = SPDBSettings
    search_space = SearchSpace(
        "the paper's text was not available; around coterie's defaults",
        {
            "head_steps": OneOf((1, 2, 5)),
            "dual_rate": Range(0.05, 1.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: SPDBSettings
    collected = (RoundModel,)
    parts: ClassVar[tuple[str, ...] | None] = ()

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (
            *two_way_links_requirement(settings),
            common_start_requirement("shared", "shared-backbone"),
            *plain_sgd_requirements("is a stochastic-gradient method"),
        )

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience, announced=self.announced)
        self.multipliers: dict[str, Multiplier] = {}

    @property
    def backbone(self) -> Vector:
        """Backbone x_i."""
        return self.part(self.params, "backbone")

    def announced(self) -> RoundModel:
        """Return the message to the neighbors: the backbone."""
        return RoundModel(self.backbone, len(self.peers), self.now)

    async def step(self) -> None:
        """Run one round: send the backbone, train, and take a step with the neighbors' backbones."""
        self.rounds.announce()
        before = self.backbone
        change = await self.turns()
        models = await self.rounds.gather()
        after = neighbour_mean(before, self.shares(models), models) + change
        pushes = [(-1.0, each.value) for each in self.multipliers.values()]
        self.multipliers = self.moved(before, models)
        self.params = self.with_part(self.params, "backbone", mix([(1.0, after), *pushes]))

    async def turns(self) -> Vector:
        """Train head and backbone alternately; keep the trained head, and return the backbone's change.

        With `head_steps` = 0, each step trains both at once.
        """
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
        """Return the weights W_ij of the partners."""
        return metropolis_weights(self.rounds.degree, {peer: model.degree for peer, model in models.items()})

    def moved(self, own: Vector, models: Mapping[str, RoundModel]) -> dict[str, Multiplier]:
        """Return the multipliers after a step, for the partners that also wait for this client.

        The multiplier of a pair that missed the previous round starts from 0. The result is empty with
        `dual_rate` = 0.
        """
        found, rate = {}, self.settings.dual_rate
        shares = self.shares(models)
        for peer, model in models.items() if rate else ():
            if not self.rounds.is_mutual(peer):
                continue  # it ignores this client
            step = rate * shares[peer] * (own - model.params)
            known = self.multipliers.get(peer)
            going_on = known is not None and known.round == self.rounds.number - 1
            found[peer] = Multiplier(self.rounds.number, known.value + step if known and going_on else step)
        return found
