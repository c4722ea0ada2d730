"""Measurement of the fastest backend and number of threads."""

import math
import os
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from sim.learning.architecture import Architecture
from sim.learning.engine.backends.kernels import ModelKernel, possible_backends
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.memory import does_not_fit_error, is_out_of_memory
from sim.learning.engine.optimizers import Optimizer
from sim.learning.objectives import Objective

CLIENTS_MAX = 32
"""Largest number of clients in the measured batch."""

_REPETITIONS = 3
_GAIN_MIN = 1.1  # smallest speedup for which twice the threads are used
_LONG_S = 1.0  # a longer call is not repeated: its warm-up share is small

_remembered: dict[Hashable, str] = {}


@dataclass(frozen=True)
class TimedTrainingStep:
    """Training step as in a run with `clients` clients whose batches `sampler` draws.

    It omits the parts that all backends share: the augmentation, and the optimizer unless it is plain
    SGD.
    """

    architecture: Architecture
    objective: Objective
    optimizer: Optimizer
    sampler: BatchSampler
    clients: int
    precision: str = "float32"
    micro_batch: int | None = None

    @property
    def clients_measured(self) -> int:
        """Number of clients in the measured batch."""
        kernels = map(self._kernel, possible_backends(self.architecture, self.objective))
        return min(self.clients, CLIENTS_MAX, *map(self.sampler.rows_at_once, kernels))

    @property
    def device(self) -> torch.device:
        """Device that computes the step."""
        return self.sampler.subset.x.device

    def fastest_backend(self) -> str:
        """Return the backend with the shortest step time. Raises UserError if no backend fits in memory.

        Each possible backend is measured once per process for each combination that affects its speed, and
        the fastest is remembered.
        """
        sampler, clients = self.sampler, self.clients_measured
        identity = (
            (self.architecture.key, self.objective, self.optimizer.is_plain, self.precision),
            (
                self.micro_batch,
                clients,
                sampler.views * sampler.batch_size,
                tuple(sampler.subset.x.shape[1:]),
            ),
            (self.device, torch.get_num_threads()),
        )
        if identity not in _remembered:
            backends = possible_backends(self.architecture, self.objective)
            seconds = {backend: _seconds(self.step(backend), self.device) for backend in backends}
            fastest = min(seconds, key=seconds.__getitem__)
            if seconds[fastest] == math.inf:
                what = f"a training step of {clients} clients with {self.architecture.key}"
                raise does_not_fit_error(what, self.device)
            _remembered[identity] = fastest
        return _remembered[identity]

    def step(self, backend: str) -> Callable[[], object]:
        """Return a function that computes the step with one backend, for `clients_measured` clients."""
        kernel = self._kernel(backend)
        sampler, subset, numbers = self.sampler, self.sampler.subset, np.arange(self.clients_measured)
        # Clients with fewer samples than a batch have smaller batches in the run; here they repeat samples.
        positions = np.tile(np.arange(sampler.batch_size), sampler.views) % subset.counts[numbers][:, None]
        x, y = subset.gather(numbers, positions)
        initial = self.architecture.initial(torch.Generator().manual_seed(0))
        flat = initial.to(self.device).repeat(len(numbers), 1)
        if not self.optimizer.is_plain:
            return lambda: kernel.gradients(flat, x, y)
        return lambda: kernel.descend(flat, x, y, 0.0)  # with rate 0, repeated steps stay finite

    def _kernel(self, backend: str) -> ModelKernel:
        return ModelKernel(self.architecture, self.objective, backend, self.precision, self.micro_batch)


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS or Windows
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def fastest_threads(steps: Iterable[Callable[[], object]], device: torch.device) -> int:
    """Return the number of CPU threads with the shortest time for these steps (`TimedTrainingStep.step`).

    It measures 1, 2, 4, ... threads, up to `usable_cores`, as long as each doubling makes the steps more than
    1.1 times as fast.
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


def _seconds(step: Callable[[], object], device: torch.device) -> float:
    """Return the shortest wall-clock time of a few calls after a warm-up; inf if memory is insufficient."""
    least = math.inf
    try:
        for repetition in range(1 + _REPETITIONS):
            started = time.perf_counter()  # affects the way of computing, not the simulation
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
