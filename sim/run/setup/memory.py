"""Whether the models of all clients, and what one of them needs to train, can fit in memory at all."""

import math
from collections.abc import Sequence

import torch

from sim.errors import UserError
from sim.run.live.learning_settings import LearningSettings
from sim.run.setup import machine
from sim.scenario.scenario import Scenario
from sim.scenario.sections.devices import DevicesOfClients

NUMBER_BYTES = 4
"""The size of a float32, in bytes."""


def require_room(scenario: Scenario, each: Sequence[LearningSettings], device: torch.device) -> None:
    """UserError if the models, or a training step of one, would take more memory than there is.

    Nothing is allocated for it. What fits here may still be too much: copies and activations come on top.
    """
    there = _memory_bytes(device)
    largest = max(each, key=_step_bytes)
    if _step_bytes(largest) > there:
        raise UserError(
            f'model.name = "{scenario.model.name}", training.batch_size = {scenario.training.batch_size}: a '
            f"training step takes {_gb(_step_bytes(largest))} at least, for a model of "
            f"{largest.architecture.numel:,} numbers, its gradient, its optimizer{_frozen(largest)} and a "
            f"batch, and {device} has {_gb(there)}; use a smaller model or a smaller batch"
        )
    # With a server, only a share of the clients has a model of its own at a time.
    share = getattr(scenario.protocol.settings, "fraction", 1.0)
    constants = {learning.architecture.key: learning.architecture.constant_bytes for learning in each}
    held, own = share * models_bytes(each) + sum(constants.values()), own_bytes(scenario, each)
    if own > there:
        raise UserError(
            f'protocol.name = "{scenario.protocol.name}": besides its clients\' models the method keeps '
            f"{_gb(own)} of its own, where a model has {largest.architecture.numel:,} numbers, and {device} "
            f"has {_gb(there)}; use a smaller model, or smaller settings of the protocol"
        )
    if held + own > there:
        besides = f", and what the method keeps besides ({_gb(own)}), take" if own else " take"
        raise UserError(
            f"clients.count = {len(each)}: the models of {len(each):,} clients and their optimizers{besides} "
            f"{_gb(held + own)} at least, up to {largest.architecture.numel:,} numbers in a model, and "
            f"{device} has {_gb(there)}; use fewer clients or a smaller model"
        )


def require_room_on_device(devices: DevicesOfClients, client: int, learning: LearningSettings) -> None:
    """UserError if training the model needs more memory than the client's simulated device has."""
    limit, kind = devices.memory(client)
    if limit is None:
        return
    model = learning.architecture
    vectors = 2 + learning.optimizer.slots  # parameters, gradient, optimizer state
    if _step_bytes(learning) > limit:
        of_kind = f' (class "{kind}")' if kind else ""
        raise UserError(
            f"devices.memory: the device of client {client}{of_kind} has {limit:,.0f} bytes, but "
            f"to train the model takes {_step_bytes(learning):,} at least: {vectors} times "
            f"{model.numel:,} numbers (parameters, gradient, optimizer state){_frozen(learning)} and a batch "
            "of inputs, activations not counted; use a smaller model or more memory"
        )


def models_bytes(each: Sequence[LearningSettings]) -> int:
    """Bytes that the clients' models and their optimizers take."""
    return sum(_held_bytes(learning) for learning in each)


def own_bytes(scenario: Scenario, each: Sequence[LearningSettings]) -> int:
    """Bytes that the method keeps besides its clients' models, such as a server's."""
    if scenario.protocol.alone:
        return 0
    largest = max(learning.architecture.numel for learning in each)
    return NUMBER_BYTES * scenario.protocol.settings.own_numbers(largest, len(each))


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return machine.memory_bytes()


def _held_bytes(learning: LearningSettings) -> int:
    """Bytes that a client keeps between its training steps."""
    return NUMBER_BYTES * learning.architecture.numel * (1 + learning.optimizer.slots)


def _step_bytes(learning: LearningSettings) -> int:
    """Bytes that a client needs in a training step, without activations."""
    batch = learning.views * learning.batch_size * math.prod(learning.architecture.input_shape)
    trained = _held_bytes(learning) + NUMBER_BYTES * (learning.architecture.numel + batch)
    return trained + learning.architecture.constant_bytes


def _frozen(learning: LearningSettings) -> str:
    """What of a model nothing trains, in words."""
    constants = learning.architecture.constant_bytes
    return f", {constants:,} bytes that nothing trains" if constants else ""


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"
