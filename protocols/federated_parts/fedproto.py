"""FedProto: clients share the mean features of each class, and pull their features towards the averages.

Tan et al., "FedProto: Federated prototype learning across heterogeneous clients" (2021), algorithm 1, with
client i's samples D_i^k of class k and the classes' prototypes xi^k:

    each round: theta_i <- E local epochs on l_ce + lambda * (distance of features to their class's xi^k)
                xi_i^k <- mean of z over D_i^k                          for the classes that i has
                xi^k <- sum_i |D_i^k| xi_i^k / sum_i |D_i^k|            over the clients that have class k

Only prototypes are sent [d_z per class], so backbones may differ. In a model, they are the part
"class_means"; a class that has no prototype yet has zeros there, and does not pull. The features are z. A
client is evaluated by its last trained model.

Differences from the paper: its mean over clients divides by their number once more, but its code does not;
the code gives all clients equal weights (`weights = "equal"`). A class without clients in a round keeps its
prototype: the paper's clients never leave. Models are evaluated by their heads, not by the nearest prototype.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from actors.settings.quantities import Weight
from protocols.framework.requirements import ProtocolSettings
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.shared.local_losses import FeaturePrototypes
from protocols.shared.server_rounds import RoundClient, RoundServer, RoundSettings, RoundTask


@dataclass(frozen=True)
class PrototypeTask(RoundTask):
    """Task to train with these prototypes [d_z] of the known classes."""

    prototypes: dict[int, Vector]
    round: int


@dataclass(frozen=True)
class LocalPrototypes:
    """Mean features [d_z] of each class of a client, and the number of samples of each class."""

    prototypes: dict[int, Vector]
    counts: dict[int, int]


@dataclass(frozen=True)
class GlobalPrototypes:
    """New prototypes, for all clients."""

    prototypes: dict[int, Vector]


class FedProtoSettings(RoundSettings):
    """Average the mean features of each class."""

    strength: Weight = 1.0
    """Weight lambda of the distance between features and prototypes."""
    weights: Literal["samples", "equal"] = "samples"
    """Weights of clients in a class: by their numbers of samples in the class (paper), or equal (code)."""


class FedProtoServer(RoundServer):
    """Server that averages prototypes."""

    settings: FedProtoSettings

    def setup(self) -> None:
        self.prototypes: dict[int, Vector] = {}

    def task(self, client: str, number: int) -> RoundTask:
        return PrototypeTask(self.prototypes, number)

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        terms: dict[int, list[tuple[int, Vector]]] = {}
        for answer in answers.values():
            for label, prototype in answer.prototypes.items():
                count = answer.counts[label] if self.settings.weights == "samples" else 1
                terms.setdefault(label, []).append((count, prototype))
        averages = dict(self.prototypes)  # a new dict: the old one is in transit to clients
        for label in sorted(terms):
            total = sum([count for count, _ in terms[label]])
            averages[label] = mix([(count / total, prototype) for count, prototype in terms[label]])
        self.prototypes = averages

    def news(self, client: str) -> object | None:
        return GlobalPrototypes(self.prototypes) if self.prototypes else None


class FedProto(RoundClient):
    """Client that shares the mean features of its classes."""

    Settings = FedProtoSettings
    search_space = SearchSpace(
        "coterie's default strength of 1, with a decade on each side",
        {
            "strength": Range(0.1, 10.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    server = FedProtoServer
    parts = ("class_means",)
    heterogeneous = True

    @classmethod
    def objective(cls, settings: ProtocolSettings) -> FeaturePrototypes:
        assert isinstance(settings, FedProtoSettings)
        return FeaturePrototypes(settings.strength)

    async def work(self, task: PrototypeTask) -> LocalPrototypes:
        self.take(task.prototypes)
        self.params = await self.trained(self.params)
        return LocalPrototypes(await self.class_features(self.params), dict(self.compute.class_counts))

    def learn(self, news: GlobalPrototypes) -> None:
        self.take(news.prototypes)

    def take(self, prototypes: dict[int, Vector]) -> None:
        """Use these prototypes as the targets of the features."""
        for label, prototype in prototypes.items():
            self.params = self.with_part(self.params, "class_means", prototype, row=label)
