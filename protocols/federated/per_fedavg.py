"""Per-FedAvg: a common model that one step of gradient descent turns into a good personal model.

Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: A model-agnostic
meta-learning approach" (NeurIPS 2020), algorithm 1, for min_w 1/n sum_i f_i(w - alpha grad f_i(w)):

    each round: w_i <- w for the sampled clients i
                tau times: u   <- w_i - alpha g_i(w_i; D)
                           w_i <- w_i - beta (I - alpha H_i(w_i; D'')) g_i(u; D')
                w <- mean_i w_i

with gradients g_i and Hessians H_i on separate batches D, D', D''. Per-FedAvg (HF), the default, takes

    H_i(w) v = (g_i(w + delta v; D'') - g_i(w - delta v; D'')) / (2 delta)

and the first-order form, Per-FedAvg (FO), omits H_i. A client is evaluated by its personal model
w - alpha g_i(w) (`personal_steps` of them), with w the last common model that it was given to train,
which is also measured. beta is the scenario's learning rate.

The gradients on D and D' are training steps, which a budget counts: tau local steps are 2 tau steps, and the
personal model takes some more. The gradients for H_i count as gradients, not as steps.

Differences from the paper: it evaluates w after the last round only; here, each round also makes a personal
model from the round's initial model. Exact Hessians are omitted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from actors.settings.quantities import Count, PositiveWeight, Weighing
from protocols.framework.requirements import ProtocolSettings, Requirement, plain_sgd_requirements
from protocols.framework.search_space import LOCAL_STEPS, OneOf, Range, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, averaged


class PerFedAvgSettings(RoundSettings):
    """Average models that a gradient step adapts to each client."""

    adaptation_rate: PositiveWeight = 0.01
    """Learning rate alpha of the step that adapts a model."""
    hessian: Literal["differences", "none"] = "differences"
    """Second derivatives by differences of gradients (HF), or none (FO)."""
    difference: PositiveWeight = 0.001
    """Distance delta between w and the models at which these gradients are computed, in lengths of a
    gradient."""
    personal_steps: Count = 1
    """Steps that adapt the model that is evaluated."""
    weights: Weighing = "equal"
    """Weights of clients in the average: by their numbers of samples, or equal (paper)."""


class PerFedAvgServer(RoundServer):
    """Server that averages whole models."""

    settings: PerFedAvgSettings

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        self.params = averaged(answers, self.settings.weights)


class PerFedAvg(RoundClient):
    """Client that trains the common model to be good after one further step."""

    Settings = PerFedAvgSettings
    search_space = SearchSpace(
        "the paper's text was not available; from a tenth of coterie's default to the rates of plain SGD",
        {
            "adaptation_rate": Range(0.001, 0.5, log=True),
            "personal_steps": OneOf((1, 5, 20)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: PerFedAvgSettings
    server = PerFedAvgServer
    personal: Vector | None = None
    """Adapted model; None before the first round of this session."""

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return plain_sgd_requirements("uses single gradients as steps")

    async def trained(self, start: Vector) -> Vector:
        """Return the common model after the local steps of a round; also update the personal model."""
        if self.compute.steps_left:  # otherwise the budget is exhausted, and the last personal model stays
            self.personal = await self.adapted(start, self.settings.personal_steps)
        params = start
        for _ in range(self.steps_of_a_round):
            change = await self.train(start=await self.adapted(params))
            if self.settings.hessian == "differences":
                curved = await self.hessian_product(params, change)
                change = change - self.settings.adaptation_rate * curved
            params = params + change
        return params

    async def hessian_product(self, params: Vector, change: Vector) -> Vector:
        """Return the Hessian H_i(w) times an update, from gradients on one batch on both sides of w."""
        rate, batch = self.compute.learning_rate, self.batch()
        aside = change * (
            self.settings.difference / rate
        )  # the length of an update is that of a gradient times the rate
        ahead = await self.gradient(params + aside, on=batch)
        behind = await self.gradient(params - aside, on=batch)
        return (ahead - behind) * (rate / (2 * self.settings.difference))

    async def adapted(self, params: Vector, steps: int = 1) -> Vector:
        """Return a model after steps of gradient descent with the rate alpha."""
        rate = self.settings.adaptation_rate
        return params + await self.train(steps, start=params, learning_rate=rate)

    def evaluated(self) -> Mapping[str, Vector]:
        return {"personal": self.personal or self.params, "common": self.params}
