"""Checks that the models of all clients, and a training step of one client, fit in memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.errors import UserError
from sim.files import machine
from sim.learning.engine.graph.batches import Sampling, samples_of_batch
from sim.learning.models.size import ModelProperties
from sim.run.setup.training import ClientTraining
from sim.scenario.scenario import Scenario
from sim.scenario.sections.devices import DevicesOfClients

NUMBER_BYTES = 4
"""Size of a float32, in bytes."""


@dataclass(frozen=True)
class Workload:
    """Sizes of a client's training: model, optimizer and batches.

    state_vectors: vectors of the model's width that the optimizer keeps. batch_size: the stated size, see
    `batch_samples`. views: the number of copies of each sample in a batch.
    """

    model: ModelProperties
    state_vectors: int
    batch_size: int
    sampling: Sampling
    views: int

    def batch_samples(self, samples: int) -> int:
        """Return the number of samples in a batch of a client with this many samples."""
        return samples_of_batch(self.sampling, self.batch_size, samples)


def workloads(
    models: Sequence[ModelProperties], trainings: Sequence[ClientTraining], views: int
) -> tuple[Workload, ...]:
    """Return the work of each client; equal ones share an object."""
    made: dict[tuple[str, tuple[int, ...]], Workload] = {}
    work = []
    for model, own in zip(models, trainings, strict=True):
        key, how = (model.key, own.overrides), own.training
        if key not in made:
            made[key] = Workload(model, own.optimizer.slots, how.batch_size, how.sampling, views)
        work.append(made[key])
    return tuple(work)


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of a device, in bytes."""

    where: str
    size_bytes: int


def machines_room() -> DeviceMemory:
    """Return the memory of this machine, for its CPU."""
    return DeviceMemory("cpu", machine.memory_bytes())


def require_room(scenario: Scenario, each: Sequence[Workload], room: DeviceMemory) -> None:
    """Raise UserError if the models, or one training step, need more memory than the device has.

    The check allocates no memory. A run may still need too much, as copies and activations are not counted.
    """
    available, device = room.size_bytes, room.where
    largest = max(each, key=_step_bytes)
    if _step_bytes(largest) > available:
        state = ", the optimizer's state" if largest.state_vectors else ""
        raise UserError(
            f'model.name = "{scenario.model.name}", training.batch_size = {largest.batch_size}: a '
            f"training step takes at least {_gb(_step_bytes(largest))}, for a model of "
            f"{largest.model.numel:,} parameters, its gradient{state}{_constants_text(largest)} and a batch, "
            f"but {device} has {_gb(available)}; use a smaller model or a smaller batch"
        )
    # With a server, only a share of the clients holds a model at a time.
    share = getattr(scenario.protocol.settings, "fraction", 1.0)
    constants = {work.model.key: work.model.constant_bytes for work in each}
    held, own = share * models_bytes(each) + sum(constants.values()), method_bytes(scenario, each)
    if own > available:
        raise UserError(
            f'protocol.name = "{scenario.protocol.name}": the method keeps {_gb(own)} besides the clients\' '
            f"models ({largest.model.numel:,} parameters per model), but {device} has {_gb(available)}; use "
            "a smaller model, or smaller settings of the protocol"
        )
    if held + own > available:
        besides = f", and other data of the method ({_gb(own)}), take" if own else " take"
        who = f"{len(each):,} clients"
        if share != 1:
            who = f"the clients of a round (protocol.fraction = {share:g})"
        raise UserError(
            f"clients.count = {len(each)}: the models of {who} and their optimizers{besides} at least "
            f"{_gb(held + own)}, with up to {largest.model.numel:,} parameters per model, but {device} has "
            f"{_gb(available)}; use fewer clients or a smaller model"
        )


def require_room_on_device(devices: DevicesOfClients, client: int, work: Workload) -> None:
    """Raise UserError if training the model needs more memory than the client's simulated device has."""
    limit, kind = devices.memory(client)
    if limit is None:
        return
    model = work.model
    vectors = 2 + work.state_vectors
    kept = "parameters, gradient, optimizer state" if work.state_vectors else "parameters, gradient"
    if _step_bytes(work) > limit:
        of_kind = f' (class "{kind}")' if kind else ""
        raise UserError(
            f"devices.memory: the device of client {client}{of_kind} has {limit:,.0f} bytes, but "
            f"training the model takes at least {_step_bytes(work):,} bytes, not counting activations: "
            f"{vectors} times {model.numel:,} values of 4 bytes ({kept}){_constants_text(work)} and a batch "
            "of inputs; use a smaller model or more memory"
        )


def steps_allowed(scenario: Scenario, name: str, work: Workload, samples: int) -> float:
    """Return the training steps that a client's budget allows; infinite if it limits no steps or samples.

    Raises UserError for a budget that allows less than one step.
    """
    budget = scenario.run.budget
    if budget is None or budget.samples is None:
        return math.inf if budget is None or budget.steps is None else budget.steps
    of_a_step = work.batch_samples(samples) * work.views
    if budget.samples < of_a_step:
        raise UserError(
            f"run.budget.samples = {budget.samples}: {name} uses {of_a_step:,} samples in one training step; "
            f"must be at least {of_a_step}"
        )
    return budget.samples // of_a_step


def models_bytes(each: Sequence[Workload]) -> int:
    """Return the bytes of the clients' models and their optimizers."""
    return sum(_held_bytes(work) for work in each)


def method_bytes(scenario: Scenario, each: Sequence[Workload]) -> int:
    """Return the bytes that the method keeps besides its clients' models, such as a server's model."""
    if scenario.protocol.alone:
        return 0
    largest = max(work.model.numel for work in each)
    return NUMBER_BYTES * scenario.protocol.settings.own_numbers(largest, len(each))


def _held_bytes(work: Workload) -> int:
    """Return the bytes that a client keeps between its training steps."""
    return NUMBER_BYTES * work.model.numel * (1 + work.state_vectors)


def _step_bytes(work: Workload) -> int:
    """Return the bytes that a client needs in a training step, without activations."""
    batch = work.views * work.batch_size * math.prod(work.model.input_shape)
    trained = _held_bytes(work) + NUMBER_BYTES * (work.model.numel + batch)
    return trained + work.model.constant_bytes


def _constants_text(work: Workload) -> str:
    """Describe the constants of a model, which are not trained."""
    constants = work.model.constant_bytes
    return f", {constants:,} bytes of constants" if constants else ""


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"
