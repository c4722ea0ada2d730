"""Jobs of clients for training, gradients and losses, and their draws of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.backends.kernels import Computed, ModelKernel
from sim.learning.engine.graph.batches import (
    Sampling,
    draw_batches,
    draw_batches_of_one_client,
    first_positions,
    image_keys,
)
from sim.learning.engine.graph.nodes import Factor
from sim.learning.engine.graph.samples import Subset
from sim.learning.engine.vector_pool import aligned_to_cache_lines, index_tensor

if TYPE_CHECKING:
    from sim.learning.augmentation import Augmentation

# In one call on a CPU; larger groups are cut.
_CHUNK_BYTES = 16 * 2**20  # of gathered samples and parameters that stay in the cache (measured)
_KEPT_BYTES = 128 * 2**20  # kept for backward passes: more clients are no faster (measured)
_LOOKED_UP_BYTES = 2**20  # of rows and targets that are looked up in advance
_DEVICE_SHARE = 16  # a call may use 1/16 of a GPU's memory, intermediate values included


class TrainJob(NamedTuple):
    """Payload of a training node: the client's request, besides the operation and the vectors."""

    client: int
    key: int
    first_step: int
    steps: int
    learning_rate: float | tuple[float, ...]
    """One rate for all steps, or one for each step."""
    steps_done: int  # by this optimizer state, for Adam's bias correction
    strengths: tuple[Factor, ...]


class GradientOrLossJob(NamedTuple):
    """Payload of a gradient or loss node; input: the parameters."""

    client: int
    key: int
    first_step: int


@dataclass
class Batches:
    """Batches of N jobs: a `BatchSampler` creates them, and looks up their samples."""

    clients: np.ndarray
    """Client numbers, int64 [N]."""
    positions: np.ndarray | None
    """Positions in each client's samples, int64 [N, steps, batch_size].

    None, like `keys` and `first`, if each batch contains all samples of its client in order.
    """
    keys: np.ndarray | None
    """Keys of the jobs, uint64 [N]."""
    first: np.ndarray | None
    """Number of each job's first batch in the client's sequence of batches, int64 [N]."""
    found: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Rows of samples, and targets, by step, looked up in advance with an earlier step."""


@dataclass(frozen=True)
class BatchSampler:
    """Draws of samples by jobs: batches of `batch_size` from one subset.

    Each sample of a batch occurs `views` times, with a new augmentation each time; without augmentation the
    views are equal.
    """

    subset: Subset
    batch_size: int
    sampling: Sampling | Literal["all"]
    augmentation: Augmentation | None = None
    views: int = 1

    @cached_property
    def _always_all(self) -> bool:
        """True if every batch contains all samples of its client, whose order doesn't matter."""
        whole = self.sampling == "shuffled" and bool((self.subset.counts == self.batch_size).all())
        return whole or self.sampling == "all"

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor] | None:
        """All samples and targets of each client, if every batch equals them."""
        if not self._always_all or self.views > 1 or (self.subset.counts != self.batch_size).any():
            return None
        return self.subset.stacked

    def batches(self, jobs: Sequence[TrainJob | GradientOrLossJob], skip: int, steps: int) -> Batches:
        """Return the next `steps` batches of each job, after its first `skip`."""
        clients = np.array([job.client for job in jobs], dtype=np.int64)
        if self._whole is not None and self.augmentation is None:
            return Batches(clients, None, None, None)
        keys = np.array([job.key for job in jobs], dtype=np.uint64)
        first = np.array([job.first_step for job in jobs], dtype=np.int64) + skip
        counts, size = self.subset.counts[clients], self.batch_size
        if self._always_all:
            positions = first_positions(len(jobs), steps, size)
        elif len(jobs) == 1 and self.sampling == "shuffled":
            positions = draw_batches_of_one_client(jobs[0].key, int(first[0]), int(counts[0]), steps, size)
        else:
            sampling = self.sampling
            positions = draw_batches(keys, first, counts, steps=steps, batch_size=size, sampling=sampling)
        return Batches(clients, positions, keys, first)

    def samples(self, batches: Batches, step: int, active: int) -> tuple[Tensor, Tensor]:
        """Return samples [N, views * B, ...] and targets [N, views * B]: first views, then second views.

        A client's samples start at a cache line: see `VectorPool`. The samples are those of batch number
        `step` of the first `active` jobs. `active` must not grow from one step to the next.
        """
        clients = batches.clients[:active]
        if self._whole is not None:
            rows = index_tensor(clients, self.subset.x.device)
            x, y = [part.index_select(0, rows) for part in self._whole]
        else:
            if step not in batches.found:
                batches.found = self._look_up(batches, step, active)
            rows, y = batches.found[step]
            if len(rows) > active:
                rows, y = rows[:active], y[:active]
            # Gathered separately for each step: the start of data may affect a product's rounding.
            x = self.subset.at(rows)
        if self.augmentation is None:
            return aligned_to_cache_lines(x), y
        assert batches.keys is not None and batches.first is not None
        keys, steps = batches.keys[:active], batches.first[:active] + step
        images = image_keys(keys, steps, self.batch_size, self.views)
        return aligned_to_cache_lines(self.augmentation(x.flatten(0, 1), images.ravel()).view(x.shape)), y

    def _look_up(self, batches: Batches, step: int, active: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Return rows and targets of this step, and of later small steps, by step."""
        assert batches.positions is not None
        y = self.subset.y
        step_bytes = active * self.views * self.batch_size * (8 + y[:1].numel() * y.element_size())
        positions = batches.positions[:active, step : step + max(1, _LOOKED_UP_BYTES // step_bytes)]
        drawn = positions if self.views == 1 else np.tile(positions, self.views)
        clients, steps = batches.clients[:active], drawn.shape[1]
        if steps == 1:
            return {step: self.subset.look_up(clients, drawn[:, 0])}
        one_after_the_other = drawn.swapaxes(0, 1).reshape(steps * active, -1)
        rows, targets = self.subset.look_up(np.tile(clients, steps), one_after_the_other)
        return dict(enumerate(zip(rows.chunk(steps), targets.chunk(steps), strict=True), start=step))

    def weights(self, batches: Batches, step: int, weights: Tensor) -> Tensor:
        """Return the weights of the samples in batch number `step` of the first M jobs, [M, B].

        weights: the weights of all samples of each job's client, [M, most samples].
        """
        if batches.positions is None:
            return weights
        positions = np.array(batches.positions[: len(weights), step])  # a copy, as torch needs ownership
        return weights.gather(1, index_tensor(positions, weights.device))

    def rows_at_once(self, kernel: ModelKernel, of: Computed = "training_gradients") -> int:
        """Return the number of clients whose batches one call should compute.

        Their samples and parameters fit in the memory of a call, and so do, on a CPU, the values kept by the
        forward pass, or, on a GPU, all intermediate values.
        """
        samples, device = self.views * self.batch_size, self.subset.x.device
        given_bytes = self.subset.sample_bytes * samples + 8 * kernel.architecture.numel
        if device.type != "cpu":
            made_bytes = kernel.bytes_made(of, samples, self.subset.x, self.subset.y)
            return clients_at_once(device, given_bytes + made_bytes)
        fitting = clients_at_once(device, given_bytes)
        if fitting == 1:
            return fitting
        together = min(samples, kernel.micro_batch or samples)
        kept_bytes = kernel.architecture.training_bytes_per_sample * together
        return min(fitting, max(1, _KEPT_BYTES // max(1, kept_bytes)))


def clients_at_once(device: torch.device, bytes_of_each: int) -> int:
    """Return the number of clients that one call should compute.

    bytes_of_each: bytes of samples and parameters; on a GPU, with intermediate values.
    """
    if device.type == "cuda":
        most = torch.cuda.get_device_properties(device).total_memory // _DEVICE_SHARE
    else:
        most = _CHUNK_BYTES if device.type == "cpu" else 2**30  # on the meta device
    return max(1, most // bytes_of_each)
