"""What FedeRiCo's clients tell each other."""

from dataclasses import dataclass

from protocols.framework.vectors import Vector


@dataclass(frozen=True)
class ModelRequest:
    """Asynchronous form: the sender has chosen the receiver, and asks for its model.

    It had done so many `iterations` at `time` (seconds).
    """

    iterations: int
    time: float


@dataclass(frozen=True)
class RequestedModel:
    """The sender's parameters at `time` (seconds), after so many of its `iterations`."""

    params: Vector
    time: float
    iterations: int


@dataclass(frozen=True)
class WeightedUpdate:
    """What the receiver is to add to its parameters.

    An update of its model, as it was at `time` (seconds), on the sender's data, times the sender's weight.
    """

    update: Vector
    time: float


@dataclass(frozen=True)
class RoundUpdate:
    """Synchronous form: what the receiver is to add; None from one that has not chosen the receiver."""

    update: Vector | None
