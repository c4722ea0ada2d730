"""What clients of SCooL tell each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class Beliefs:
    """What the sender's part of the posterior says, as far as the receiver's part depends on it.

    weight: its w_ij for the receiver; None before it has one. membership [M]: its Omega_i, or the expected
    log of its pi_i. assigned [M]: with mixed memberships, its phi_{i<-j} for the receiver j. sketch: with
    attention, of its update.
    """

    weight: float | None
    membership: np.ndarray | None = None
    assigned: np.ndarray | None = None
    sketch: Vector | None = None


@dataclass(frozen=True)
class Consultation:
    """Asks what the receiver makes of the sender's model `params` on its data; None if that does not count.

    In `round` (synchronous), after so many `iterations`, at `time` (s). `repeated`: sent again, being lost.
    """

    params: Vector | None
    beliefs: Beliefs
    round: int
    iterations: int
    time: float
    repeated: bool = False


@dataclass(frozen=True)
class Opinion:
    """The answer: `loss` of the model on the sender's data, and the `gradient` there if all want exact ones.

    No loss from one that has no time for it, or was not asked for any. `progress`: the sum of the sender's
    own updates so far, after so many `iterations`; with fixed weights its model, at `degree` peers; None with
    exact gradients. Synchronous: it is of the sender's `round`, and answers the question of the round
    `answers`; `repeated`, `attempt` and `delayed` are those of a `RoundModel`.
    """

    loss: Scalar | None
    gradient: Vector | None
    progress: Vector | None
    iterations: int
    round: int
    degree: int
    time: float
    beliefs: Beliefs
    answers: int = 0
    repeated: bool = False
    attempt: int = 0
    delayed: float = 0.0


@dataclass(frozen=True)
class OpinionWanted:
    """Synchronous: the sender waits for the answer to its question of `round`.

    `attempt`: as of a `RoundModelWanted`.
    """

    round: int
    attempt: int = 0


@dataclass(frozen=True)
class ConsultationWanted:
    """The answer to that of one that has missed the question."""

    round: int


@dataclass(frozen=True)
class Shared:
    """Half of the sender's mass of sums over all clients (`numbers` [n], `weight`), and its encoder [m].

    `steps`: how often the encoder was trained.
    """

    numbers: np.ndarray | None
    weight: float
    encoder: np.ndarray | None = None
    steps: int = 0
