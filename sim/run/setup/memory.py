"""Whether the models of all clients, and what one of them needs to train, can fit in memory at all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.errors import UserError
from sim.files import machine
from sim.learning.engine.graph.batches import Sampling, samples_of_batch
from sim.learning.models.size import Sized
from sim.scenario.scenario import Scenario
from sim.scenario.sections.devices import DevicesOfClients

NUMBER_BYTES = 4
"""The size of a float32, in bytes."""


@dataclass(frozen=True)
class Workload:
    """What a client's training takes, in numbers: its model, its optimizer, its batches.

    state_vectors: vectors of the model's width that the optimizer keeps. batch_size: as stated, see
    `batch_of`. views: how often each sample is in a batch.
    """

    model: Sized
    state_vectors: int
    batch_size: int
    sampling: Sampling
    views: int

    def batch_of(self, samples: int) -> int:
        """Samples in a batch of a client that owns so many."""
        return samples_of_batch(self.sampling, self.batch_size, samples)


@dataclass(frozen=True)
class Room:
    """Where models are computed, and how many bytes it has."""

    where: str
    size_bytes: int


def machines_room() -> Room:
    """The memory of this machine, for its processors."""
    return Room("cpu", machine.memory_bytes())


def require_room(scenario: Scenario, each: Sequence[Workload], room: Room) -> None:
    """UserError if the models, or a training step of one, would take more memory than there is.

    Nothing is allocated for it. What fits here may still be too much: copies and activations come on top.
    """
    there, device = room.size_bytes, room.where
    largest = max(each, key=_step_bytes)
    if _step_bytes(largest) > there:
        raise UserError(
            f'model.name = "{scenario.model.name}", training.batch_size = {scenario.training.batch_size}: a '
            f"training step takes {_gb(_step_bytes(largest))} at least, for a model of "
            f"{largest.model.numel:,} numbers, its gradient, its optimizer{_frozen(largest)} and a "
            f"batch, and {device} has {_gb(there)}; use a smaller model or a smaller batch"
        )
    # With a server, only a share of the clients has a model of its own at a time.
    share = getattr(scenario.protocol.settings, "fraction", 1.0)
    constants = {work.model.key: work.model.constant_bytes for work in each}
    held, own = share * models_bytes(each) + sum(constants.values()), own_bytes(scenario, each)
    if own > there:
        raise UserError(
            f'protocol.name = "{scenario.protocol.name}": besides its clients\' models the method keeps '
            f"{_gb(own)} of its own, where a model has {largest.model.numel:,} numbers, and {device} "
            f"has {_gb(there)}; use a smaller model, or smaller settings of the protocol"
        )
    if held + own > there:
        besides = f", and what the method keeps besides ({_gb(own)}), take" if own else " take"
        raise UserError(
            f"clients.count = {len(each)}: the models of {len(each):,} clients and their optimizers{besides} "
            f"{_gb(held + own)} at least, up to {largest.model.numel:,} numbers in a model, and "
            f"{device} has {_gb(there)}; use fewer clients or a smaller model"
        )


def require_room_on_device(devices: DevicesOfClients, client: int, work: Workload) -> None:
    """UserError if training the model needs more memory than the client's simulated device has."""
    limit, kind = devices.memory(client)
    if limit is None:
        return
    model = work.model
    vectors = 2 + work.state_vectors  # parameters, gradient, optimizer state
    if _step_bytes(work) > limit:
        of_kind = f' (class "{kind}")' if kind else ""
        raise UserError(
            f"devices.memory: the device of client {client}{of_kind} has {limit:,.0f} bytes, but "
            f"to train the model takes {_step_bytes(work):,} at least: {vectors} times "
            f"{model.numel:,} numbers (parameters, gradient, optimizer state){_frozen(work)} and a batch "
            "of inputs, activations not counted; use a smaller model or more memory"
        )


def models_bytes(each: Sequence[Workload]) -> int:
    """Bytes that the clients' models and their optimizers take."""
    return sum(_held_bytes(work) for work in each)


def own_bytes(scenario: Scenario, each: Sequence[Workload]) -> int:
    """Bytes that the method keeps besides its clients' models, such as a server's."""
    if scenario.protocol.alone:
        return 0
    largest = max(work.model.numel for work in each)
    return NUMBER_BYTES * scenario.protocol.settings.own_numbers(largest, len(each))


def _held_bytes(work: Workload) -> int:
    """Bytes that a client keeps between its training steps."""
    return NUMBER_BYTES * work.model.numel * (1 + work.state_vectors)


def _step_bytes(work: Workload) -> int:
    """Bytes that a client needs in a training step, without activations."""
    batch = work.views * work.batch_size * math.prod(work.model.input_shape)
    trained = _held_bytes(work) + NUMBER_BYTES * (work.model.numel + batch)
    return trained + work.model.constant_bytes


def _frozen(work: Workload) -> str:
    """What of a model nothing trains, in words."""
    constants = work.model.constant_bytes
    return f", {constants:,} bytes that nothing trains" if constants else ""


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"
