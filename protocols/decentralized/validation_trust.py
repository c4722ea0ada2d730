"""Trust by validation performance: a client averages all models, weighted by their losses on its samples.

Wagner, Fan and Jaggi, "Personalized collaborative fine-tuning for on-device large language models" (2024),
the second best of its three strategies, "validation based" in CoBo's table 2. In each round

    x_i  <- local training from x_i
    w_ij <- softmax over j of -p_ij,   p_ij: perplexity of x_j on client i's held-out samples, j = i included
    x_i  <- sum_j w_ij x_j

It supports any model of any task, as perplexity is exp of the mean loss; of a model with adapters, only the
adapters are sent. The learned graph is w. A model that has diverged has no weight.

The paper's text was not available. Its authors' public code (personalized-collaborative-llms) is the source
of these choices: minus perplexity in the softmax, without a temperature; averages of models, where the
abstract says gradients; a round after each training step; `warm_up` (100 of 500 iterations in its README).
Differences from this code: models are evaluated on all held-out samples instead of at most 12 batches; a
client may know only some of the others, and miss rounds. The settings of CoBo's authors are not published.
`judged_by = "loss"` is an addition of coterie: losses differ by less, so weights stay closer to equal ones.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from actors.settings.base import default
from actors.settings.quantities import Count, CountOrZero, PositiveDuration
from protocols.framework.client import Client
from protocols.framework.requirements import (
    ProtocolSettings,
    Requirement,
    common_start_requirement,
    held_out_requirement,
    two_way_links_requirement,
)
from protocols.framework.rounds import RoundModel, Rounds
from protocols.framework.search_space import LOCAL_STEPS, OneOf, SearchSpace
from protocols.framework.vectors import mix
from protocols.shared.judging import model_losses


class ValidationTrustSettings(ProtocolSettings):
    """Average all models, weighted by their losses on the client's held-out samples."""

    changing = ("local_steps",)

    local_steps: Count = 1
    """Training steps in a round."""
    warm_up: CountOrZero = 0
    """Iterations alone before the first round; a client that joins later takes part at once."""
    judged_by: Literal["perplexity", "loss"] = "perplexity"
    """Measure of a model, lower for a better one: exp of the mean loss (the authors' code), or mean loss."""
    losses_on: Literal["validation", "train"] = "validation"
    """Samples on which models are compared: the held-out samples (`data.validation_share`), or all training
    samples, on which the client's own model has an advantage."""
    patience: PositiveDuration = default("1 min")
    """Maximum wait for a silent neighbor, which gets repeated requests meanwhile."""


def trust_weights(losses: ArrayLike, judged_by: Literal["perplexity", "loss"]) -> NDArray[np.float64]:
    """Return weights [n]: the softmax of minus the losses [n], or of minus their exponentials ("perplexity").

    The first loss is that of the client's own model, which gets all the weight if any loss is NaN, or if all
    losses (for "perplexity": their exponentials) are infinite.
    """
    measured = np.asarray(losses, dtype=np.float64)
    if judged_by == "perplexity":
        with np.errstate(over="ignore"):
            measured = np.exp(measured)
    least = measured.min()
    if not np.isfinite(least):
        return np.eye(len(measured))[0]
    weights: NDArray[np.float64] = np.exp(least - measured)
    return weights / weights.sum()


class ValidationTrust(Client):
    """Client that weights models by their losses on its held-out samples."""

    Settings = ValidationTrustSettings
    search_space = SearchSpace(
        "only the start of the mixing and the local work",
        {
            "warm_up": OneOf((0, 10, 50)),
            "local_steps": LOCAL_STEPS,
        },
    )
    settings: ValidationTrustSettings
    collected = (RoundModel,)
    two_way = True
    weights_are_shares = True

    @classmethod
    def requirements(cls, settings: ProtocolSettings) -> Sequence[Requirement]:
        assert isinstance(settings, ValidationTrustSettings)
        if settings.alone:
            return ()
        return (
            *two_way_links_requirement(settings),
            common_start_requirement("shared"),
            *held_out_requirement(settings.losses_on),
        )

    def setup(self) -> None:
        self.round_trips.wait_at_first(self.settings.patience)
        self.rounds = Rounds(self, self.settings.patience)
        self.trusted: dict[str, float] = {}

    async def step(self) -> None:
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        if self.iterations < self.settings.warm_up and not self.late:
            return
        self.rounds.announce()
        received = await self.rounds.gather()
        models = {self.name: self.params} | {peer: each.params for peer, each in received.items()}
        if len(models) == 1:
            self.trusted = {}
            return
        losses = await model_losses(self, models.values(), self.settings.losses_on)
        weights = trust_weights(losses, self.settings.judged_by).tolist()
        # A diverged model must not enter with a weight of 0, since 0 times nan is nan.
        self.params = mix([(w, model) for w, model in zip(weights, models.values(), strict=True) if w > 0])
        self.trusted = dict(zip(models, weights, strict=True))

    def weights(self) -> Mapping[str, float]:
        return {peer: self.trusted[peer] for peer in self.peers if peer in self.trusted}
