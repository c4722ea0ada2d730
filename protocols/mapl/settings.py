"""Settings of MAPL; the defaults are the paper's, as far as it states them."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import default
from actors.settings.quantities import Count, CountOrZero, PositiveDuration, PositiveWeight, Weight
from protocols.framework.requirements import ProtocolSettings
from protocols.mapl.graph_learning import GraphLearning


class MaplSettings(ProtocolSettings):
    """Train with prototypes shared among neighbors, and weights learned from the neighbors' heads."""

    changing = ("local_epochs",)

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """Rounds with all neighbors, or the form without rounds, in which no client waits for another."""
    local_epochs: Count = 1
    """Passes over the client's samples in an iteration (E)."""
    fresh_optimizer: bool = False
    """Reset the optimizer's moments before each iteration, as the authors' code does."""

    contrastive: bool = True
    """Train with the supervised contrastive loss l_cont."""
    prototype: bool = True
    """Train with the prototype loss l_proto."""
    uniformity: bool = True
    """Train with the uniformity loss l_uni."""
    temperature: PositiveWeight = 100.0
    """Temperature tau of the contrastive losses."""
    prototype_temperature: PositiveWeight | None = None
    """Temperature of l_proto; by default `temperature`."""
    loss_variant: Literal["paper", "code"] = "paper"
    """Losses as in the paper, or as in the authors' code."""

    graph_learning: bool = True
    """Learn the weights (CGL); otherwise they stay equal."""
    warm_up: CountOrZero = 100
    """First iteration, counted from 1, in which a client shares its head and learns its weights (T_thr)."""
    graph_steps: Count = 1
    """Steps each time the weights are learned (E_g)."""
    graph_learning_rate: PositiveWeight = 0.1
    """Step size of the weights (eta)."""
    graph_step: Literal["gradient", "sign"] = "gradient"
    """Step along the gradient (paper), or along its sign, like the code with its new Adam for each step."""
    degree_gradient: bool = True
    """Treatment of the logarithm of the degree: with a gradient (paper), or as a constant (code). With the
    gradient, the client's own weight falls to 0 in time."""
    similarity: Literal["whole", "per-class", "none"] = "whole"
    """Cosine of the heads' weights as one vector (paper), the mean cosine of their rows relative to the
    largest of all neighbors (code), or the same for all."""
    confidence: Literal["samples", "equal", "none"] = "samples"
    """Factor gamma: shares of the samples (paper), equal shares, or 1."""
    norm: Literal["l2", "l1"] = "l2"
    """Norm in the regularizer."""
    mu1: Weight = 0.5
    """Weight of the similarity in the graph's loss."""
    mu2: Weight = 0.1
    """Weight of the regularizer in the graph's loss."""
    beta: Weight = 0.5
    """Weight of the norm in the regularizer."""

    new_heads: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the neighbors with new heads at which weights are learned; in rounds nearly always all have
    new ones."""
    half_life: PositiveDuration | None = None
    """Time after which a neighbor's parameters count half as much, also in rounds; by default their age does
    not matter."""
    neighbours_at_start: Count | None = None
    """Number of random neighbors to start with, instead of all peers."""
    explore: Weight = 0.0
    """Average number of strangers that are asked for their knowledge in an iteration."""
    safeguard: bool = True
    """In the asynchronous form with mixed backbones, let a client that is less than half as fast as its peers
    compare models on its own samples before the end of the warm-up, and keep the result of its own training
    if the help of peers is worse."""
    patience: PositiveDuration = default("1 min")
    """Maximum wait for a silent neighbor, which gets repeated requests meanwhile."""

    @property
    def graph(self) -> GraphLearning:
        """Parameters for learning the weights."""
        return GraphLearning(
            mu1=self.mu1,
            mu2=self.mu2,
            beta=self.beta,
            steps=self.graph_steps,
            learning_rate=self.graph_learning_rate,
            similarity=self.similarity,
            confidence=self.confidence,
            norm=self.norm,
            degree_gradient=self.degree_gradient,
            step=self.graph_step,
        )
