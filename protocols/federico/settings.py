"""The settings of FedeRiCo."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.quantities import Count, CountOrZero, PositiveWeight, Share
from protocols.shared.silence import PatienceSettings


class FedericoSettings(PatienceSettings):
    """Find by the losses of others' models on the own data whose model to train, and to predict with."""

    changing = ("local_steps", "local_epochs", "epsilon")

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """In rounds with all neighbours, or with nobody waiting for anybody."""
    neighbours: Count = 3
    """Peers whose models a client evaluates and trains in an iteration (M)."""
    own_model: Literal["always", "candidate"] = "always"
    """Whether the own model is evaluated and trained in every iteration, beside those of M peers, or is one
    of M candidates like any other."""
    alone_first: CountOrZero = 1
    """Iterations in which a client trains its own model only, as a whole. Models that have yet to learn fit
    the data of any client by chance, and become that of whoever trains them; algorithm 1 has 0."""
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of these that are drawn at random, instead of those of the largest weights."""
    tracking: Literal["average", "sum"] = "average"
    """Weights go by an exponential moving average of each model's losses (algorithm 1), or by their sum (the
    accumulative loss of eqs. 22-24)."""
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share of the newest loss in the moving average (beta)."""
    losses: Literal["sum", "mean"] = "sum"
    """Sum over all samples, as in the likelihood and the paper, which gives nearly all weight to one model as
    soon as there are many samples; or their mean."""
    losses_on: Literal["train", "validation", "batch"] = "train"
    """The own training samples (the paper), those held back (data.validation_share), or a batch: as many
    times as it would take for all."""
    temperature: PositiveWeight = 1.0
    """Divides the losses in the softmax: the larger, the more equal the weights."""
    local_steps: Count | None = None
    """Training steps of a model in an iteration, instead of `local_epochs`; algorithm 1 has 1."""
    local_epochs: Count = 1
    """Passes over the own samples in the training of a model; each drops the last incomplete batch."""
    predict: Literal["mixture", "own"] = "mixture"
    """What a client is judged by: the predictions of its candidates' models, averaged by their weights, or
    its own model, as always where there are no classes."""
    share_for_peers: Share = 1 / 3
    """Asynchronous: the share of its device's time that a client spends on models of others at most,
    if it is less than half as fast as its peers (median)."""

    @property
    def own_competes(self) -> bool:
        """Whether the own model has to be chosen, too."""
        return self.own_model == "candidate"
