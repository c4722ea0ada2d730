"""What the observer measures of the clients' models; costs no virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sim.learning.engine.kernels import Kernel
from sim.learning.engine.samples import Subset
from sim.learning.objectives import quadratic

# What is measured in one call. On a CPU it stays in the cache (measured).
_CLIENTS, _CHUNK_BYTES = 128, 8 * 2**20
_SAMPLES_IN_LOOP = 64  # of one client after the other
_CUDA_CHUNK_BYTES = 128 * 2**20  # of samples: enough work to hide what it costs to launch it


@torch.no_grad()
def accuracy_and_loss(
    kernel: Kernel, rows: Tensor, subset: Subset, clients: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy and mean cross-entropy [N] of each client's model `rows[n]` on its own samples in `subset`.

    A client without samples gets nan. So does the accuracy of one whose loss is not finite: which class is
    the largest of numbers that are none says nothing of what was learned.
    """
    accuracy, loss = np.full(len(clients), np.nan), np.full(len(clients), np.nan)
    numbers = np.asarray(clients, dtype=np.int64)
    counts = subset.counts[numbers]
    for count in np.unique(counts[counts > 0]).tolist():
        same = np.flatnonzero(counts == count)
        at_once, samples = _at_once(kernel, rows.device, len(same), subset.sample_bytes)
        for first in range(0, len(same), at_once):
            block = same[first : first + at_once]
            models = rows[torch.from_numpy(block).to(rows.device)]
            spans = [np.arange(start, min(start + samples, count)) for start in range(0, count, samples)]
            correct, entropy = _sums(kernel, models, subset, numbers[block], spans)
            accuracy[block], loss[block] = correct / count, entropy / count
    accuracy[~np.isfinite(loss)] = np.nan
    return accuracy, loss


def _at_once(kernel: Kernel, device: torch.device, clients: int, sample_bytes: int) -> tuple[int, int]:
    """How many of the clients, and samples of each, to measure in one call."""
    if device.type == "cuda":
        return clients, max(1, _CUDA_CHUNK_BYTES // (sample_bytes * clients))
    if kernel.way == "loop":
        return 1, _SAMPLES_IN_LOOP
    clients = min(clients, _CLIENTS)
    return clients, max(1, _CHUNK_BYTES // (sample_bytes * clients))


def _sums(
    kernel: Kernel, models: Tensor, subset: Subset, clients: np.ndarray, spans: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Right answers and summed cross-entropy [N] of models [N, P] on the same spans of N clients' samples."""
    correct, entropy = np.zeros(len(clients)), np.zeros(len(clients))
    for span in spans:
        x, y = subset.of_each(clients, span)
        scores = kernel.outputs(models, x).transpose(1, 2)  # [N, classes, B]
        best = scores.max(dim=1).indices  # argmax takes five times as long on a CPU
        correct += (best == y).sum(dim=1).double().cpu().numpy()
        losses = functional.cross_entropy(scores, y, reduction="none")
        entropy += losses.sum(dim=1).double().cpu().numpy()
    return correct, entropy


@torch.no_grad()
def distance_to_optimum(rows: Tensor, subset: Subset, clients: Sequence[int]) -> np.ndarray:
    """||x - mu|| [N] of quadratic clients, whose single test row is (a, mu)."""
    numbers = np.asarray(clients, dtype=np.int64)
    x, _ = subset.gather(numbers, np.zeros((len(numbers), 1), dtype=np.int64))
    return (rows - x[:, 0, 1:]).norm(dim=1).double().cpu().numpy()


def finite_rows(rows: Tensor) -> np.ndarray:
    """Which rows [N] of [N, P] consist of finite numbers only; costs one sum."""
    finite = torch.isfinite(rows.sum(dim=1))  # which nan and infinity survive
    doubtful = torch.nonzero(~finite)[:, 0]
    if len(doubtful):  # the sum of large numbers may be infinite, too
        finite[doubtful] = torch.isfinite(rows[doubtful]).all(dim=1)
    return finite.cpu().numpy()


def measure_models(
    kernel: Kernel, rows: Tensor, subset: Subset, clients: Sequence[int]
) -> dict[str, np.ndarray]:
    """What models are judged by, [N] each: accuracy and loss, or the distance to a quadratic's optimum."""
    if kernel.objective is quadratic:
        return {"distance": distance_to_optimum(rows, subset, clients)}
    accuracy, loss = accuracy_and_loss(kernel, rows, subset, clients)
    return {"accuracy": accuracy, "loss": loss}
