"""Messages between clients of FedeRiCo."""

from dataclasses import dataclass

from protocols.framework.vectors import Vector


@dataclass(frozen=True)
class ModelRequest:
    """Request for the model of the receiver, which the sender has chosen; asynchronous form.

    The sender had done `iterations` at `time` (seconds).
    """

    iterations: int
    time: float


@dataclass(frozen=True)
class RequestedModel:
    """Parameters of the sender at `time` (seconds), after its `iterations`."""

    params: Vector
    time: float
    iterations: int


@dataclass(frozen=True)
class WeightedUpdate:
    """Update for the receiver to add to its parameters.

    The sender trained the receiver's model of `time` (seconds) on the sender's data, and multiplied the
    result by the weight that it gives this model.
    """

    update: Vector
    time: float


@dataclass(frozen=True)
class RoundUpdate:
    """Update for the receiver to add to its model; synchronous form.

    None if the sender did not choose the receiver's model, or gives this model no weight.
    """

    update: Vector | None
