"""Messages between the coordinator and the other clients."""

from dataclasses import dataclass
from typing import Literal

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class FromLeader:
    """Base of the messages that only the coordinator sends, in its `term` (`leader_election`)."""

    term: int


@dataclass(frozen=True)
class GradientWanted(FromLeader):
    """Request for the gradient at these parameters [P], on a training batch or all validation samples."""

    params: Vector
    on: Literal["batch", "validation"]


@dataclass(frozen=True)
class HeadStepWanted(GradientWanted):
    """Request for a backbone's gradient [P] on a training batch, and for a step of the receiver's head.

    share: the weight d_i of the receiver's loss in this round, which also applies to its head.
    """

    share: float


@dataclass(frozen=True)
class GradientFound:
    """Gradient [P] that was requested; on validation samples also the loss."""

    gradient: Vector
    loss: Scalar | None = None


@dataclass(frozen=True)
class Members(FromLeader):
    """Request to train from now on with these `members`, sorted, including the receiver.

    version: counts these messages within a term. benefits: the weights of the receiver's optimal
    collaborators, without the receiver itself. losses: on the receiver's validation samples; see `Coalition`.
    pareto: the receiver's best model on its coalition's Pareto front; full: its best model on the front of
    all clients, None if unknown. With `heads = "own"` both are backbones.
    """

    version: int
    members: tuple[str, ...]
    benefits: tuple[tuple[str, float], ...]
    losses: tuple[tuple[str, float], ...]
    pareto: Vector
    full: Vector | None


@dataclass(frozen=True)
class LeaderPing(FromLeader):
    """Heartbeat of the coordinator. The answer shows that the client is also up."""


@dataclass(frozen=True)
class Pong:
    """Confirmation of `LeaderPing` and `Members`: the sender is up and has received the message."""


@dataclass(frozen=True)
class HigherTerm:
    """Answer to a former leader: the sender follows the leader `broker`, in a later `term`."""

    term: int
    broker: str


@dataclass(frozen=True)
class PartnerModel:
    """Model for another member of the coalition, after `age` training steps, at `time` (s).

    With own heads it contains only the backbone.
    """

    params: Vector
    age: int
    time: float
