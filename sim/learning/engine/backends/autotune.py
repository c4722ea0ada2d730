"""Which backend, and how many threads, are the fastest: found out by measuring."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Iterable

import numpy as np
import torch

from sim.learning.architecture import Architecture
from sim.learning.engine.backends.kernels import Kernel, possible_backends
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.memory import does_not_fit, is_out_of_memory
from sim.learning.engine.optimizers import Optimizer
from sim.learning.objectives import Objective

CLIENTS_MAX = 32
"""Clients of the batch that is measured."""

_REPETITIONS = 3
_GAIN_MIN = 1.1  # twice the threads, which others might use, are taken only if they are so much faster
_LONG_S = 1.0  # a call that takes longer is not repeated: what the first call adds is small beside it

_remembered: dict[Hashable, str] = {}


def fastest_backend(
    architecture: Architecture,
    objective: Objective,
    optimizer: Optimizer,
    sampler: BatchSampler,
    clients: int,
    precision: str = "float32",
) -> str:
    """The backend that does a training step of a batch in the least time.

    The batch is like those of a run of so many `clients`. Each backend that the model allows is measured once
    per process for what its speed depends on. UserError if none fits in memory.
    """
    clients = _clients_measured(clients, sampler, architecture)
    x = sampler.subset.x
    identity = (
        (architecture.key, objective, optimizer.is_plain, precision),
        (clients, sampler.views * sampler.batch_size, tuple(x.shape[1:]), x.device, torch.get_num_threads()),
    )
    if identity not in _remembered:
        seconds = {}
        for backend in possible_backends(architecture, objective):
            kernel = Kernel(architecture, objective, backend, precision)
            seconds[backend] = _seconds(training_step(kernel, optimizer, sampler, clients), x.device)
        fastest = min(seconds, key=seconds.__getitem__)
        if seconds[fastest] == math.inf:
            raise does_not_fit(f"a training step of {clients} clients with {architecture.key}", x.device)
        _remembered[identity] = fastest
    return _remembered[identity]


def usable_cores() -> int:
    """The processor cores that this process may run on."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS or Windows
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def fastest_threads(steps: Iterable[Callable[[], object]], device: torch.device) -> int:
    """How many CPU threads do these training steps, see `training_step`, in the least time.

    Measured are 1, 2, 4, ... threads, up to `usable_cores`, for as long as each doubling gains a tenth.
    """
    steps, before = list(steps), torch.get_num_threads()
    threads, least = 1, math.inf
    try:
        count = 1
        while count <= usable_cores():
            torch.set_num_threads(count)
            took = sum(_seconds(step, device) for step in steps)
            if took * (_GAIN_MIN if count > 1 else 1.0) >= least:
                break
            threads, least, count = count, took, 2 * count
    finally:
        torch.set_num_threads(before)
    return threads


def _clients_measured(clients: int, sampler: BatchSampler, architecture: Architecture) -> int:
    return min(clients, CLIENTS_MAX, sampler.rows_at_once(architecture.numel))


def training_step(
    kernel: Kernel, optimizer: Optimizer, sampler: BatchSampler, clients: int
) -> Callable[[], object]:
    """What a training step of so many clients, or as many as are measured, costs.

    Left out is what all backends share: the augmentation and the optimizer's part.
    """
    clients = _clients_measured(clients, sampler, kernel.architecture)
    subset, device = sampler.subset, sampler.subset.x.device
    numbers = np.arange(clients)
    # Who has fewer samples than a batch, which is then smaller in the run, repeats some of them here.
    positions = np.tile(np.arange(sampler.batch_size), sampler.views) % subset.counts[numbers][:, None]
    x, y = subset.gather(numbers, positions)
    initial = kernel.architecture.initial(torch.Generator().manual_seed(0))
    flat = initial.to(device).repeat(clients, 1)
    if not optimizer.is_plain:
        return lambda: kernel.gradients(flat, x, y)
    return lambda: kernel.descend(flat, x, y, 0.0)  # without a rate many steps do not lead to inf


def _seconds(step: Callable[[], object], device: torch.device) -> float:
    """The least wall time of a few calls, after one that warms up; inf if memory is missing."""
    least = math.inf
    try:
        for repetition in range(1 + _REPETITIONS):
            started = time.perf_counter()  # decides how numbers are computed, and nothing that is simulated
            step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            took = time.perf_counter() - started
            if repetition > 0 or took > _LONG_S:
                least = min(least, took)
            if took > _LONG_S:
                break
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return math.inf
    return least
