"""A simulated client's computing: a job takes the device's virtual time, then goes to the engine."""

from __future__ import annotations

import math
import operator
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from protocols.framework import learner, vectors
from sim.learning.architecture import Architecture
from sim.learning.augmentation import Augmentation
from sim.learning.engine.class_means import ClassMeans
from sim.learning.engine.engine import START_TERMS_MAX, Engine
from sim.learning.engine.handles import Scalar, Vector
from sim.learning.engine.nodes import Factor
from sim.learning.engine.operations import Gradient, Loss
from sim.learning.engine.optimizers import Optimizer
from sim.learning.engine.sampler import BatchSampler, SampleJob, TrainJob
from sim.learning.objectives import Objective
from sim.learning.schedules import Schedule
from sim.world.devices import CostModel, Device

# A forward pass alone costs about a third of a training step: the backward pass is about two forward passes.
FORWARD_SHARE = 1 / 3
_new_job = tuple.__new__
_STEPS_AT_ONCE = 20  # of training alone, per job


@dataclass(frozen=True)
class LearningSettings:
    """How a client trains.

    views: how often each sample is in a batch, as the objective expects it. Training and gradients augment
    each view; losses do not, so that they compare models on equal samples.
    """

    architecture: Architecture
    objective: Objective
    classes: int
    optimizer: Optimizer
    learning_rate: float
    batch_size: int
    sampling: str
    augmentation: Augmentation | None = None
    views: int = 1
    schedule: Schedule | None = None


@dataclass
class _Steps:
    """Training steps that followed each other, perhaps begun with a fresh optimizer.

    At one learning rate, or at one each.
    """

    steps: int
    learning_rate: float | tuple[float, ...]
    fresh_optimizer: bool


class DeviceCompute(learner.Compute):
    """The computing of client number `client`, on its own data and device.

    A job is submitted when its time is over: a cancelled one leaves nothing behind, and one that waited in
    the device's queue continues from the optimizer that the job before it left. Its inputs are those of the
    call. Raises ValueError for a client without training samples.
    """

    steps_begun = 0
    """Training steps under way, where there is a budget that they count for."""

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
        if self.samples == 0:
            raise ValueError(f"client {client} has no training samples")
        self.batch_size = (
            settings.batch_size
            if settings.sampling == "replacement"
            else min(settings.batch_size, self.samples)
        )
        self.steps_per_epoch = max(1, self.samples // self.batch_size)
        self.classes = settings.classes
        self.kernel = engine.kernel(settings.architecture, settings.objective)
        self._train = engine.training(self.kernel, settings.optimizer, self._sampler())
        self._losses: dict[str, Loss] = {}
        self._gradient = engine.intern(Gradient(self.kernel, self._sampler()))
        self._keys = {purpose: engine.draw_key(client, purpose) for purpose in ("train", "gradient", "loss")}
        self._batches_drawn = dict.fromkeys(self._keys, 0)  # batches drawn so far, by purpose
        self._state: Vector | None = None
        self._steps_done = 0
        self._taken: list[_Steps] = []
        self._training_s: dict[int, float] = {}  # of jobs, by samples
        self._forward_s: dict[int, float] = {}

    @cached_property
    def class_counts(self) -> dict[int, int]:
        train = self.engine.data.train
        _, y = train.gather(np.array([self.client]), np.arange(self.samples)[None])
        labels, counts = y.unique(return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist(), strict=True))

    @cached_property
    def _class_means(self) -> ClassMeans:
        _, features = self.settings.architecture.shape_of("head.weight")
        return self.engine.intern(ClassMeans(self.kernel, self.engine.data.train, self.classes, features))

    @property
    def training_steps(self) -> int:
        """Training steps so far, over all lives of the client."""
        return self._batches_drawn["train"]

    @property
    def gradients(self) -> int:
        """Gradients so far, over all lives of the client; those of training steps do not count."""
        return self._batches_drawn["gradient"]

    @property
    def samples_per_step(self) -> int:
        """Samples of a training step or a gradient, each view counted."""
        return self.batch_size * self.settings.views

    @property
    def samples_seen(self) -> int:
        """Samples of all training steps and gradients so far, each view counted."""
        return (self.training_steps + self.gradients) * self.samples_per_step

    @property
    def step_s(self) -> float:
        """Nominal seconds of one training step on a whole batch."""
        return self._duration_s(self.batch_size, training=True)

    def forget(self) -> None:
        """Lose the optimizer's state, as a client does that comes back without what it had."""
        self._state, self._steps_done = None, 0

    def initial(self) -> vectors.Vector:
        return self._initial

    def train_alone(self, engine: Engine) -> Vector | None:
        """Parameters after the steps taken so far, alone and from the start, computed by another engine.

        The same batches, learning rates and optimizer, without pulls, one model throughout; None if no step
        was taken. Takes no virtual time.
        """
        if not self._taken:
            return None
        params, state, drawn, done = engine.vector(self._initial.tensor()), None, 0, 0
        kernel = engine.kernel(self.settings.architecture, self.settings.objective)
        for taken in self._taken:
            if taken.fresh_optimizer:
                state, done = None, 0
            for first in range(0, taken.steps, _STEPS_AT_ONCE):
                steps = min(_STEPS_AT_ONCE, taken.steps - first)
                rate = taken.learning_rate
                rate = rate[first : first + steps] if isinstance(rate, tuple) else rate
                job = TrainJob(self.client, self._keys["train"], drawn, steps, rate, done, ())
                operation = engine.training(kernel, self.settings.optimizer, self._sampler())
                params, state = engine.train(operation, params, job, state=state)
                drawn, done = drawn + steps, done + steps
        return params

    async def train(
        self,
        start: vectors.Vector,
        steps: int,
        pulls: Sequence[tuple[float | vectors.Scalar, vectors.Vector]],
        learning_rate: float | None,
        fresh_optimizer: bool,
    ) -> vectors.Vector:
        steps = operator.index(steps)
        if steps < 1:
            raise ValueError(f"a training job needs at least one step, not {steps}")
        start = cast(Vector, start)
        # From now on: it must cancel in the update, whatever is merged meanwhile.
        start.shortened(START_TERMS_MAX)
        strengths: tuple[Factor, ...] = ()
        anchors: list[Vector] = []
        if pulls:
            strengths = tuple([_factor(strength) for strength, _ in pulls])
            anchors = [cast(Vector, anchor) for _, anchor in pulls]
        await self._take_time(steps * self.batch_size)
        if fresh_optimizer:
            self.forget()
        first = self._advance("train", steps)
        rate = self._scheduled(first, steps) if learning_rate is None else learning_rate
        self._note_taken(steps, rate)
        # Less than half of what TrainJob(...) takes, and every step of a run passes here.
        job = _new_job(
            TrainJob, (self.client, self._keys["train"], first, steps, rate, self._steps_done, strengths)
        )
        trained, self._state = self.engine.train(self._train, start, job, state=self._state, anchors=anchors)
        self._steps_done += steps
        return trained

    async def gradient(self, at: vectors.Vector) -> vectors.Vector:
        await self._take_time(self.batch_size)
        job = SampleJob(self.client, self._keys["gradient"], self._advance("gradient", 1))
        return self.engine.gradient(self._gradient, cast(Vector, at), job)

    async def loss(self, of: vectors.Vector, on: str) -> vectors.Scalar:
        operation = self._loss(on)
        await self._take_time(operation.sampler.batch_size, training=False)
        job = SampleJob(self.client, self._keys["loss"], self._advance("loss", 1) if on == "batch" else 0)
        return self.engine.loss(operation, cast(Vector, of), job)

    async def class_features(self, of: vectors.Vector) -> dict[int, vectors.Vector]:
        await self._take_time(self.samples, training=False)
        operation = self._class_means
        means, width = self.engine.class_means(operation, cast(Vector, of), self.client), operation.features
        return {label: self.engine.part(means, label * width, width) for label in self.class_counts}

    async def spend(self, steps: float | None, flops: float | None) -> None:
        if (steps is None) == (flops is None):
            raise ValueError("a cost is stated in steps or in flops, not in both")
        if steps is not None:
            seconds = self.step_s * _positive("steps", steps)
        else:
            assert flops is not None
            seconds = self._seconds_of(_positive("flops", flops))
        await self.device.run(seconds)

    def _seconds_of(self, flops: float) -> float:
        """How long so many floating-point operations take, where training takes the time that is stated."""
        if self.cost.flops_per_s is not None:
            return self.cost.seconds(flops=flops)
        settings = self.settings
        of_a_step = settings.architecture.training_flops_per_sample * self.samples_per_step
        if not of_a_step:
            raise ValueError(
                f"a training step of {settings.architecture.key} has no flops; state the cost in steps"
            )
        return self.step_s * flops / of_a_step

    def part(self, of: vectors.Vector, name: str, row: int | None) -> vectors.Vector:
        columns = self._columns(name, row)
        return self.engine.part(cast(Vector, of), columns.start, columns.stop - columns.start)

    def with_part(
        self, of: vectors.Vector, name: str, part: vectors.Vector, row: int | None
    ) -> vectors.Vector:
        columns, vector = self._columns(name, row), cast(Vector, part)
        if vector.width != columns.stop - columns.start:
            raise ValueError(
                f"a part of {vector.width} numbers cannot be {name}, which has {columns.stop - columns.start}"
            )
        return self.engine.with_part(cast(Vector, of), columns.start, vector)

    def dot(self, first: vectors.Vector, second: vectors.Vector) -> vectors.Scalar:
        return self.engine.dot(cast(Vector, first), cast(Vector, second))

    def scalar(self, value: float) -> vectors.Scalar:
        return self.engine.scalar(value)

    def _columns(self, name: str, row: int | None) -> slice:
        """Where a part, or one row of it, lies in the parameters."""
        columns = self.settings.architecture.part(name)
        if row is None:
            return columns
        rows, *others = self.settings.architecture.shape_of(name)
        if not 0 <= row < rows:
            raise ValueError(f"{name} has the rows 0 to {rows - 1}, not {row}")
        width = math.prod(others)
        return slice(columns.start + row * width, columns.start + (row + 1) * width)

    def _take_time(self, samples: int, *, training: bool = True) -> Awaitable[None]:
        """Occupy the device for so many samples, by passes forward and, in training, backward.

        Each view costs its floating-point operations; the time that a step is stated to take includes them.
        """
        durations_s = self._training_s if training else self._forward_s
        seconds = durations_s.get(samples)
        if seconds is None:
            seconds = durations_s[samples] = self._duration_s(samples, training)
        return self.device.run(seconds)

    def _duration_s(self, samples: int, training: bool) -> float:
        if self.cost.flops_per_s is None:
            steps = samples / self.batch_size * (1.0 if training else FORWARD_SHARE)
            return self.cost.seconds(steps=steps)
        # Counted only where it matters: the counter takes seconds to load.
        model = self.settings.architecture
        per_sample = model.training_flops_per_sample if training else model.forward_flops_per_sample
        return self.cost.seconds(flops=samples * self.settings.views * per_sample)

    def _scheduled(self, first: int, steps: int) -> float | tuple[float, ...]:
        """The learning rate of the steps from number `first` on: of all, or of each."""
        rate, schedule = self.settings.learning_rate, self.settings.schedule
        if schedule is None:
            return rate
        if schedule.by_time:
            return rate * schedule.factor(self.device.now_s)
        rates = tuple([rate * schedule.factor(step) for step in range(first, first + steps)])
        return rates[0] if len(set(rates)) == 1 else rates

    def _note_taken(self, steps: int, learning_rate: float | tuple[float, ...]) -> None:
        """Remember steps for `train_alone`; those of one kind that follow each other are one entry."""
        fresh = self._steps_done == 0
        last = self._taken[-1] if self._taken else None
        varies = isinstance(learning_rate, tuple) or last is None or last.learning_rate != learning_rate
        if last is None or varies or (fresh and self.settings.optimizer.slots):
            self._taken.append(_Steps(steps, learning_rate, fresh))
        else:  # without a state that was reset
            last.steps += steps

    def _advance(self, purpose: str, batches: int) -> int:
        first = self._batches_drawn[purpose]
        self._batches_drawn[purpose] = first + batches
        return first

    def _sampler(self) -> BatchSampler:
        """Of what is trained on."""
        settings = self.settings
        train = self.engine.data.train
        return BatchSampler(train, self.batch_size, settings.sampling, settings.augmentation, settings.views)

    def _loss(self, on: str) -> Loss:
        operation = self._losses.get(on)
        if operation is None:
            operation = self._losses[on] = self.engine.intern(Loss(self.kernel, self._loss_sampler(on)))
        return operation

    def _loss_sampler(self, on: str) -> BatchSampler:
        if on == "batch":
            return replace(self._sampler(), augmentation=None)
        if on not in ("train", "validation"):
            raise ValueError(f'a loss is taken on "batch", "train" or "validation", not {on!r}')
        subset = self.engine.data.subset(on)
        count = int(subset.counts[self.client])
        if count == 0:
            raise ValueError(
                f"client {self.client} holds back no samples for validation; set data.validation_share"
            )
        return BatchSampler(subset, count, "all", views=self.settings.views)


def _positive(name: str, cost: float) -> float:
    if not 0 < cost < math.inf:
        raise ValueError(f"{name} must be above 0 and finite, not {cost!r}")
    return cost


def _factor(strength: float | vectors.Scalar) -> Factor:
    return strength.factor() if isinstance(strength, Scalar) else float(cast(float, strength))
