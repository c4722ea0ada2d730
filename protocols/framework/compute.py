"""The computations of a client's device on its own data: the interface that methods see."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class Batch:
    """Some of a client's own training samples, drawn once: what several models see in turn.

    `client`: whose they are. `number`: which of its batches. `samples`: how many.
    """

    client: int
    number: int
    samples: int


Samples = Literal["batch", "train", "validation"] | Batch
"""Which of a client's own samples: a fresh batch, all that it trains on, all that it holds back, or a batch
that was drawn before."""
Reduction = Literal["mean", "sum", "none"]
"""How the losses of samples are combined."""


class TrainRequest(NamedTuple):
    """A training job: `steps` optimizer steps from `start`; the rest as `Node.train` explains it."""

    start: Vector
    steps: int = 1
    proximal: Sequence[tuple[float | Scalar, Vector]] = ()
    learning_rate: float | None = None
    fresh_optimizer: bool = False
    on: Samples = "batch"
    weights: Any = None


class Compute(ABC):
    """A client's device and data. Verbs that are awaited take the device's time, one job after the other."""

    samples: int
    """Number of the client's own training samples."""
    steps_per_epoch: int
    """Training steps of a pass over the client's own samples, without the last incomplete batch."""
    classes: int
    """Number of classes of the data, those that this client has no sample of included."""
    learning_rate: float
    """The scenario's learning rate, before its schedule."""
    round: int | None = None
    """The server's round that training is of, from 0; None outside of rounds."""
    steps_left: float = math.inf
    """Training steps that may still be begun: what the client's budget leaves; infinite without one."""

    @property
    @abstractmethod
    def class_counts(self) -> dict[int, int]:
        """Number of the client's own training samples of each class that it has."""

    @abstractmethod
    def has_finished(self) -> None:
        """Called when the client trains no more: its budget is spent, or its server's rounds are over."""

    @abstractmethod
    def initial(self) -> Vector:
        """The parameters that this client starts from."""

    @abstractmethod
    async def train(self, request: TrainRequest) -> Vector:
        """The parameters after the steps that are requested."""

    @abstractmethod
    async def gradient(self, at: Vector, on: Samples = "batch", weights: Any = None) -> Vector:
        """Gradient of the client's objective at `at`."""

    @abstractmethod
    async def loss(
        self, of: Vector, on: Samples, reduction: Reduction = "mean", weights: Any = None
    ) -> Scalar | Vector:
        """Loss of the parameters `of` on this client's data."""

    @abstractmethod
    def batch(self) -> Batch:
        """A batch of the client's own training samples that none was before."""

    @abstractmethod
    async def class_features(self, of: Vector) -> dict[int, Vector]:
        """Mean features of each class that the client has samples of."""

    @abstractmethod
    def inputs(self) -> Vector:
        """The client's own training samples, side by side."""

    @abstractmethod
    async def predict(self, of: Vector, inputs: Any) -> Vector:
        """Outputs of the parameters `of` on given samples."""

    @abstractmethod
    async def spend(self, steps: float | None, flops: float | None) -> None:
        """Take the time of so many training steps, or of so many floating-point operations."""

    @abstractmethod
    def part(self, of: Vector, name: str, row: int | None) -> Vector:
        """A part of a model."""

    @abstractmethod
    def with_part(self, of: Vector, name: str, part: Vector, row: int | None) -> Vector:
        """A model with another part."""
