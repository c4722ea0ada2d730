"""Ditto: a personal model that is pulled towards the global model of federated averaging.

Li, Hu, Beirami and Smith, "Ditto: Fair and robust federated learning through personalization" (2021),
algorithm 1, with the global model w and client k's own v_k:

    each round: w_k <- E local epochs from w, for the sampled clients k
                v_k <- s steps of v_k - eta (grad F_k(v_k) + lambda (v_k - w))
                w <- sum_k n_k w_k / sum_k n_k

A client is evaluated by v_k, which starts at the same point as w. Both trainings count as steps.

Differences from the paper: contributions are weighted by their samples, as in `fedavg`; its algorithm 1
weights them equally.
"""

from collections.abc import Mapping
from typing import Any

from actors.settings.quantities import Count, Weight
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import Contribution, GlobalModel, RoundClient, RoundSettings


class DittoSettings(RoundSettings):
    """Average a global model, and train personal models that are pulled towards it."""

    strength: Weight = 0.5
    """Strength of the proximal term (lambda)."""
    personal_steps: Count | None = None
    """Training steps of the personal model in a round (s), instead of `personal_epochs`."""
    personal_epochs: Count = 1
    """Passes over the client's samples to train the personal model; each drops the last incomplete batch."""


class Ditto(RoundClient):
    """Client of federated averaging that also has a personal model."""

    Settings = DittoSettings
    search_space = SearchSpace(
        "strengths up to 2 and two decades below it; the paper's text was not available",
        {
            "strength": Range(0.01, 2.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: DittoSettings
    shared: Vector | None = None
    """Last global model that the client received."""

    async def work(self, task: Any) -> object:
        self.shared = task.params
        common = await self.trained(task.params)
        steps = self.settings.personal_steps or self.settings.personal_epochs * self.compute.steps_per_epoch
        proximal = [(self.settings.strength, task.params)]
        update = await self.train(steps, proximal=proximal, fresh_optimizer=True)
        self.params = self.params + update
        return Contribution(common, self.samples)

    def learn(self, news: GlobalModel) -> None:
        self.shared = news.params

    def evaluated(self) -> Mapping[str, Vector]:
        return {"personal": self.params, "shared": self.params if self.shared is None else self.shared}
