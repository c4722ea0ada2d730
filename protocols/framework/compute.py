"""Computations of a client's device on its own data: the interface for methods."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from protocols.framework.vectors import Scalar, Vector


@dataclass(frozen=True)
class Batch:
    """Some of a client's training samples, drawn once, so that several models can use the same samples.

    `client`: the owner of the samples. `number`: the number of this batch. `samples`: the number of samples.
    """

    client: int
    number: int
    samples: int


Samples = Literal["batch", "train", "validation"] | Batch
"""Choice of a client's samples: a new batch, an earlier batch, or all training or held-out samples."""
Reduction = Literal["mean", "sum", "none"]
"""Reduction of the losses of samples."""


class TrainRequest(NamedTuple):
    """Training job: `steps` optimizer steps from `start`; `Node.train` describes the other fields."""

    start: Vector
    steps: int = 1
    proximal: Sequence[tuple[float | Scalar, Vector]] = ()
    learning_rate: float | None = None
    fresh_optimizer: bool = False
    on: Samples = "batch"
    weights: Any = None


class Compute(ABC):
    """Device and data of a client. Each awaited call is a job, and the device runs one job at a time."""

    samples: int
    """Number of the client's own training samples."""
    steps_per_epoch: int
    """Training steps of one pass over the client's samples, without the last incomplete batch; at least 1."""
    classes: int
    """Number of classes in the data set, including classes without samples of this client."""
    learning_rate: float
    """Learning rate of the client, before the schedule is applied."""
    round: int | None = None
    """Round of the server in which the client trains, from 0; None outside of rounds."""
    steps_left: float = math.inf
    """Training steps that the client's budget still allows; infinite without a budget."""

    @property
    @abstractmethod
    def class_counts(self) -> dict[int, int]:
        """Number of the client's training samples of each class."""

    @abstractmethod
    def has_finished(self) -> None:
        """React to the end of training: the budget is exhausted, or the server's rounds are over."""

    @abstractmethod
    def initial(self) -> Vector:
        """Return the initial parameters of this client."""

    @abstractmethod
    async def train(self, request: TrainRequest) -> Vector:
        """Return the parameters after the requested steps."""

    @abstractmethod
    async def gradient(self, at: Vector, on: Samples = "batch", weights: Any = None) -> Vector:
        """Return the gradient of the client's objective at `at`."""

    @abstractmethod
    async def loss(
        self, of: Vector, on: Samples, reduction: Reduction = "mean", weights: Any = None
    ) -> Scalar | Vector:
        """Return the loss of the parameters `of` on this client's data."""

    @abstractmethod
    def batch(self) -> Batch:
        """Return a new batch of the client's training samples."""

    @abstractmethod
    async def class_features(self, of: Vector) -> dict[int, Vector]:
        """Return the mean features of each class in the client's samples."""

    @abstractmethod
    def inputs(self) -> Vector:
        """Return the client's training samples, concatenated."""

    @abstractmethod
    def labels(self) -> Vector:
        """Return the labels of the client's training samples, or their targets, concatenated."""

    @abstractmethod
    async def predict(self, of: Vector, inputs: Any) -> Vector:
        """Return the outputs of the parameters `of` on given samples."""

    @abstractmethod
    async def spend(self, steps: float | None, flops: float | None) -> None:
        """Take the time of `steps` training steps, or of `flops` floating-point operations."""

    @abstractmethod
    def part(self, of: Vector, name: str, row: int | None) -> Vector:
        """Return a part of a model."""

    @abstractmethod
    def with_part(self, of: Vector, name: str, part: Vector, row: int | None) -> Vector:
        """Return a model with one part replaced."""
