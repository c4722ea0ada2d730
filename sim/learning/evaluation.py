"""What the observer measures of the clients' models; costs no virtual time."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.backends.kernels import Kernel
from sim.learning.engine.graph.samples import Subset
from sim.learning.metrics import METRICS, ParameterMetric, SampleMetric

# What is measured in one call. On a CPU it stays in the cache (measured).
_CLIENTS, _CHUNK_BYTES = 128, 8 * 2**20
_SAMPLES_IN_LOOP = 64  # of one client after the other
_CUDA_CHUNK_BYTES = 128 * 2**20  # of samples: enough work to hide what it costs to launch it


@torch.no_grad()
def measure_models(
    task: str,
    kernel: Kernel,
    rows: Tensor,
    subset: Subset,
    clients: Sequence[int],
    shares: Tensor | None = None,
) -> dict[str, np.ndarray]:
    """The METRICS of a task, [N] each, of each client's model `rows[n]`, on its own samples in `subset`.

    With `shares` [N, K] each client has an ensemble of K models, `rows` [N, K, P]: their probabilities of the
    classes, or their outputs in a regression, are averaged in these shares. ValueError for ensembles in a
    task that predicts nothing.

    A client without samples gets nan. So does one whose loss is not finite, of all else: which class is the
    largest of numbers that are none says nothing of what was learned.
    """
    if shares is not None and shares.shape[1] == 1:
        rows, shares = rows[:, 0], None
    samples = [metric for metric in METRICS[task] if isinstance(metric, SampleMetric)]
    others = [metric for metric in METRICS[task] if isinstance(metric, ParameterMetric)]
    if shares is not None and others:
        raise ValueError(f"an ensemble averages probabilities of classes, which the task {task} has not")
    found = {metric.name: np.full(len(clients), np.nan) for metric in samples}
    numbers = np.asarray(clients, dtype=np.int64)
    counts = subset.counts[numbers] if samples else np.empty(0, np.int64)
    mean = _mean if task == "regression" else _log_mean
    for count in np.unique(counts[counts > 0]).tolist():
        same = np.flatnonzero(counts == count)
        at_once, length = _at_once(kernel, rows.device, len(same), subset.sample_bytes)
        for first in range(0, len(same), at_once):
            block = same[first : first + at_once]
            chosen = torch.from_numpy(block).to(rows.device)
            models, weights = rows[chosen], None if shares is None else shares[chosen]
            sums = [np.zeros(len(block)) for _ in samples]
            for start in range(0, count, length):
                x, y = subset.of_each(numbers[block], np.arange(start, min(start + length, count)))
                outputs = kernel.outputs(models, x) if weights is None else mean(kernel, models, x, weights)
                scores = outputs.transpose(1, 2)  # [N, classes, B]
                for metric, total in zip(samples, sums, strict=True):
                    total += metric.values(scores, y).sum(dim=1).double().cpu().numpy()
            for metric, total in zip(samples, sums, strict=True):
                found[metric.name][block] = total / count
    for name, values in found.items():
        if name != "loss":
            values[~np.isfinite(found["loss"])] = np.nan
    return found | {metric.name: metric.of_models(rows, subset, clients) for metric in others}


def _at_once(kernel: Kernel, device: torch.device, clients: int, sample_bytes: int) -> tuple[int, int]:
    """How many of the clients, and samples of each, to measure in one call."""
    if device.type == "cuda":
        return clients, max(1, _CUDA_CHUNK_BYTES // (sample_bytes * clients))
    if kernel.backend == "loop":
        return 1, _SAMPLES_IN_LOOP
    clients = min(clients, _CLIENTS)
    return clients, max(1, _CHUNK_BYTES // (sample_bytes * clients))


def _log_mean(kernel: Kernel, models: Tensor, x: Tensor, shares: Tensor) -> Tensor:
    """Logarithms [N, B, classes] of the mean probabilities of models [N, K, P] in shares [N, K]."""
    total: Tensor | None = None
    for place in range(models.shape[1]):
        logs = kernel.outputs(models[:, place], x).log_softmax(dim=2) + shares[:, place, None, None].log()
        total = logs if total is None else torch.logaddexp(total, logs)
    assert total is not None
    return total


def _mean(kernel: Kernel, models: Tensor, x: Tensor, shares: Tensor) -> Tensor:
    """The mean outputs [N, B, T]."""
    members = [kernel.outputs(models[:, place], x) for place in range(models.shape[1])]
    return sum(shares[:, place, None, None] * outputs for place, outputs in enumerate(members))  # type: ignore[return-value]


def finite_rows(rows: Tensor) -> np.ndarray:
    """Which rows [N] of [N, P] consist of finite numbers only; costs one sum."""
    finite = torch.isfinite(rows.sum(dim=1))  # which nan and infinity survive
    doubtful = torch.nonzero(~finite)[:, 0]
    if len(doubtful):  # the sum of large numbers may be infinite, too
        finite[doubtful] = torch.isfinite(rows[doubtful]).all(dim=1)
    return finite.cpu().numpy()
