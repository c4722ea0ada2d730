"""FLoRA: a server stacks adapters of different ranks, and clients merge the stack into their models.

Wang et al., "FLoRA: Federated fine-tuning large language models with heterogeneous low-rank adaptations"
(2024), algorithm 1, with the adapter s_i A_i B_i of rank r_i of client i, on a common base W:

    each round: (A_i, B_i) <- fresh factors, for the sampled clients i: A_i is drawn, B_i = 0
                (A_i, B_i) <- E local epochs, with W frozen
                A <- [p_1 s_1 A_1, p_2 s_2 A_2, ...], B <- [B_1; B_2; ...], p_i = n_i / sum_j n_j
                W <- W + A B = W + sum_i p_i s_i A_i B_i, at each client

The sum is exact, without noise from products of factors of different clients. With `[[model_group]]`, clients
have adapters of different ranks. The rounds are as in `protocols.shared.server_rounds`. The stack of a round
comes with the next task; with `broadcast = "all"` it is sent as soon as it is made. A client that has missed
a stack gets the sum of all products instead, which has the size of the adapted layers. A client whose model
is not the one that the server expected, for example because it restarted, answers without training, and gets
the sum next.

Differences from the paper: adapters are stored transposed (`x A B`). All clients receive the stack at the end
of a round there, as here with `broadcast = "all"`. A client is evaluated by the last merged model that it
received.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocols.framework.requirements import ProtocolSettings, Requirement
from protocols.framework.search_space import LOCAL_STEPS, SearchSpace
from protocols.framework.vectors import Vector
from protocols.shared.low_rank import (
    LORA,
    Sizes,
    TrainedFactors,
    concatenated_factors,
    sizes_and_places,
    sum_of_products,
    weighted_factors,
    with_factors,
    with_products,
)
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class Stack:
    """Factors of all clients of a round, with their weights and sizes."""

    weights: tuple[float, ...]
    factors: tuple[Vector, ...]
    sizes: tuple[Sizes, ...]


@dataclass(frozen=True)
class Merge:
    """Step from one version of the merged products to another: the last stack, or all products.

    If both are None, the products are 0 (version 0), or the client already has them.
    """

    version: int
    stack: Stack | None
    products: Vector | None


@dataclass(frozen=True)
class MergeTask(RoundTask):
    """Task to merge, and to train fresh factors."""

    merge: Merge
    round: int


@dataclass(frozen=True)
class MergedFactors:
    """Answer of a client: its trained factors on a version of the merged products.

    trained = None and version = -1: the client could not merge, and needs all products.
    """

    trained: TrainedFactors | None
    version: int


class FLoRASettings(RoundSettings):
    """Stack the adapters of all clients, and merge them."""


class FLoRAServer(RoundServer):
    """Server that stacks adapters."""

    products: Vector | None = None
    """Sum of the products of all rounds so far; None before the first."""
    stack: Stack | None = None
    """Stack of the last round."""
    version = 0
    """Number of merged stacks."""

    def setup(self) -> None:
        self.known: dict[str, int] = {}  # each client's version

    def task(self, client: str, number: int) -> RoundTask:
        return MergeTask(self.merge_for(client), number)

    def merge_for(self, client: str) -> Merge:
        """Return the `Merge` that brings the client to the last version."""
        known = self.known.get(client, -1)
        if known == self.version or self.version == 0:
            return Merge(self.version, None, None)
        if known == self.version - 1:
            return Merge(self.version, self.stack, None)
        return Merge(self.version, None, self.products)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        self.known |= {client: answer.version for client, answer in answers.items()}
        trained = {client: answer.trained for client, answer in answers.items() if answer.trained is not None}
        if not trained:
            return
        weights, factors, sizes = weighted_factors(trained)
        self.stack = Stack(tuple(weights), tuple(factors), tuple(sizes))
        products = self.apply(sum_of_products, weights, *factors, sizes=tuple(sizes))
        self.products = products if self.products is None else self.products + products
        self.version += 1

    def news(self, client: str) -> object | None:
        # The client may not receive it, so `known` changes only with its next answer.
        return self.merge_for(client)


class FLoRA(RoundClient):
    """Client that trains fresh adapters of its own rank in each round, and merges all clients' products."""

    Settings = FLoRASettings
    search_space = SearchSpace(
        "only the local work",
        {
            "local_steps": LOCAL_STEPS,
        },
    )
    server = FLoRAServer
    heterogeneous = True
    merges_adapters = True
    version = 0
    """Version of the merged products in the model."""

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return (LORA,)

    def setup(self) -> None:
        self.sizes, self.places = sizes_and_places(self.context.model, "FLoRA", merged=True)

    async def work(self, task: Any) -> object:
        if not self.merged(task.merge):
            self.params = self.params  # evaluated as before
            return MergedFactors(None, -1)
        version = self.version  # news may change it during the training
        trained = await self.trained(self.params)
        factors = self.apply(concatenated_factors, trained, sizes=self.sizes, places=self.places)
        return MergedFactors(TrainedFactors(factors, self.sizes, self.samples), version)

    def learn(self, news: Any) -> None:
        self.merged(news)

    def merged(self, merge: Merge) -> bool:
        """Merge, and continue with fresh factors. Returns False if the client lacks earlier products."""
        params = self.params
        if merge.products is not None:
            params = self.with_products(merge.products, add=False)
        elif merge.stack is not None and self.version == merge.version - 1:
            stack = merge.stack
            sum_ = self.apply(sum_of_products, list(stack.weights), *stack.factors, sizes=stack.sizes)
            params = self.with_products(sum_, add=True)
        elif merge.version == 0:
            params = self.with_products(self.vector(self.no_products()), add=False)
        elif merge.version != self.version:
            return False
        self.version = merge.version
        self.params = self.apply(
            with_factors, params, self.fresh_factors(), sizes=self.sizes, places=self.places
        )
        return True

    def with_products(self, products: Vector, *, add: bool) -> Vector:
        """Return the model with `products` as its merged products; add: in addition to its present ones."""
        model: Vector = self.apply(
            with_products, self.params, products, sizes=self.sizes, places=self.places, add=add
        )
        return model

    def no_products(self) -> np.ndarray:
        """Return products whose values are all 0."""
        return np.zeros(sum([inputs * outputs for inputs, _, outputs, _ in self.sizes]))

    def fresh_factors(self) -> np.ndarray:
        """Return the factors of adapters without effect: A is drawn as a linear layer, B is 0."""
        pieces = []
        for inputs, rank, outputs, _ in self.sizes:
            bound = 1 / math.sqrt(inputs)
            pieces += [self.rng.uniform(-bound, bound, inputs * rank), np.zeros(rank * outputs)]
        return np.concatenate(pieces)
