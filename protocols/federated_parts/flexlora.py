"""FlexLoRA: a server averages products of adapters, and gives each client the best factors of its own rank.

Bai, Chen, Qian, Yao and Li, "Federated fine-tuning of large language models under heterogeneous tasks and
client resources" (2024), with the adapter s_i A_i B_i of rank r_i of client i, on a common frozen base:

    each round: (A_i, B_i) <- the factors from the server, for the sampled clients i
                (A_i, B_i) <- E local epochs
                W <- sum_i n_i s_i A_i B_i / sum_i n_i
                U S V^T <- the SVD of W
                for client i: A_i <- the first r_i columns of U, s_i B_i <- the first r_i rows of S V^T

The sum is exact, although the mean of A_i times the mean of B_i would not be; by the theorem of Eckart and
Young, no factors of rank r_i are closer to it. With `[[model_group]]`, clients have adapters of different
ranks. The rounds are as in `protocols.shared.server_rounds`. Until there is an average, a client trains its
own initial factors. The server sends factors of the largest rank that it has seen to a client whose rank it
does not know, and the client cuts them. A client is evaluated by the last factors that it received.

Differences from the paper: adapters are stored transposed (`x A B`). All singular values go into one factor,
as in the paper: here, this factor is B. The SVD takes no virtual time.

Limits: with all singular values in one factor, training diverges at learning rates at which averages of
adapters of equal rank still converge. FlexLoRA may therefore be worse than training alone if messages
are lost, which also slows it down. Each cut to a small rank loses a part of what the client has learned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocols.framework.requirements import ProtocolSettings, Requirement
from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.low_rank import (
    LORA,
    Sizes,
    TrainedFactors,
    best_factors,
    concatenated_factors,
    refit_factors,
    sizes_and_places,
    sizes_of_largest_rank,
    sum_of_products,
    weighted_factors,
    with_factors,
)
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class FactorsTask(RoundTask):
    """Task to train from these factors of these sizes; with None, the client keeps its own."""

    factors: Vector | None
    sizes: Sizes
    round: int


@dataclass(frozen=True)
class NewFactors:
    """Factors of the new average, and their sizes."""

    factors: Vector
    sizes: Sizes


class FlexLoRASettings(RoundSettings):
    """Average products of adapters, and cut them to each client's rank."""


class FlexLoRAServer(RoundServer):
    """Server that averages products of adapters."""

    average: Vector | None = None
    """Last average of products."""

    def setup(self) -> None:
        self.sizes: dict[str, Sizes] = {}
        self.cut: dict[Sizes, Vector] = {}

    def task(self, client: str, number: int) -> RoundTask:
        factors, sizes = self.factors_for(client)
        return FactorsTask(factors, sizes, number)

    def factors_for(self, client: str) -> tuple[Vector | None, Sizes]:
        """Return the factors that best approximate the average, and their sizes.

        Before the first average, the factors are None, and the sizes are empty. The ranks are the client's
        ranks if the server knows them, or else the largest known ranks.
        """
        if self.average is None:
            return None, ()
        sizes = self.sizes.get(client) or sizes_of_largest_rank(list(self.sizes.values()))
        if sizes not in self.cut:
            self.cut[sizes] = self.apply(best_factors, self.average, sizes=sizes)
        return self.cut[sizes], sizes

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        self.sizes |= {client: answer.sizes for client, answer in answers.items()}
        weights, factors, sizes = weighted_factors(answers)
        self.average = self.apply(sum_of_products, weights, *factors, sizes=tuple(sizes))
        self.cut = {}

    def news(self, client: str) -> object | None:
        factors, sizes = self.factors_for(client)
        return None if factors is None else NewFactors(factors, sizes)


class FlexLoRA(RoundClient):
    """Client with adapters of its own rank."""

    Settings = FlexLoRASettings
    search_space = SearchSpace(
        "only the local work",
        {
            "local_steps": LOCAL_STEPS,
        },
    )
    server = FlexLoRAServer
    heterogeneous = True

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (LORA,)

    def setup(self) -> None:
        self.sizes, self.places = sizes_and_places(self.context.model, "FlexLoRA")

    async def work(self, task: Any) -> object:
        self.params = self.params if task.factors is None else self.refitted(task)
        trained = await self.trained(self.params)
        factors = self.apply(concatenated_factors, trained, sizes=self.sizes, places=self.places)
        return TrainedFactors(factors, self.sizes, self.samples)

    def learn(self, news: Any) -> None:
        self.params = self.refitted(news)

    def refitted(self, given: FactorsTask | NewFactors) -> Vector:
        """Return the model with the given factors, cut to the client's rank."""
        factors: Any = given.factors
        if given.sizes != self.sizes:
            own = self.apply(concatenated_factors, self.params, sizes=self.sizes, places=self.places)
            factors = self.apply(refit_factors, factors, own, given=given.sizes, sizes=self.sizes)
        model: Vector = self.apply(with_factors, self.params, factors, sizes=self.sizes, places=self.places)
        return model
