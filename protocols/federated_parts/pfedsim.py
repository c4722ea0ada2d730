"""pFedSim: each client gets its own mixture of all backbones, weighted by the similarity of the heads.

Tan et al., "pFedSim: Similarity-aware model aggregation towards personalized federated learning" (2023):

    warm-up:    rounds of federated averaging
    then:       theta_i <- sum_j w_ij theta_j,  w_ij = phi_ij / sum_j phi_ij,  phi_ij = -log(1 - s_ij)
                (theta_i, head_i) <- E local epochs, from the client's own head

s_ij is the cosine of the heads' weights, at least 0. For s_ij = 1, the client itself included, phi would be
infinite; as in the authors' code s_ij is at most 0.9999, so that phi_ii = 9.21.

The paper's text was not available: this follows its authors' public code (in FL-bench) and general knowledge.
That code takes the mean cosine of the rows of each class (`similarity = "per-class"`), and updates the
similarity of two clients only when both are sampled; here the last heads are used, of all clients that have
answered after the warm-up and are believed to be up. A client that has not answered yet trains from the
warm-up's model, as all do in the first round after it. The server sends only a backbone, and the client
returns a whole model (MAPL's Table 7 counts 2 M (theta + phi) T). A client that has lost its state continues
with its mixture of backbones and a new head.

A client is evaluated by the last global model during the warm-up, then by its last trained model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from actors.settings.quantities import CountOrZero
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import Vector, mix
from protocols.mapl.graph_learning import class_rows
from protocols.shared.server_rounds import GlobalModel, RoundClient, RoundServer, RoundSettings, RoundTask

_SIMILARITY_MAX = 0.9999


@dataclass(frozen=True)
class FirstPersonalTask(RoundTask):
    """Task to train a personal model from these parameters."""

    params: Vector
    round: int


@dataclass(frozen=True)
class PersonalTask(RoundTask):
    """Task to train from this backbone, with the client's own head."""

    backbone: Vector
    round: int


@dataclass(frozen=True)
class PersonalModel:
    """Trained backbone and head [K * (d_z + 1)] of a client; classes: K, the number of classes."""

    backbone: Vector
    head: Vector
    classes: int


class PFedSimSettings(RoundSettings):
    """For each client, mix the backbones of clients with similar heads."""

    warm_up: CountOrZero = 100
    """Number of first rounds, with federated averaging (the paper's generalization phase; its code uses half
    of all rounds)."""
    similarity: Literal["per-class", "whole"] = "per-class"
    """Mean cosine of the rows of each class, or cosine of the heads' whole weights."""


def directions(head: ArrayLike, classes: int, kind: str) -> NDArray[np.float64]:
    """Return the weights of a flat head as rows of length 1; rows of zeros stay zero.

    kind: "per-class" for one row per class, "whole" for all weights in one row.
    """
    rows = class_rows(head, classes)
    if kind == "whole":
        rows = rows.reshape(1, -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def mixing_weights(client: str, heads: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Return the shares w_ij of all clients in the backbone of `client`, from `directions` of their heads.

    A client with a head of zeros is similar to no other, and keeps its backbone.
    """
    cosines = {name: float((heads[client] * head).sum(axis=1).mean()) for name, head in heads.items()}
    affinity = {
        name: -math.log1p(-min(max(cosine, 0.0), _SIMILARITY_MAX)) for name, cosine in cosines.items()
    }
    total = sum(affinity.values())
    return {name: value / total for name, value in affinity.items()} if total > 0 else {client: 1.0}


class PFedSimServer(RoundServer):
    """Server that averages whole models in the warm-up, and then mixes backbones for each client."""

    settings: PFedSimSettings

    def setup(self) -> None:
        self.latest: dict[str, PersonalModel] = {}
        self.heads: dict[str, NDArray[np.float64]] = {}  # the `directions` of the latest heads
        self.warm = self.settings.warm_up == 0

    def task(self, client: str, number: int) -> RoundTask:
        if not self.warm:
            return super().task(client, number)
        if client not in self.latest:
            return FirstPersonalTask(self.params, number)
        return PersonalTask(self.mixture(client), number)

    def mixture(self, client: str) -> Vector:
        """Return a client's mixture of backbones: its own, and those of all clients that are up.

        Only clients that have answered after the warm-up have a backbone here; `client` must be one of them.
        """
        present = sorted({*self.peers, client})  # it may have left since it was chosen for the round
        heads = {peer: self.heads[peer] for peer in present if peer in self.heads}
        shares = mixing_weights(client, heads)
        return mix([(share, self.latest[peer].backbone) for peer, share in shares.items() if share > 0])

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        if not self.warm:
            super().combine(answers, number)
            self.warm = number + 1 >= self.settings.warm_up
            return
        for client, model in answers.items():
            self.latest[client] = model
            self.heads[client] = directions(model.head.numpy(), model.classes, self.settings.similarity)

    def news(self, client: str) -> object | None:
        """Return the last average of the warm-up; None as soon as a client has a personal model.

        Later models come with the clients' tasks.
        """
        return None if self.latest else super().news(client)


class PFedSim(RoundClient):
    """Client that has a personal model after the warm-up."""

    Settings = PFedSimSettings
    search_space = SearchSpace(
        "warm-up in rounds, up to coterie's default 100",
        {
            "warm_up": OneOf((0, 10, 50, 100)),
            "local_steps": LOCAL_STEPS,
        },
    )
    server = PFedSimServer
    parts = ()
    personal = False
    """True if this client has started a personal model in this session."""

    async def work(self, task: RoundTask) -> object:
        match task:
            case FirstPersonalTask(params):
                self.params = params
            case PersonalTask(backbone):
                self.params = self.with_part(self.params, "backbone", backbone)
            case _:
                return await super().work(task)
        self.personal = True
        self.params = await self.trained(self.params)
        backbone, head = [self.part(self.params, name) for name in ("backbone", "head")]
        return PersonalModel(backbone, head, self.compute.classes)

    def learn(self, news: GlobalModel) -> None:
        if not self.personal:  # otherwise a later message overtook this one
            super().learn(news)
