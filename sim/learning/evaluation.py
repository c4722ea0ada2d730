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

# Of samples that are gathered at once.
_CHUNK_BYTES = 8 * 2**20  # what stays in a CPU's cache (measured)
_CUDA_CHUNK_BYTES = 128 * 2**20  # enough work to hide what it costs to launch it


@torch.no_grad()
def accuracy_and_loss(
    kernel: Kernel, rows: Tensor, subset: Subset, clients: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy and mean cross-entropy [N] of each client's model `rows[n]` on its own samples in `subset`.

    A client without samples gets nan.
    """
    accuracy, loss = np.full(len(clients), np.nan), np.full(len(clients), np.nan)
    numbers = np.asarray(clients, dtype=np.int64)
    counts = subset.counts[numbers]
    sample_bytes = 4 * subset.x[0].numel()
    chunk_bytes = _CUDA_CHUNK_BYTES if rows.device.type == "cuda" else _CHUNK_BYTES
    for count in np.unique(counts[counts > 0]).tolist():
        same = np.flatnonzero(counts == count)
        models = rows[torch.from_numpy(same).to(rows.device)]
        correct, total = np.zeros(len(same)), np.zeros(len(same))
        samples_at_once = max(1, chunk_bytes // (sample_bytes * len(same)))
        for first in range(0, count, samples_at_once):
            span = np.arange(first, min(first + samples_at_once, count))
            x, y = subset.gather(numbers[same], np.broadcast_to(span, (len(same), len(span))))
            scores = kernel.outputs(models, x)
            correct += (scores.argmax(dim=2) == y).sum(dim=1).double().cpu().numpy()
            entropy = functional.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
            total += entropy.view(y.shape).sum(dim=1).double().cpu().numpy()
        accuracy[same], loss[same] = correct / count, total / count
    return accuracy, loss


@torch.no_grad()
def distance_to_optimum(rows: Tensor, subset: Subset, clients: Sequence[int]) -> np.ndarray:
    """||x - mu|| [N] of quadratic clients, whose single test row is (a, mu)."""
    numbers = np.asarray(clients, dtype=np.int64)
    x, _ = subset.gather(numbers, np.zeros((len(numbers), 1), dtype=np.int64))
    return (rows - x[:, 0, 1:]).norm(dim=1).double().cpu().numpy()


def measure_models(
    kernel: Kernel, rows: Tensor, subset: Subset, clients: Sequence[int]
) -> dict[str, np.ndarray]:
    """What models are judged by, [N] each: accuracy and loss, or the distance to a quadratic's optimum."""
    if kernel.objective is quadratic:
        return {"distance": distance_to_optimum(rows, subset, clients)}
    accuracy, loss = accuracy_and_loss(kernel, rows, subset, clients)
    return {"accuracy": accuracy, "loss": loss}
