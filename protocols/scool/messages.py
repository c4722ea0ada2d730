"""What clients of SCooL tell each other."""

from dataclasses import dataclass

import numpy as np

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class Beliefs:
    """The part of the sender's posterior on which the receiver's depends.

    weight: its w_ij for the receiver; None before it has one. membership [M]: its Omega_i, or the expected
    log of its pi_i. assigned [M]: with mixed memberships, its phi_{i<-j} for the receiver j. sketch: with
    attention, of its update.
    """

    weight: float | None
    membership: np.ndarray | None = None
    assigned: np.ndarray | None = None
    sketch: Vector | None = None


@dataclass(frozen=True)
class EvaluationRequest:
    """Asks for the loss of the sender's model `params` on the receiver's data; None if that does not count.

    In `round` (synchronous), after so many `iterations`, at `time` (s).
    """

    params: Vector | None
    beliefs: Beliefs
    round: int
    iterations: int
    time: float


@dataclass(frozen=True)
class PeerEvaluation:
    """The answer: `loss` of the model on the sender's data, and the `gradient` there if all want exact ones.

    No loss from one that has no time for it, or was not asked for any. `progress`: the sum of the sender's
    own updates so far, after so many `iterations`; with fixed weights its model, at `degree` peers; None with
    exact gradients. Synchronous: it is of the sender's `round`.
    """

    loss: Scalar | None
    gradient: Vector | None
    progress: Vector | None
    iterations: int
    round: int
    degree: int
    time: float
    beliefs: Beliefs


@dataclass(frozen=True)
class Shared:
    """Half of the sender's mass of sums over all clients (`numbers` [n], `weight`), and its encoder [m].

    `steps`: how often the encoder was trained.
    """

    numbers: np.ndarray | None
    weight: float
    encoder: np.ndarray | None = None
    steps: int = 0
