"""The settings of SCooL; the defaults are the paper's, where it states one."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.quantities import Count, CountOrZero, PositiveWeight, Share, Weight
from protocols.shared.silence import PatienceSettings

Probability = Annotated[float, Field(gt=0, lt=1)]


class SCooLSettings(PatienceSettings):
    """Train, and take part in others' training by the weights of a graph that is inferred from losses."""

    changing = ("local_steps", "local_epochs")

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """In rounds (algorithm 1), or with nobody waiting for anybody."""
    prior: Literal["dirac", "sbm", "attention", "mmsbm"] = "sbm"
    """Prior of the graph: fixed weights (D-PSGD), a stochastic block model, attention between models, or a
    block model with mixed memberships."""
    local_epochs: Count = 5
    """Passes over the own samples in an iteration."""
    local_steps: Count | None = None
    """Training steps in an iteration, instead of `local_epochs`."""

    aggregation: Literal["sum", "shares"] = "sum"
    """The own gradient plus the weighted ones of the peers (eq. 10), or shares of 1, with a client itself
    among its row (code): as far as a single client's step."""
    cross_gradients: Literal["first-order", "exact"] = "first-order"
    """The peers' updates of their own models (eq. 33), or their gradients of this client's."""
    temperature: PositiveWeight = 1.0
    """Divides all that speaks for an edge, before the sigmoid or the softmax."""
    null_model: Literal["none", "chance"] = "chance"
    """What a peer's data are compared with: nothing (eq. 3), or guessing among the classes."""
    judged_on: Literal["batch", "train", "validation"] = "batch"
    """The peer's samples on which a model is judged: a batch (code), all training, or all held-back ones."""

    blocks: Count = 2
    """Blocks of the block models (M). With "sbm" better more than there are groups: two groups that begin in
    the same one find an empty one each, and blocks that nobody is in cost nothing."""
    learn_prior: bool = True
    """Learn B and alpha of the block models; without, they stay as they begin (code)."""
    learn_after: CountOrZero = 10
    """Iterations of a client before it learns them: from blocks that have yet to form nothing is learned."""
    inside: Probability = 0.8
    """B at first, inside a block."""
    across: Probability = 0.2
    """B at first, across blocks."""
    alpha: PositiveWeight = 1.0
    """Concentration of the memberships, at first."""
    alpha_rate: PositiveWeight = 0.1
    """Step size of the concentration (eta_2)."""
    sweeps: Count = 2
    """How often a client goes through its own part of the posterior in an iteration."""
    moving: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of its iterations, drawn at random, in which a client of the stochastic block model moves its
    membership. With 1 all move at once, and groups that share a block leave it together, for the same one."""
    encoder_rate: PositiveWeight = 0.1
    """Adam's learning rate of the encoder."""
    encoder_decay: Weight = 0.01
    """Weight decay of the encoder."""
    sketch: Count = 256
    """Numbers to which an update is reduced for the encoder."""

    keep: Annotated[float, Field(gt=0, le=1)] | None = 0.1
    """Share of the peers that a client goes on to talk to, those with the largest weights; by default a
    tenth."""
    keep_after: CountOrZero = 10
    """Iterations in which a client asks all (or `consulted`) before it chooses them."""
    consulted: Count | None = None
    """So many of the peers are asked in an iteration, those that were asked least often; by default as many
    as take a twentieth of the time of its training to answer, but at least twenty. With fixed weights all."""
    share_for_peers: Share = 1 / 3
    """Asynchronous: the share of its device's time that a client spends on its peers' requests at most,
    if it is less than half as fast as its peers (median)."""
