"""Messages between the coordinator and the other clients."""

from dataclasses import dataclass
from typing import Literal

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class FromLeader:
    """Base of what only the coordinator sends, in its `term` (`leader_election`)."""

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

    version: counts them within a term. benefits: the weight of each of its optimal collaborators, without
    itself. losses: on its validation samples; see `Coalition`. pareto: the model that suits it best on its
    coalition's Pareto front; full: on that of all clients, None if unknown. With `heads = "own"` both are
    backbones.
    """

    version: int
    members: tuple[str, ...]
    benefits: tuple[tuple[str, float], ...]
    losses: tuple[tuple[str, float], ...]
    pareto: Vector
    full: Vector | None


@dataclass(frozen=True)
class StillThere(FromLeader):
    """A heartbeat: the coordinator is at work. Its answer says that the client is there, too."""


@dataclass(frozen=True)
class Here:
    """The answer to `StillThere` and `Settled`: the sender is there and has received it."""


@dataclass(frozen=True)
class Superseded:
    """An answer to a former leader: the sender follows this `broker`, in this `term`."""

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
