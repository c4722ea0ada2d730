"""A simulated client's computing: jobs go to the engine at once, and take the device's virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from protocols import learner, vectors
from sim.learning.engine.engine import Engine
from sim.learning.engine.handles import Factor, Scalar, Vector
from sim.learning.engine.operations import Draw, Gradient, Loss, SampleJob, Train, TrainJob
from sim.learning.engine.optimizers import Optimizer
from sim.learning.models import Architecture
from sim.learning.objectives import Objective
from sim.world.devices import CostModel, Device

# A forward pass alone costs about a third of a training step: the backward pass is about two forward passes.
FORWARD_SHARE = 1 / 3


@dataclass(frozen=True)
class LearningSettings:
    """How a client trains."""

    architecture: Architecture
    objective: Objective
    optimizer: Optimizer
    learning_rate: float
    batch_size: int
    sampling: str


class DeviceCompute(learner.Compute):
    """The computing of client number `client`, on its own data and device."""

    def __init__(
        self,
        engine: Engine,
        settings: LearningSettings,
        client: int,
        device: Device,
        cost: CostModel,
        initial: Vector,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.client = client
        self.device = device
        self.cost = cost
        self._initial = initial
        self.samples = int(engine.data.train.counts[client])
        self.batch_size = (
            settings.batch_size
            if settings.sampling == "replacement"
            else min(settings.batch_size, self.samples)
        )
        self.steps_per_epoch = max(1, self.samples // self.batch_size)
        self._kernel = engine.kernel(settings.architecture, settings.objective)
        self._trainings: dict[int, Train] = {}
        self._losses: dict[str, Loss] = {}
        self._gradient = engine.intern(Gradient(self._kernel, self._draw(1)))
        self._keys = {purpose: engine.draw_key(client, purpose) for purpose in ("train", "gradient", "loss")}
        self._drawn = dict.fromkeys(self._keys, 0)  # batches drawn so far, by purpose
        self._state: Vector | None = None
        self._steps_done = 0

    def forget(self) -> None:
        """Lose the optimizer's state, as a client does that comes back without what it had."""
        self._state, self._steps_done = None, 0

    def initial(self) -> vectors.Vector:
        return self._initial

    async def train(
        self,
        start: vectors.Vector,
        steps: int,
        pulls: Sequence[tuple[float | vectors.Scalar, vectors.Vector]],
        learning_rate: float | None,
        fresh_optimizer: bool,
    ) -> vectors.Vector:
        if steps < 1:
            raise ValueError(f"a training job needs at least one step, not {steps}")
        if fresh_optimizer:
            self.forget()
        job = TrainJob(
            self.client,
            self._keys["train"],
            self._advance("train", steps),
            self.settings.learning_rate if learning_rate is None else learning_rate,
            self._steps_done,
            tuple([_factor(strength) for strength, _ in pulls]),
        )
        trained, self._state = self.engine.train(
            self._training(steps),
            cast(Vector, start),
            job,
            state=self._state,
            anchors=[cast(Vector, anchor) for _, anchor in pulls],
        )
        self._steps_done += steps
        await self._take_time(steps, self.settings.architecture.training_flops_per_sample)
        return trained

    async def gradient(self, at: vectors.Vector) -> vectors.Vector:
        job = SampleJob(self.client, self._keys["gradient"], self._advance("gradient", 1))
        result = self.engine.gradient(self._gradient, cast(Vector, at), job)
        await self._take_time(1, self.settings.architecture.training_flops_per_sample)
        return result

    async def loss(self, of: vectors.Vector, on: str) -> vectors.Scalar:
        operation = self._loss(on)
        job = SampleJob(self.client, self._keys["loss"], self._advance("loss", 1) if on == "batch" else 0)
        result = self.engine.loss(operation, cast(Vector, of), job)
        batches = operation.draw.batch_size / self.batch_size
        await self._take_time(
            batches, self.settings.architecture.forward_flops_per_sample, share=FORWARD_SHARE
        )
        return result

    def dot(self, first: vectors.Vector, second: vectors.Vector) -> vectors.Scalar:
        return self.engine.dot(cast(Vector, first), cast(Vector, second))

    def scalar(self, value: float) -> vectors.Scalar:
        return self.engine.scalar(value)

    async def _take_time(self, batches: float, flops_per_sample: int, share: float = 1.0) -> None:
        """Occupy the device: `batches` times the batch size samples; `share` of a training step's time for each."""
        flops = batches * self.batch_size * flops_per_sample
        await self.device.run(self.cost.seconds(steps=batches * share, flops=flops))

    def _advance(self, purpose: str, batches: int) -> int:
        first = self._drawn[purpose]
        self._drawn[purpose] = first + batches
        return first

    def _draw(self, steps: int) -> Draw:
        return Draw(self.engine.data.train, self.batch_size, steps, self.settings.sampling)

    def _training(self, steps: int) -> Train:
        operation = self._trainings.get(steps)
        if operation is None:
            operation = self.engine.training(self._kernel, self.settings.optimizer, self._draw(steps))
            self._trainings[steps] = operation
        return operation

    def _loss(self, on: str) -> Loss:
        operation = self._losses.get(on)
        if operation is None:
            operation = self._losses[on] = self.engine.intern(Loss(self._kernel, self._loss_draw(on)))
        return operation

    def _loss_draw(self, on: str) -> Draw:
        if on == "batch":
            return self._draw(1)
        if on not in ("train", "validation"):
            raise ValueError(f'a loss is taken on "batch", "train" or "validation", not {on!r}')
        subset = self.engine.data.subset(on)
        count = int(subset.counts[self.client])
        if count == 0:
            raise ValueError(
                f"client {self.client} holds back no samples for validation; set data.validation_share"
            )
        return Draw(subset, count, 1, "all")


def _factor(strength: float | vectors.Scalar) -> Factor:
    return strength.factor() if isinstance(strength, Scalar) else float(cast(float, strength))
