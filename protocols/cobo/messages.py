"""Messages between CoBo's clients."""

from dataclasses import dataclass

from protocols.framework.vectors import Scalar, Vector
from protocols.shared.pair_ledger import Account


@dataclass(frozen=True)
class LatestModel:
    """Asynchronous form: the sender's parameters at `time` (seconds), after so many iterations."""

    params: Vector
    time: float
    iterations: int
    takes_requests: bool

    def alone(self) -> "LatestModel":
        """The model without a request's account or an answer's gradient, which it would keep alive."""
        if type(self) is LatestModel:
            return self
        return LatestModel(self.params, self.time, self.iterations, self.takes_requests)


@dataclass(frozen=True)
class PairRequest(LatestModel):
    """Asks for the receiver's gradient at the midpoint. `account`: the sender's, of their weight."""

    account: Account


@dataclass(frozen=True)
class PairAnswer(LatestModel):
    """The sender's model when it took up the request, and its gradient at the midpoint."""

    gradient: Vector
    account: Account
    owed: int


@dataclass(frozen=True)
class PairResult:
    """The asker has moved the weight."""

    account: Account


@dataclass(frozen=True)
class RoundGradient:
    """Synchronous form: the sender's gradient at its midpoint with the receiver.

    `weight`: what the sender held before this update, after so many `updates`.
    """

    gradient: Vector
    updates: int
    weight: float | Scalar
