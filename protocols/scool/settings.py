"""Settings of SCooL; the defaults are the paper's, as far as it states them."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.quantities import Count, CountOrZero, PositiveWeight, Share, Weight
from protocols.shared.silence import PatienceSettings

Probability = Annotated[float, Field(gt=0, lt=1)]


class SCooLSettings(PatienceSettings):
    """Train, and learn from others by the weights of a graph that is inferred from losses."""

    changing = ("local_steps", "local_epochs")

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """Rounds (algorithm 1), or the form without rounds, in which no client waits for another."""
    prior: Literal["dirac", "sbm", "attention", "mmsbm"] = "sbm"
    """Prior of the graph: fixed weights (D-PSGD), a stochastic block model, attention between models, or a
    block model with mixed memberships."""
    local_epochs: Count = 5
    """Passes over the client's samples in an iteration."""
    local_steps: Count | None = None
    """Training steps in an iteration, instead of `local_epochs`."""

    aggregation: Literal["sum", "shares"] = "sum"
    """Combination of gradients: the client's own plus the weighted ones of the peers (eq. 10), or shares of 1
    that include the client itself (code), with the length of a single client's step."""
    cross_gradients: Literal["first-order", "exact"] = "first-order"
    """Contribution of peers: updates of their own models (eq. 33), or gradients at this client's model."""
    temperature: PositiveWeight = 1.0
    """Divisor of the evidence for an edge, before the sigmoid or the softmax."""
    null_model: Literal["none", "chance"] = "chance"
    """Reference model for a peer's data: none (eq. 3), or guessing among the classes."""
    judged_on: Literal["batch", "train", "validation"] = "batch"
    """Samples on which a peer evaluates a model: a batch (code), all training samples, or all held-out
    samples."""

    blocks: Count = 2
    """Blocks of the block models (M). For "sbm", use more blocks than there are groups: two groups that start
    in the same block find an empty one each, and empty blocks cost nothing."""
    learn_prior: bool = True
    """Learn B and alpha of the block models; otherwise they keep their initial values (code)."""
    learn_after: CountOrZero = 10
    """Iterations before a client learns B and alpha: blocks that have yet to form have no information."""
    inside: Probability = 0.8
    """Initial B inside a block."""
    across: Probability = 0.2
    """Initial B across blocks."""
    alpha: PositiveWeight = 1.0
    """Initial concentration of the memberships."""
    alpha_rate: PositiveWeight = 0.1
    """Step size of the concentration (eta_2)."""
    sweeps: Count = 2
    """Number of updates of a client's own part of the posterior in an iteration."""
    moving: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the iterations, drawn at random, in which a client of the stochastic block model changes its
    membership. With 1, all clients change at once, and groups in one block move together to one new block."""
    encoder_rate: PositiveWeight = 0.1
    """Adam's learning rate of the encoder."""
    encoder_decay: Weight = 0.01
    """Weight decay of the encoder."""
    sketch: Count = 256
    """Length of an update's sketch, the encoder's input."""

    keep: Annotated[float, Field(gt=0, le=1)] | None = 0.1
    """Share of the peers, by largest weight, that a client keeps communicating with; by default a tenth."""
    keep_after: CountOrZero = 10
    """Iterations in which a client asks all peers (or `consulted`) before it chooses the peers to keep."""
    consulted: Count | None = None
    """Number of peers to ask in an iteration: the peers asked least often. By default, answering takes a
    twentieth of the time of an iteration's training, but at least twenty peers are asked. With fixed weights,
    all peers are asked."""
    share_for_peers: Share = 1 / 3
    """Maximum share of device time for the requests of peers, in the asynchronous form, for a client that is
    less than half as fast as its peers (median)."""
    safeguard: bool = True
    """In the asynchronous form, let a client that is less than half as fast as its peers compare models on
    its own samples, and keep the result of its own training if the help of peers is worse."""
