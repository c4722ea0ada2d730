"""What the coordinator and the others tell each other."""

from dataclasses import dataclass
from typing import Literal

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class FromLeader:
    """Base of what only the coordinator sends, in its `term`; terms go up from leader to leader."""

    term: int


@dataclass(frozen=True)
class GradientWanted(FromLeader):
    """Asks for the gradient at these parameters [P], on a training batch or on all validation samples."""

    params: Vector
    on: Literal["batch", "validation"]


@dataclass(frozen=True)
class HeadStepWanted(GradientWanted):
    """Asks for a backbone's gradient [P] on a training batch, and for a step of the own head there.

    share: the weight d_i of the receiver's loss in this round, for its head, too.
    """

    share: float


@dataclass(frozen=True)
class GradientFound:
    """The gradient [P] that was wanted, and on validation samples the loss as well."""

    gradient: Vector
    loss: Scalar | None = None


@dataclass(frozen=True)
class Settled(FromLeader):
    """Asks the receiver to train with these `members`, sorted, itself among them, from now on.

    version: the how many-th of the term. benefits: the weight of each of its optimal collaborators, itself
    left out. losses: of its validation samples; see `Coalition`. pareto: the model on the Pareto front of its
    coalition that suits it best; full: likewise of all clients, None where that is not known. Where heads are
    the clients' own, both are backbones.
    """

    version: int
    members: tuple[str, ...]
    benefits: tuple[tuple[str, float], ...]
    losses: tuple[tuple[str, float], ...]
    pareto: Vector
    full: Vector | None


@dataclass(frozen=True)
class StillThere(FromLeader):
    """The coordinator is at work; the answer to it says that the client is there, too."""


@dataclass(frozen=True)
class Here:
    """Yes."""


@dataclass(frozen=True)
class Superseded:
    """The sender has another leader, in this term."""

    term: int
    broker: str


@dataclass(frozen=True)
class PartnerModel:
    """To another member of the coalition: the sender's model, after so many training steps, at `time` (s).

    Its backbone alone where heads are the clients' own.
    """

    params: Vector
    age: int
    time: float
