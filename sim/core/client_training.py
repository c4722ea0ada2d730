"""Computations of a simulated client: jobs take virtual time on the device and run on the engine."""

import math
import operator
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from torch import Tensor

from protocols.framework import vectors
from protocols.framework.compute import Batch, Compute, Reduction, Samples, TrainRequest
from sim.core.draws import Draws, Purpose, given_samples
from sim.core.learning_settings import LearningSettings
from sim.core.training_history import StepsTaken
from sim.learning.engine.engine import START_TERMS_MAX, Engine
from sim.learning.engine.graph.batch_operations import BatchOperation, ClassMeans, Gradient, Loss, Losses
from sim.learning.engine.graph.nodes import Factor
from sim.learning.engine.graph.operations import Train, Weighted
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob, TrainJob
from sim.learning.engine.handles import Scalar, Vector
from sim.learning.objectives import loss_of_each
from sim.learning.schedules import Schedule
from sim.world.devices.device import WAITING, CostModel, Device

# A forward pass alone costs about a third of a training step: the backward pass is about two forward passes.
FORWARD_SHARE = 1 / 3
_new_job = tuple.__new__
Measure = TypeVar("Measure", bound=BatchOperation)


class DeviceCompute(Compute):
    """Device and data of client number `client`.

    A job is submitted to the engine when it is called, so that jobs of many clients share an engine call. It
    takes effect when its virtual time is over; a canceled job has no effect. If an input changes meanwhile,
    such as the optimizer's state after an earlier job in the device's queue, the job is submitted again at
    its end. A job uses the vectors that were passed to its call. Raises ValueError for a client without
    training samples.
    """

    steps_begun = 0
    """Training steps in progress, if a budget limits them."""
    spent_s: float | None = None
    """Time in seconds at which the budget was exhausted and the last job had ended."""
    _submits_early = True
    """True to submit a job when it is called; False to submit it at its end."""

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
        self._draws = Draws(engine, client, settings)
        self.samples, self.batch_size = self._draws.samples, self._draws.batch_size
        self.samples_per_step = self.batch_size * settings.views
        """Samples of a training step or a gradient; each view counts."""
        self.steps_per_epoch = max(1, self.samples // self.batch_size)
        self.classes = settings.classes
        self.learning_rate = settings.learning_rate
        self.kernel = engine.kernel(settings.architecture, settings.objective, settings.precision)
        self._train = engine.training(self.kernel, settings.optimizer, self._draws.augmented)
        self._operations: dict[tuple[type, Samples, Weighted], BatchOperation] | None = None
        self._timed_samples, self._timed_s = 0, 0.0  # of the last training job
        self._train_key = engine.draw_key(client, "train")
        self._gradients = 0
        self._samples_measured = 0  # in gradients; each view counts
        self._optimizer_state: Vector | None = None
        self._steps_done = 0
        self._round: int | None = None
        self._changes = 0  # of the inputs of the next job
        self._taken = StepsTaken(settings.optimizer)
        # A schedule by time determines the learning rate at the end of a job.
        known = settings.schedule is None or settings.schedule.unit != "second"
        self._is_foreseeable = known and self._submits_early

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
        """Training steps so far, over all sessions of the client."""
        return self._draws.train

    @property
    def gradients(self) -> int:
        """Number of gradients so far, over all sessions of the client, excluding training steps."""
        return self._gradients

    @property
    def samples_seen(self) -> int:
        """Samples of all training steps and gradients so far; each view counts."""
        return self.training_steps * self.samples_per_step + self._samples_measured

    @property
    def flops(self) -> float:
        """Floating-point operations of all training steps and gradients so far."""
        return self.samples_seen * float(self.settings.architecture.training_flops_per_sample)

    @property
    def step_s(self) -> float:
        """Nominal seconds of one training step on a whole batch."""
        return self._duration_s(self.batch_size, training=True)

    def change_learning_rate(self, rate: float) -> None:
        """Set the learning rate of jobs that end later.

        A schedule multiplies this rate. If the method passes a rate to `train`, only that rate applies.
        """
        self._changes += rate != self.learning_rate
        self.learning_rate = rate

    def forget(self) -> None:
        """Reset the optimizer's state, as for a client that returns without its state."""
        self._optimizer_state, self._steps_done = None, 0
        self._changes += 1

    @property
    def round(self) -> int | None:
        return self._round

    @round.setter
    def round(self, number: int | None) -> None:
        self._changes += self.settings.schedule is not None and number != self._round
        self._round = number

    def has_finished(self) -> None:
        if self.spent_s is None and not self.steps_left and not self.steps_begun:
            self.spent_s = self.device.now_s

    def initial(self) -> vectors.Vector:
        return self._initial

    def recorded(self) -> dict[str, Any]:
        """Return the work over all sessions of the client, for `recall`."""
        done = {"drawn": self._draws.drawn, "gradients": self._gradients, "spent_s": self.spent_s}
        return done | {"measured": self._samples_measured, "taken": self._taken.recorded()}

    def recall(self, recorded: Mapping[str, Any]) -> None:
        """Adopt the recorded work of this client in another process."""
        for purpose, drawn in recorded["drawn"].items():
            setattr(self._draws, purpose, drawn)
        self._gradients, self.spent_s = recorded["gradients"], recorded["spent_s"]
        self._samples_measured = recorded["measured"]
        self._taken = StepsTaken(self.settings.optimizer)
        for steps, rate, fresh in recorded["taken"]:
            self._taken.add(steps, tuple(rate) if isinstance(rate, list) else rate, fresh)

    def train_alone(self, engine: Engine) -> Vector | None:
        """Repeat the steps so far without peers, on another engine, and return the parameters.

        Training starts at the initial model. Batches, learning rates, and optimizer are the same; proximal
        terms and sample weights are left out. Returns None without steps. Takes no virtual time.
        """
        return self._taken.again(engine, *self._again(engine), self.client, self._train_key)

    def _again(self, engine: Engine) -> tuple[Train, Vector]:
        """Return the training operation and the initial model on another engine."""
        settings = self.settings
        kernel = engine.kernel(settings.architecture, settings.objective, settings.precision)
        training = engine.training(kernel, settings.optimizer, self._draws.augmented)
        return training, engine.vector(self._initial.tensor())

    def rehearse(self, engine: Engine) -> None:
        """Run one training step on another engine as a warm-up, and discard its result."""
        job = TrainJob(self.client, self._train_key, 0, 1, self.learning_rate, 0, ())
        engine.train(*self._again(engine), job)[0].tensor()

    async def train(self, request: TrainRequest) -> vectors.Vector:
        start, steps, proximal, stated, fresh_optimizer, on, weights = request
        if type(steps) is not int:
            steps = operator.index(steps)
        if steps < 1:
            raise ValueError(f"a training job needs at least one step, not {steps}")
        if stated is not None:
            stated = _learning_rate(stated)
        own: Vector = start  # type: ignore[assignment]  # cast() would be a call, and every step passes here
        strengths: tuple[Factor, ...] = ()
        anchors: list[Vector] = []
        if proximal:
            strengths = tuple([_factor(strength) for strength, _ in proximal])
            anchors = [cast(Vector, anchor) for _, anchor in proximal]
        operation, of_samples = self._train, None
        if weights is not None or on != "batch":
            operation, of_samples = self._training(on, weights)
        engine, begun = self.engine, -1
        if self._is_foreseeable and on == "batch" and self.device.state == WAITING:
            job, state = self._next_job(steps, stated, fresh_optimizer, strengths)
            made = engine.train(operation, own, job, state=state, anchors=anchors, weights=of_samples)
            begun = self._changes
        else:  # Fixed now: later merges must not change it, as it cancels in the update.
            own.shortened(START_TERMS_MAX)
        await self._take_time(steps * self.batch_size)
        if begun != self._changes:
            job, state = self._next_job(steps, stated, fresh_optimizer, strengths)
            if on == "batch":
                made = engine.train(operation, own, job, state=state, anchors=anchors, weights=of_samples)
            else:
                assert isinstance(on, Batch)
                made = self._train_on(on, operation, own, state, job, anchors, of_samples)
        self._draws.train = job.first_step + steps
        engine.statistics.updates += steps
        self._taken.add(steps, job.learning_rate, not job.steps_done)
        trained, self._optimizer_state = made
        self._steps_done = job.steps_done + steps
        self._changes += 1
        return trained

    def _next_job(
        self, steps: int, stated: float | None, fresh_optimizer: bool, strengths: tuple[Factor, ...]
    ) -> tuple[TrainJob, Vector | None]:
        """Return the next training job as if it ended now, and the optimizer's state before it."""
        first = self._draws.train
        rate: float | tuple[float, ...] = self.learning_rate if stated is None else stated
        if stated is None and self.settings.schedule is not None:
            rate = self._scheduled(self.settings.schedule, first, steps)
        state, done = (None, 0) if fresh_optimizer else (self._optimizer_state, self._steps_done)
        # Takes less than half the time of TrainJob(...), and every step of a run passes here.
        return _new_job(TrainJob, (self.client, self._train_key, first, steps, rate, done, strengths)), state

    def _training(self, on: Samples, weights: Any) -> tuple[Train, Vector | None]:
        """Return the training operation for these samples, and their weights. Raises ValueError."""
        if on != "batch" and not isinstance(on, Batch):
            raise ValueError(f'for training, `on` must be "batch" or a result of batch(), not {on!r}')
        sampler = self._draws.sampler(on, training=True)
        of_samples, weighted = self._weights(weights, on, sampler)
        return self.engine.training(self.kernel, self.settings.optimizer, sampler, weighted), of_samples

    def _train_on(
        self,
        batch: Batch,
        operation: Train,
        params: Vector,
        state: Vector | None,
        all_steps: TrainJob,
        anchors: list[Vector],
        weights: Vector | None,
    ) -> tuple[Vector, Vector | None]:
        """Take all steps on the same batch; return the parameters and the optimizer's state."""
        key, rate = self._draws.key("batch"), all_steps.learning_rate
        for step in range(all_steps.steps):
            own_rate = rate[step] if isinstance(rate, tuple) else rate
            done = all_steps.steps_done + step
            job = TrainJob(self.client, key, batch.number, 1, own_rate, done, all_steps.strengths)
            params, state = self.engine.train(
                operation, params, job, state=state, anchors=anchors, weights=weights
            )
        return params, state

    async def gradient(
        self, at: vectors.Vector, on: Samples = "batch", weights: Any = None
    ) -> vectors.Vector:
        sampler = self._draws.sampler(on, training=True)
        of_samples, weighted = self._weights(weights, on, sampler)
        operation = self._operation(Gradient, on, sampler, weighted)

        def submit(job: GradientOrLossJob) -> Vector:
            return self.engine.gradient(operation, cast(Vector, at), job, of_samples)

        gradient = await self._measure("gradient", on, sampler.batch_size, submit)
        self._gradients += 1
        self._samples_measured += sampler.batch_size * sampler.views
        return gradient

    async def loss(
        self, of: vectors.Vector, on: Samples, reduction: Reduction = "mean", weights: Any = None
    ) -> vectors.Scalar | vectors.Vector:
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f'reduction must be "mean", "sum" or "none", not {reduction!r}')
        sampler = self._draws.sampler(on, training=False)
        of_samples, weighted = self._weights(weights, on, sampler)
        if reduction == "none":
            loss_of_each(self.settings.objective)
        operation = self._operation(Losses if reduction == "none" else Loss, on, sampler, weighted)

        def submit(job: GradientOrLossJob) -> Vector:
            if isinstance(operation, Losses):
                return self.engine.losses(operation, cast(Vector, of), job, of_samples)
            assert isinstance(operation, Loss)
            return self.engine.loss(operation, cast(Vector, of), job, of_samples)

        found = await self._measure("loss", on, sampler.batch_size, submit)
        return sampler.batch_size * found if reduction == "sum" else found

    async def _measure(
        self, purpose: Purpose, on: Samples, samples: int, submit: Callable[[GradientOrLossJob], Vector]
    ) -> Vector:
        """Wait while the next job of this purpose takes its virtual time, and return its result."""
        begun = self._draws.next_job(purpose, on)
        made = submit(begun) if self._submits_early and self.device.state == WAITING else None
        await self._take_time(samples, training=purpose == "gradient")
        due = self._draws.next_job(purpose, on)
        if on == "batch":
            self._draws.advance(purpose, 1)
        return made if made is not None and begun == due else submit(due)

    def batch(self) -> Batch:
        return self._draws.fresh_batch()

    async def class_features(self, of: vectors.Vector) -> dict[int, vectors.Vector]:
        await self._take_time(self.samples, training=False)
        operation = self._class_means
        means, width = self.engine.class_means(operation, cast(Vector, of), self.client), operation.features
        return {label: self.engine.part(means, label * width, width) for label in self.class_counts}

    def inputs(self) -> vectors.Vector:
        return self.engine.vector(self._own_samples("inputs")[0].flatten())

    def labels(self) -> vectors.Vector:
        return self.engine.vector(self._own_samples("labels")[1].flatten())

    def _own_samples(self, what: str) -> tuple[Tensor, Tensor]:
        """Return the client's training samples and labels. Raises ValueError without labels or floats."""
        x, y = self.engine.data.train.gather(np.array([self.client]), np.arange(self.samples)[None])
        if not self.settings.classes:
            raise ValueError(f"{what}: samples of this task have neither classes nor targets")
        if not x.is_floating_point():
            raise ValueError(f"{what}: samples of this task are not floating-point numbers")
        return x, y

    async def predict(self, of: vectors.Vector, inputs: Any) -> vectors.Vector:
        samples = given_samples(self.engine, self.settings, inputs)
        count = samples.width // math.prod(self.settings.architecture.input_shape)
        await self._take_time(count, training=False)
        return self.engine.outputs(self.kernel, cast(Vector, of), samples, count * self.classes)

    async def spend(self, steps: float | None, flops: float | None) -> None:
        if (steps is None) == (flops is None):
            raise ValueError("give the cost in steps or in flops: exactly one of them")
        if steps is not None:
            seconds = self.step_s * _positive("steps", steps)
        else:
            assert flops is not None
            seconds = self._seconds_of(_positive("flops", flops))
        await self.device.run(seconds)

    def _seconds_of(self, flops: float) -> float:
        """Return the seconds of this many floating-point operations, from the time of a training step."""
        if self.cost.flops_per_s is not None:
            return self.cost.seconds(flops=flops)
        settings = self.settings
        of_a_step = settings.architecture.training_flops_per_sample * self.samples_per_step
        if not of_a_step:
            raise ValueError(
                f"a training step of {settings.architecture.key} has no FLOP count; give the cost in steps"
            )
        return self.step_s * flops / of_a_step

    def part(self, of: vectors.Vector, name: str, row: int | None) -> vectors.Vector:
        columns = self.settings.architecture.part(name, row)
        return self.engine.part(cast(Vector, of), columns.start, columns.stop - columns.start)

    def with_part(
        self, of: vectors.Vector, name: str, part: vectors.Vector, row: int | None
    ) -> vectors.Vector:
        columns, vector = self.settings.architecture.part(name, row), cast(Vector, part)
        if vector.width != columns.stop - columns.start:
            raise ValueError(
                f"a part of {vector.width} numbers cannot replace {name}, which has "
                f"{columns.stop - columns.start}"
            )
        return self.engine.with_part(cast(Vector, of), columns.start, vector)

    def _take_time(self, samples: int, *, training: bool = True) -> Awaitable[None]:
        """Occupy the device for forward passes of this many samples and, in training, backward passes.

        Each view costs floating-point operations; a stated time of a step includes all views.
        """
        if not training:
            return self.device.run(self._duration_s(samples, training))
        if samples != self._timed_samples:
            self._timed_samples, self._timed_s = samples, self._duration_s(samples, training)
        return self.device.run(self._timed_s)

    def _duration_s(self, samples: int, training: bool) -> float:
        if self.cost.flops_per_s is None:
            steps = samples / self.batch_size * (1.0 if training else FORWARD_SHARE)
            return self.cost.seconds(steps=steps)
        model = self.settings.architecture
        per_sample = model.training_flops_per_sample if training else model.forward_flops_per_sample
        return self.cost.seconds(flops=samples * self.settings.views * per_sample)

    def _scheduled(self, schedule: Schedule, first: int, steps: int) -> float | tuple[float, ...]:
        """Return the scheduled rates of `steps` steps from number `first`: one for all, or one for each."""
        rate = self.learning_rate
        if schedule.unit == "second":
            return rate * schedule.factor(self.device.now_s)
        if schedule.unit == "round":
            if self.round is None:
                raise ValueError(
                    "training.schedule counts rounds, but the server's tasks have no round number: add "
                    "`round: int` to their class"
                )
            return rate * schedule.factor(self.round)
        rates = tuple([rate * schedule.factor(step) for step in range(first, first + steps)])
        return rates[0] if len(set(rates)) == 1 else rates

    def _operation(
        self, kind: type[Measure], on: Samples, sampler: BatchSampler, weighted: Weighted
    ) -> Measure:
        key = (kind, "batch" if isinstance(on, Batch) else on, weighted)
        known = self._operations = self._operations or {}
        operation = known.get(key)
        if operation is None:
            operation = known[key] = self.engine.intern(kind(self.kernel, sampler, weighted))
        assert isinstance(operation, kind)
        return operation

    def _weights(self, weights: Any, on: Samples, sampler: BatchSampler) -> tuple[Vector | None, Weighted]:
        if weights is None:
            return None, None
        loss_of_each(self.settings.objective)
        return self._draws.weights(weights, on, sampler)


def _positive(name: str, cost: float) -> float:
    if not 0 < cost < math.inf:
        raise ValueError(f"{name} must be finite and above 0, not {cost!r}")
    return cost


def _learning_rate(stated: object) -> float:
    is_number = isinstance(stated, int | float | np.floating | np.integer) and not isinstance(stated, bool)
    if not is_number or not 0 <= stated < math.inf:  # type: ignore[operator]
        raise ValueError(f"learning_rate must be a finite number, 0 or more, not {stated!r:.60}")
    return float(stated)  # type: ignore[arg-type]


def _factor(strength: float | vectors.Scalar) -> Factor:
    return strength.factor() if isinstance(strength, Scalar) else float(cast(float, strength))
