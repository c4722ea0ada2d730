"""FedAvg+: federated averaging in which each client keeps its fine-tuned global model.

Jiang, Konecny, Rush and Kannan, "Improving federated learning personalization via model agnostic meta
learning" (2019); "Fine-tuning FedAvg" or "FedAvg+" in the tables of others:

    each round, by `fedavg`: x_i <- E local epochs from x;   x <- sum_i n_i x_i / sum_i n_i
    personal model: E' local epochs from the global model

The local training of a round serves as this fine-tuning (E' = E), so it costs nothing more: a client is
evaluated by its last trained model, from the last round in which it was sampled.
"""

from collections.abc import Mapping
from typing import Any

from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.server_rounds import Contribution, GlobalModel, RoundClient


class FedAvgPlus(RoundClient):
    """Client of federated averaging that keeps a personal model."""

    search_space = SearchSpace(
        "as federated averaging",
        {
            "local_steps": LOCAL_STEPS,
        },
    )
    shared: Vector | None = None
    """Last global model that the client received."""

    async def work(self, task: Any) -> object:
        self.shared = task.params
        trained = await self.trained(task.params)
        if not self.finished:  # otherwise the model is untrained
            self.params = trained
        return Contribution(trained, self.samples)

    def learn(self, news: GlobalModel) -> None:
        self.shared = news.params

    def evaluated(self) -> Mapping[str, Vector]:
        return {"personal": self.params, "shared": self.params if self.shared is None else self.shared}
