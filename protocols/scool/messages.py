"""Messages between clients of SCooL."""

from dataclasses import dataclass

import numpy as np

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class Beliefs:
    """Part of the sender's posterior on which the receiver's posterior depends.

    weight: the sender's w_ij for the receiver; None before the sender has one. membership [M]: its Omega_i,
    or the expected log of its pi_i. assigned [M]: with mixed memberships, its phi_{i<-j} for the receiver j.
    sketch: with attention, the sketch of its update.
    """

    weight: float | None
    membership: np.ndarray | None = None
    assigned: np.ndarray | None = None
    sketch: Vector | None = None


@dataclass(frozen=True)
class EvaluationRequest:
    """Request for the loss of the model `params` on the receiver's data; no model if losses are not used.

    Sent in `round` (synchronous), after `iterations`, at virtual `time` (s).
    """

    params: Vector | None
    beliefs: Beliefs
    round: int
    iterations: int
    time: float


@dataclass(frozen=True)
class PeerEvaluation:
    """Answer: `loss` of the model on the sender's data; with exact gradients also its `gradient`.

    `loss` is None if the sender has no time for it, or got no model. `progress`: the sum of the sender's own
    updates so far, after `iterations`; with fixed weights, its model; None with exact gradients. `degree`:
    the sender's number of peers. In the synchronous form, all values are from the sender's `round`.
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
    """Half of the sender's `numbers` [n] and `weight` for push-sum, and its `encoder` [m] to be averaged.

    `steps`: number of training steps of the encoder.
    """

    numbers: np.ndarray | None
    weight: float
    encoder: np.ndarray | None = None
    steps: int = 0
