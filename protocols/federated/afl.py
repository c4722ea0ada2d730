"""AFL: agnostic federated learning, for the worst mixture of the clients' distributions.

Mohri, Sivek and Suresh, "Agnostic federated learning" (ICML 2019), solves min over w of the max over lambda
in the simplex of sum_k lambda_k L_k(w), by stochastic descent and ascent (their Stochastic-AFL):

    w      <- w - gamma_w sum_k lambda_k g_k(w)                g_k: gradient on a batch of client k
    lambda <- Proj_simplex(lambda + gamma_lambda (L_1(w), ..., L_m(w)))    L_k: loss on a batch, at the same w

lambda starts uniform. A client takes a step of SGD from w, and w <- sum_k lambda_k w_k, which is the first
line with gamma_w the scenario's learning rate; with more `local_steps`, the server combines whole local
trainings. The paper's guarantee is for the average of all w. `judged_by = "average"` evaluates the average of
all w that the client has received. The last w and the average are both measured.

Differences from the paper: lambda is projected on the whole simplex over the clients that the server believes
to be up, or that have answered; a client that joins starts with the share of one of them. If a client has not
answered, the others' lambda are scaled to the sum 1 in the first line, and no loss is added to its own in the
second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from actors.settings.quantities import Count, PositiveWeight
from protocols.framework.mathematics import project_on_simplex
from protocols.framework.requirements import ProtocolSettings, Requirement, plain_sgd_requirements
from protocols.framework.search_space import LOCAL_STEPS, Range, SearchSpace
from protocols.framework.vectors import Scalar, Vector, mix
from protocols.shared.server_rounds import GlobalModel, RoundClient, RoundServer, RoundSettings


@dataclass(frozen=True)
class AgnosticStep:
    """Trained parameters of a client, and its loss before the training."""

    params: Vector
    loss: Scalar


class AFLSettings(RoundSettings):
    """Weigh clients by the loss of the server's model on their data."""

    ascent_rate: PositiveWeight = 0.1
    """Ascent rate gamma_lambda: increase of a client's weight by a loss of 1 nat, before the projection."""
    local_steps: Count = 1
    """Training steps of a client in a round; the paper's 1 makes a round one step of its algorithm."""
    local_epochs: Count | None = None  # type: ignore[assignment]
    """Passes over the client's samples in a round, instead of `local_steps`."""
    loss_on: Literal["batch", "train"] = "batch"
    """Samples for a client's loss: a batch, as in the paper, or all its training samples."""
    judged_by: Literal["last", "average"] = "last"
    """Model that is evaluated: the last model that a client received, or the average of
    the models of all its tasks."""


def ascend_weights(
    weights: Mapping[str, float], losses: Mapping[str, float], rate: float
) -> dict[str, float]:
    """Return each client's lambda after a step of ascent along the known losses."""
    raised = [weight + rate * losses.get(client, 0.0) for client, weight in weights.items()]
    return dict(zip(weights, project_on_simplex(raised).tolist(), strict=True))


class AFLServer(RoundServer):
    """Server that averages models by lambda, and updates lambda."""

    settings: AFLSettings

    def setup(self) -> None:
        self.weights: dict[str, float] = {}

    def combine(self, answers: Mapping[str, Any], number: int) -> None:
        present = sorted({*self.peers, *answers})
        weights = {client: self.weights.get(client, 1 / len(present)) for client in present}
        total = sum([weights[client] for client in answers])
        if total > 0:  # otherwise no client with an answer has a weight
            self.params = mix(
                [(weights[client] / total, answer.params) for client, answer in answers.items()]
            )
        losses = {client: float(answer.loss) for client, answer in answers.items()}
        self.weights = ascend_weights(weights, losses, self.settings.ascent_rate)


class AFL(RoundClient):
    """Client that reports its loss, and takes a step."""

    Settings = AFLSettings  # type: ignore[assignment]
    search_space = SearchSpace(
        "the paper's text was not available; a decade on each side of coterie's default",
        {
            "ascent_rate": Range(0.01, 1.0, log=True),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: AFLSettings
    server = AFLServer
    average: Vector | None = None
    """Average of the models of all tasks in this session so far; None before the first task."""
    received = 0

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        return plain_sgd_requirements("is stochastic gradient descent and ascent")

    @property
    def steps_of_a_round(self) -> int:
        epochs = self.settings.local_epochs
        return self.settings.local_steps if epochs is None else epochs * self.compute.steps_per_epoch

    async def work(self, task: Any) -> object:
        self.take(task.params)
        loss = await self.loss(task.params, on=self.settings.loss_on)
        return AgnosticStep(await self.trained(task.params), loss)

    def learn(self, news: GlobalModel) -> None:
        """Use the model, but leave it out of the average: only the models of tasks count there."""
        self.params = news.params

    def take(self, params: Vector) -> None:
        """Continue with a model, and count it in the average."""
        self.params, self.received = params, self.received + 1
        before = params if self.average is None else self.average
        self.average = mix([(1 - 1 / self.received, before), (1 / self.received, params)])

    def evaluated(self) -> Mapping[str, Vector]:
        models = {"last": self.params, "average": self.average or self.params}
        first = self.settings.judged_by
        return {first: models.pop(first), **models}
