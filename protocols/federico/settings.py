"""Settings of FedeRiCo."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.quantities import Count, CountOrZero, PositiveWeight, Share
from protocols.shared.silence import PatienceSettings


class FedericoSettings(PatienceSettings):
    """Find the models to train, and to predict with, by their losses on the client's own data."""

    changing = ("local_steps", "local_epochs", "epsilon")

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """Rounds with all neighbors, or the form without rounds, in which no client waits for another."""
    neighbours: Count = 3
    """Number of peers (M) whose models a client evaluates and trains in an iteration."""
    own_model: Literal["always", "candidate"] = "always"
    """Role of the client's own model: evaluated and trained in every iteration, in addition to the models of
    M peers, or only one of M candidates."""
    alone_first: CountOrZero = 1
    """Iterations in which a client trains only its own model, with full weight. Untrained models fit the
    data of any client by chance, and adapt to any client that trains them; algorithm 1 has 0."""
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Share of the M models that are drawn at random; the others have the largest weights."""
    tracking: Literal["average", "sum"] = "average"
    """Basis of the weights: an exponential moving average of each model's losses (algorithm 1), or their sum
    (the accumulative loss of eqs. 22-24)."""
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share of the newest loss in the moving average (beta)."""
    losses: Literal["sum", "mean"] = "sum"
    """Sum over all samples, as in the likelihood and the paper, which gives nearly all weight to one model as
    soon as there are many samples; or their mean."""
    losses_on: Literal["train", "validation", "batch"] = "train"
    """Samples of the losses: the client's training samples (the paper), the held-out ones
    (data.validation_share), or a batch. With `losses = "sum"`, their mean loss is multiplied by the number
    of training samples."""
    temperature: PositiveWeight = 1.0
    """Divisor of the losses in the softmax; a larger divisor gives more equal weights."""
    local_steps: Count | None = None
    """Training steps of a model in an iteration, instead of `local_epochs`; algorithm 1 has 1."""
    local_epochs: Count = 1
    """Passes over the client's samples to train a model; each drops the last incomplete batch."""
    predict: Literal["mixture", "own"] = "mixture"
    """Model by which a client is evaluated: the candidates' predictions, averaged by the weights of the
    candidates, or the client's own model, which is always used for data without classes."""
    share_for_peers: Share = 1 / 3
    """Maximum share of device time for the models of others, in the asynchronous form, for a client that is
    less than half as fast as its peers (median)."""
    safeguard: bool = True
    """In the asynchronous form, let a client that is less than half as fast as its peers evaluate models on a
    batch instead of all training samples. Such a client trains the models of peers only while one of these
    models fits its samples better than its own model."""

    @property
    def own_competes(self) -> bool:
        """True if the client's own model is a candidate like the models of peers, not always chosen."""
        return self.own_model == "candidate"
