"""The settings of MAPL; the defaults are the paper's, where it says."""

from typing import Annotated, Literal

from pydantic import Field

from actors.settings.base import default
from actors.settings.quantities import Count, CountOrZero, PositiveDuration, PositiveWeight, Weight
from protocols.framework.requirements import ProtocolSettings
from protocols.mapl.graph_learning import GraphLearning


class MaplSettings(ProtocolSettings):
    """Train with prototypes shared among neighbours, whose weights are learned from their heads."""

    changing = ("local_epochs",)

    mode: Literal["synchronous", "asynchronous"] = "asynchronous"
    """In rounds with all neighbours, or with nobody waiting for anybody."""
    local_epochs: Count = 1
    """Passes over the own samples in an iteration (E)."""
    fresh_optimizer: bool = False
    """Forget the optimizer's moments before each iteration, as the authors' code does."""

    contrastive: bool = True
    """Train with the supervised contrastive loss l_cont."""
    prototype: bool = True
    """Train with the prototype loss l_proto."""
    uniformity: bool = True
    """Train with the uniformity loss l_uni."""
    temperature: PositiveWeight = 100.0
    """Temperature tau of the contrastive losses."""
    prototype_temperature: PositiveWeight | None = None
    """Temperature of l_proto; by default the same."""
    loss_variant: Literal["paper", "code"] = "paper"
    """The losses as in the paper, or as in the authors' code."""

    graph_learning: bool = True
    """Learn the weights (CGL); without, they stay equal."""
    warm_up: CountOrZero = 100
    """Iteration of a client, from 1, from which on its head is shared and its weights are learned (T_thr)."""
    graph_steps: Count = 1
    """Steps each time the weights are learned (E_g)."""
    graph_learning_rate: PositiveWeight = 0.1
    """Step size of the weights (eta)."""
    graph_step: Literal["gradient", "sign"] = "gradient"
    """Along the gradient (paper), or its sign, as the authors' Adam, made afresh for each step, goes."""
    degree_gradient: bool = True
    """Whether the logarithm of the degree has a gradient (paper), or is a constant (code). With it the own
    weight falls to 0 in time."""
    similarity: Literal["whole", "per-class", "none"] = "whole"
    """Cosine of the heads' weights as one vector (paper), the mean cosine of their rows beside the largest of
    all neighbours (code), or the same for all."""
    confidence: Literal["samples", "equal", "none"] = "samples"
    """gamma: shares of the samples (paper), equal shares, or 1."""
    norm: Literal["l2", "l1"] = "l2"
    """Norm in the regularizer."""
    mu1: Weight = 0.5
    """Weight of the similarity in the graph's loss."""
    mu2: Weight = 0.1
    """Weight of the regularizer in the graph's loss."""
    beta: Weight = 0.5
    """Weight of the norm in the regularizer."""

    new_heads: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Weights are learned when so large a share of the neighbours has sent a new head; in rounds nearly
    always all have."""
    half_life: PositiveDuration | None = None
    """What a neighbour sent counts half as much after this time, in rounds, too; by default its age does not
    matter."""
    neighbours_at_start: Count | None = None
    """Begin with so many random neighbours instead of all peers."""
    explore: Weight = 0.0
    """Strangers that are asked for what they know in an iteration, on average."""
    patience: PositiveDuration = default("1 min")
    """How long a silent neighbour is waited for at most, and asked again whenever it is overdue."""

    @property
    def graph(self) -> GraphLearning:
        """How the weights are learned."""
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
