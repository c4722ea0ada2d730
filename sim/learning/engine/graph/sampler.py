"""The jobs of clients for training, gradients and losses, and how they draw their samples."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.augmentation import Augmentation, image_keys
from sim.learning.engine.backends.kernels import Computed, Kernel
from sim.learning.engine.graph.batches import Sampling, draw_batches, draw_batches_alone, everything
from sim.learning.engine.graph.nodes import Factor
from sim.learning.engine.graph.samples import Subset
from sim.learning.engine.vector_pool import index_tensor, on_lines

# In one call on a CPU; larger groups are cut.
_CHUNK_BYTES = 16 * 2**20  # of gathered samples and parameters: what stays in the cache (measured)
_KEPT_BYTES = 128 * 2**20  # for backward passes: more clients are no faster (measured)
_LOOKED_UP_BYTES = 2**20  # of rows and targets, at once: they wait for their steps
_DEVICE_SHARE = 16  # of a GPU's memory, a call takes one part in so many, with all that is made in it


class TrainJob(NamedTuple):
    """Payload of a training node: what a client asks for, besides the operation and the vectors."""

    client: int
    key: int
    first_step: int
    steps: int
    learning_rate: float | tuple[float, ...]
    """One rate for all steps, or one for each."""
    steps_done: int  # by this optimizer state, for Adam's bias correction
    strengths: tuple[Factor, ...]


class SampleJob(NamedTuple):
    """Payload of a gradient or loss node; input: the parameters."""

    client: int
    key: int
    first_step: int


@dataclass
class Batches:
    """Some batches of N jobs: a `BatchSampler` makes them, and looks up what is in them."""

    clients: np.ndarray
    """Client numbers, int64 [N]."""
    positions: np.ndarray | None
    """Places in each client's own samples, int64 [N, steps, batch_size].

    None, as all that follows, where a batch is all that its client has, as it is.
    """
    keys: np.ndarray | None
    """The jobs' keys, uint64 [N]."""
    first: np.ndarray | None
    """The number of each job's first batch among these, int64 [N]."""
    found: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Rows of samples, and targets, that were looked up with those of a step before, by the step."""


@dataclass(frozen=True)
class BatchSampler:
    """How jobs draw their samples: batches of `batch_size` from one subset.

    Each sample of a batch is there `views` times, augmented anew each time; without augmentation the views
    are equal.
    """

    subset: Subset
    batch_size: int
    sampling: Sampling | Literal["all"]
    augmentation: Augmentation | None = None
    views: int = 1

    @cached_property
    def _always_all(self) -> bool:
        """Whether every batch is all that its client has, whose order doesn't matter."""
        whole = self.sampling == "shuffled" and bool((self.subset.counts == self.batch_size).all())
        return whole or self.sampling == "all"

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor] | None:
        """All samples and targets of each client, if every batch is just these."""
        if not self._always_all or self.views > 1 or (self.subset.counts != self.batch_size).any():
            return None
        return self.subset.stacked

    def batches(self, jobs: Sequence[TrainJob | SampleJob], skip: int, steps: int) -> Batches:
        """The next `steps` batches of each job, behind its first `skip`."""
        clients = np.array([job.client for job in jobs], dtype=np.int64)
        if self._whole is not None and self.augmentation is None:
            return Batches(clients, None, None, None)
        keys = np.array([job.key for job in jobs], dtype=np.uint64)
        first = np.array([job.first_step for job in jobs], dtype=np.int64) + skip
        counts, size = self.subset.counts[clients], self.batch_size
        if self._always_all:
            positions = everything(len(jobs), steps, size)
        elif len(jobs) == 1 and self.sampling == "shuffled":
            positions = draw_batches_alone(jobs[0].key, int(first[0]), int(counts[0]), steps, size)
        else:
            sampling = self.sampling
            positions = draw_batches(keys, first, counts, steps=steps, batch_size=size, sampling=sampling)
        return Batches(clients, positions, keys, first)

    def samples(self, batches: Batches, step: int, active: int) -> tuple[Tensor, Tensor]:
        """Samples [N, views * B, ...] and targets [N, views * B]: all first views, then all second views.

        A client's samples begin at a cache line: see `VectorPool`.
        Of batch number `step` of `batches`, and of its first `active` jobs, no more than at a step before.
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
            # Not gathered with those of other steps: what a product rounds to may depend on where it begins.
            x = self.subset.at(rows)
        if self.augmentation is None:
            return on_lines(x), y
        assert batches.keys is not None and batches.first is not None
        keys, steps = batches.keys[:active], batches.first[:active] + step
        images = image_keys(keys, steps, self.batch_size, self.views)
        return on_lines(self.augmentation(x.flatten(0, 1), images.ravel()).view(x.shape)), y

    def _look_up(self, batches: Batches, step: int, active: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Rows and targets of this step, and of those behind it that are small together, by the step."""
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
        """The weights of the samples of batch number `step`, [M, B], for its first M jobs.

        weights: of all samples of each job's client, [M, most samples].
        """
        if batches.positions is None:
            return weights
        positions = np.array(batches.positions[: len(weights), step])  # a copy: torch wants to own it
        return weights.gather(1, index_tensor(positions, weights.device))

    def rows_at_once(self, kernel: Kernel, of: Computed = "training_gradients") -> int:
        """Clients whose batches one call should serve.

        Their samples and parameters fit; on a CPU what their forward passes keep, too, and on a GPU all that
        is made of them.
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
    """How many clients one call should serve.

    bytes_of_each: of samples and parameters; on a GPU, with what is made of them.
    """
    if device.type == "cuda":
        most = torch.cuda.get_device_properties(device).total_memory // _DEVICE_SHARE
    else:
        most = _CHUNK_BYTES if device.type == "cpu" else 2**30  # on the meta device, which has no memory
    return max(1, most // bytes_of_each)
