"""Messages between clients of CoBo."""

from dataclasses import dataclass

from protocols.framework.vectors import Scalar, Vector
from protocols.shared.pair_ledger import Account


@dataclass(frozen=True)
class LatestModel:
    """Parameters of the sender at `time` (seconds), after `iterations`; asynchronous form."""

    params: Vector
    time: float
    iterations: int
    takes_requests: bool

    def alone(self) -> "LatestModel":
        """Return the model without a request's account or an answer's gradient, to free their memory."""
        if type(self) is LatestModel:
            return self
        return LatestModel(self.params, self.time, self.iterations, self.takes_requests)


@dataclass(frozen=True)
class PairRequest(LatestModel):
    """Request for the receiver's gradient at the midpoint. `account`: the sender's state of the weight."""

    account: Account


@dataclass(frozen=True)
class PairAnswer(LatestModel):
    """Model of the sender, and the sender's gradient at the midpoint between this model and the asker's.

    The model is the newest one; on the simplex, it is an earlier one if the asker is far behind.
    """

    gradient: Vector
    account: Account
    owed: int


@dataclass(frozen=True)
class PairResult:
    """Notice that the asker has changed the weight."""

    account: Account


@dataclass(frozen=True)
class RoundGradient:
    """Gradient of the sender at its midpoint with the receiver; synchronous form.

    `weight`: the sender's weight of the pair before this update; `updates`: number of updates in this weight.
    """

    gradient: Vector
    updates: int
    weight: float | Scalar
