"""Messages between FedeRiCo's clients."""

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
    """An update for the receiver to add to its parameters.

    It is that of the receiver's model of `time` (seconds) on the sender's data, times the sender's weight.
    """

    update: Vector
    time: float


@dataclass(frozen=True)
class RoundUpdate:
    """Synchronous form: an update for the receiver to add; None if the sender has not chosen its model."""

    update: Vector | None
