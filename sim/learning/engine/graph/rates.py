"""Learning rates of training jobs that are computed together."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.graph.sampler import TrainJob
from sim.learning.engine.vector_pool import numpy_to_device


class Rates:
    """Learning rates of N jobs. as_number: use a float if all are equal, without a copy to the device."""

    def __init__(self, jobs: Sequence[TrainJob], device: torch.device, *, as_number: bool) -> None:
        self._given = [job.learning_rate for job in jobs]
        self._device = device
        self._as_number = as_number
        self._whole = None if tuple in map(type, self._given) else self._column(0, len(jobs))

    def of_step(self, step: int, active: int) -> float | Tensor:
        """Return the rates of the first `active` jobs in a step: one number, or float32 [active, 1]."""
        whole = self._whole
        if whole is None:
            return self._column(step, active)
        return whole if isinstance(whole, float) or len(whole) == active else whole[:active]

    def _column(self, step: int, active: int) -> float | Tensor:
        rates = [rate[step] if isinstance(rate, tuple) else rate for rate in self._given[:active]]
        if self._as_number and min(rates) == max(rates):
            return float(np.float32(rates[0]))
        return numpy_to_device(np.array(rates, np.float32), self._device)[:, None]
