"""Random numbers of a training step inside models, for example masks of dropout layers."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from sim.kernel.random import splitmix64_array
from sim.learning.architecture import Architecture
from sim.learning.engine.graph.sampler import GradientOrLossJob, TrainJob
from sim.learning.engine.vector_pool import numpy_to_device

_PURPOSE = np.uint64(0x5D0F_D06F_1E55_C0DE)  # separates them from the random numbers of batches
_BITS = 24  # bits of a number that float32 represents exactly


def draw_random_parameters(
    architecture: Architecture,
    params: Tensor,
    jobs: Sequence[TrainJob | GradientOrLossJob],
    step: int,
    piece: int = 0,
) -> None:
    """Draw random parameters, such as dropout masks, for step `step` of N jobs, in place in params [N, P].

    piece: number of the part of the step's samples; each part has its own draw.
    """
    count = len(architecture.drawn)
    if not count:
        return
    keys = np.array([job.key for job in jobs], np.uint64) ^ _PURPOSE
    if piece:
        keys = splitmix64_array(keys, np.array(piece, np.uint64))
    steps = np.array([job.first_step + step for job in jobs], np.int64)
    counters = (steps[:, None] * count + np.arange(count)).astype(np.uint64)
    numbers = splitmix64_array(keys[:, None], counters) >> np.uint64(64 - _BITS)
    drawn = numpy_to_device(numbers.astype(np.float32), params.device)
    params.index_copy_(1, architecture.drawn_columns.to(params.device), drawn)


def clear_random_parameters(architecture: Architecture, params: Tensor) -> None:
    """Set the random parameters back to 0: a model that is sent or mixed contains no random numbers."""
    if architecture.drawn:
        params.index_fill_(1, architecture.drawn_columns.to(params.device), 0.0)
