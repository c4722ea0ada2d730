"""Metrics of the clients' models, measured by the observer without virtual time."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.sampler import clients_at_once
from sim.learning.engine.graph.samples import Subset
from sim.learning.engine.vector_pool import LazyPoolRows, checksums
from sim.learning.engine.workers import Workers
from sim.learning.metrics import METRICS, Metric, selected_metrics

# Limits of one call. On a CPU its data stay in the cache (measured).
_CLIENTS, _CHUNK_BYTES = 128, 8 * 2**20
_SAMPLES_IN_LOOP = 64  # per call and client in a loop; on a GPU, of each client, or a multiple that fits
_OTHERS = ("training", "validation")  # samples of some metrics; others use the test samples


@torch.no_grad()
def measure_models(
    task: str,
    kernel: ModelKernel,
    rows: Tensor | LazyPoolRows,
    subset: Subset,
    clients: Sequence[int],
    shares: Tensor | None = None,
    names: Sequence[str] = (),
    others: Mapping[str, Subset] = MappingProxyType({}),
    workers: Workers | None = None,
    own: Sequence[Metric] = (),
) -> dict[str, np.ndarray]:
    """Return the named metrics, [N] each, of each client's model `rows[n]` on its samples in `subset`.

    With `shares` [N, K] each client has an ensemble of K models, `rows` [N, K, P]: their probabilities of the
    classes, or their outputs in a regression, are averaged with these shares, and so are their objectives.
    Raises ValueError for ensembles in a task without predictions. others: samples of "train_loss" and
    of the "validation_..." metrics, by "training" and "validation", without augmentation. workers: measure
    several clients at the same time, by default this thread only. own: further metrics, by user functions.

    A client without samples gets nan. A client with a loss that is not finite gets nan for the other metrics
    of the same samples, except the objective: the largest of scores that are not numbers says nothing about
    learning.
    """
    if shares is not None and shares.shape[1] == 1:
        assert isinstance(rows, Tensor)
        rows, shares = rows[:, 0], None
    metrics = selected_metrics(task, names, kernel.objective)
    of_models = [metric for metric in metrics if metric.on == "models"]
    if shares is not None and of_models:
        raise ValueError(f"an ensemble averages class probabilities; the task {task} has no classes")
    loss = [metric for metric in METRICS[task] if metric.name == "loss"]  # decides if other metrics are valid
    of_test = [metric for metric in metrics if metric.on not in _OTHERS]
    on_samples = {metric.name: metric for metric in (*loss, *of_test) if metric not in of_models}
    workers = workers or Workers()
    found = _measure_in_blocks(task, list(on_samples), kernel, rows, shares, subset, clients, workers, own)
    for name, of_metric in found.items():
        if name not in ("loss", "objective"):
            of_metric[~np.isfinite(found["loss"])] = np.nan
    found |= {metric.name: metric.of(rows[:], subset, clients) for metric in of_models}
    for metric in metrics:
        if metric.on in _OTHERS:
            held = others[metric.on]
            asked = (metric.quantity,)
            values = measure_models(task, kernel, rows, held, clients, shares, asked, workers=workers)
            found[metric.name] = values[metric.quantity]
    return {metric.name: found[metric.name] for metric in (*own, *metrics)}


def _measure_in_blocks(
    task: str,
    names: list[str],
    kernel: ModelKernel,
    rows: Tensor | LazyPoolRows,
    shares: Tensor | None,
    subset: Subset,
    clients: Sequence[int],
    workers: Workers,
    own: Sequence[Metric],
) -> dict[str, np.ndarray]:
    """Return metrics on samples, [N] each, computed for many clients at once; nan without samples."""
    found = {name: np.full(len(clients), np.nan) for name in (*names, *[each.name for each in own])}
    numbers = np.asarray(clients, dtype=np.int64)
    counts = subset.counts[numbers] if found else np.empty(0, np.int64)
    blocks = _blocks(kernel, rows.device, counts, subset, 1 if shares is None else shares.shape[1])

    def measured(of: tuple[np.ndarray, int]) -> dict[str, np.ndarray]:
        block, length = of
        models = rows.of(block.tolist()) if isinstance(rows, LazyPoolRows) else rows[block]
        of_models = None if shares is None else shares[block]
        measures = workers.call(
            _measure_block, task, names, kernel, models, of_models, subset, numbers[block], length
        )
        if own:  # here, as functions of the user cannot be sent to another process
            measures |= _measure_chunks(own, task, kernel, models, of_models, subset, numbers[block], length)
        return measures

    each = workers.each if len(blocks) > 1 else map  # a thread costs more than a small block
    for (block, _), of_block in zip(blocks, each(measured, blocks), strict=True):
        for name, values in of_block.items():
            found[name][block] = values
    return found


def _blocks(
    kernel: ModelKernel, device: torch.device, counts: np.ndarray, subset: Subset, members: int
) -> list[tuple[np.ndarray, int]]:
    """Return blocks of clients with equal counts of samples, above 0, each with the samples of one call."""
    blocks = []
    for count in np.unique(counts[counts > 0]).tolist():
        same = np.flatnonzero(counts == count)
        at_once, length = _clients_per_call(kernel, device, len(same), subset, members)
        blocks += [(same[first : first + at_once], length) for first in range(0, len(same), at_once)]
    return blocks


@torch.no_grad()  # in any thread
def _measure_block(
    task: str,
    names: Sequence[str],
    kernel: ModelKernel,
    rows: Tensor | LazyPoolRows,
    shares: Tensor | None,
    subset: Subset,
    clients: np.ndarray,
    at_once: int,
) -> dict[str, np.ndarray]:
    """Return the named metrics of clients with equal numbers of samples, `at_once` samples at a time."""
    metrics = selected_metrics(task, names, kernel.objective)
    return _measure_chunks(metrics, task, kernel, rows, shares, subset, clients, at_once)


@torch.no_grad()
def _measure_chunks(
    metrics: Sequence[Metric],
    task: str,
    kernel: ModelKernel,
    rows: Tensor | LazyPoolRows,
    shares: Tensor | None,
    subset: Subset,
    clients: np.ndarray,
    at_once: int,
) -> dict[str, np.ndarray]:
    """Return the metrics of clients, as `_measure_block`."""
    count, evaluation = int(subset.counts[clients[0]]), _Evaluation(kernel, rows[:], shares, task)
    for start in range(0, count, at_once):
        evaluation.add(metrics, *subset.of_each(clients, np.arange(start, min(start + at_once, count))))
    return evaluation.measured(metrics, count)


class _Evaluation:
    """Metrics of clients' models [N, P], or ensembles [N, K, P], accumulated chunk by chunk of samples."""

    def __init__(self, kernel: ModelKernel, models: Tensor, shares: Tensor | None, task: str) -> None:
        self._kernel, self._models, self._shares = kernel, models, shares
        self._mean = _mean if task == "regression" else _log_mean
        self._sums: dict[str, np.ndarray] = {}
        self._outputs: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []

    def add(self, metrics: Sequence[Metric], x: Tensor, y: Tensor) -> None:
        """Add samples x [N, B, ...], or [1, B, ...], and y [N, B] or [N, B, T]."""
        kernel, models, shares = self._kernel, self._models, self._shares
        outputs = kernel.outputs(models, x) if shares is None else self._mean(kernel, models, x, shares)
        scores = outputs.movedim(-1, 1)  # [N, classes, B], for texts [N, classes, B, T]
        for metric in metrics:
            match metric.on:
                case "samples":
                    values = metric.of(scores, y)
                    total = (values if values.dim() == 2 else values.float().mean(dim=2)).sum(dim=1)
                case "objective":
                    total = self._minimised(x.expand(len(models), *x.shape[1:]), y) * y.shape[1]
                case "outputs":  # computed for all samples at once, in `measured`
                    continue
                case "models" | "training" | "validation":
                    raise ValueError(f'metric "{metric.name}" does not use these samples')
                case _:
                    assert_never(metric.on)
            self._sums[metric.name] = self._sums.get(metric.name, 0.0) + total.double().cpu().numpy()
        if any(metric.on == "outputs" for metric in metrics):
            self._outputs.append(outputs.double().cpu().numpy())
            self._targets.append(y.cpu().numpy())

    def measured(self, metrics: Sequence[Metric], count: int) -> dict[str, np.ndarray]:
        """Return the metrics, [N] each, of all added samples: `count` samples of each client."""
        found = {name: total / count for name, total in self._sums.items()}
        for metric in metrics:
            if metric.then is not None:
                with np.errstate(over="ignore"):  # the loss shows that a model has diverged
                    found[metric.name] = metric.then(found[metric.name])
            if metric.on == "outputs":
                outputs, targets = (np.concatenate(each, axis=1) for each in (self._outputs, self._targets))
                found[metric.name] = np.array(
                    [
                        metric.of(*pair) if np.isfinite(pair[0]).all() else np.nan
                        for pair in zip(outputs, targets, strict=True)
                    ]
                )
        return found

    def _minimised(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the clients' objectives, [N]; for ensembles, the mean of their models' objectives."""
        if self._shares is None:
            return self._kernel.losses(self._models, x, y)
        indices = range(self._models.shape[1])
        losses = [self._kernel.losses(self._models[:, index], x, y) for index in indices]
        return (torch.stack(losses, dim=1) * self._shares).sum(dim=1)


def _clients_per_call(
    kernel: ModelKernel, device: torch.device, clients: int, subset: Subset, members: int = 1
) -> tuple[int, int]:
    """Return the number of clients, and of samples of each, for one call. members: models of each client."""
    if device.type == "cuda":
        # Twice the samples or outputs: metrics create further tensors of that size.
        given_bytes = 2 * subset.sample_bytes * _SAMPLES_IN_LOOP + 4 * members * kernel.architecture.numel
        made_bytes = kernel.bytes_made("losses", _SAMPLES_IN_LOOP, subset.x, subset.y)
        fitting = clients_at_once(device, given_bytes + made_bytes)
        clients = min(clients, fitting)
        return clients, _SAMPLES_IN_LOOP * (fitting // clients)
    if kernel.backend == "loop":
        return 1, _SAMPLES_IN_LOOP
    clients = min(clients, _CLIENTS)
    return clients, max(1, _CHUNK_BYTES // (subset.sample_bytes * clients))


def _log_mean(kernel: ModelKernel, models: Tensor, x: Tensor, shares: Tensor) -> Tensor:
    """Return logarithms [N, B, classes] of the mean probabilities of models [N, K, P] with shares [N, K].

    For texts, they are [N, B, T, classes].
    """
    total: Tensor | None = None
    for index in range(models.shape[1]):
        logs = kernel.outputs(models[:, index], x).log_softmax(dim=-1)
        logs = logs + shares[:, index].log().view(-1, *[1] * (logs.dim() - 1))
        total = logs if total is None else torch.logaddexp(total, logs)
    assert total is not None
    return total


def _mean(kernel: ModelKernel, models: Tensor, x: Tensor, shares: Tensor) -> Tensor:
    """Return the mean outputs [N, B, T]."""
    members = [kernel.outputs(models[:, index], x) for index in range(models.shape[1])]
    return sum(shares[:, index, None, None] * outputs for index, outputs in enumerate(members))  # type: ignore[return-value]


def checksums_and_finite(rows: LazyPoolRows) -> dict[str, np.ndarray]:
    """Return checksums of models [N, P], and a mask of finite ones, [N] each."""
    at_once, sums, finite = clients_at_once(rows.device, rows.row_bytes), [], []
    for first in range(0, len(rows), at_once):
        block = rows[first : first + at_once]
        sums.append(checksums(block))
        finite.append(finite_rows(block))
    return {"checksums": np.concatenate(sums), "finite": np.concatenate(finite)}


def finite_rows(rows: Tensor) -> np.ndarray:
    """Return a mask [N] of the rows [N, P] that contain only finite numbers, by one sum of each row."""
    finite = torch.isfinite(rows.sum(dim=1))  # nan and infinity propagate
    doubtful = torch.nonzero(~finite)[:, 0]
    if len(doubtful):  # the sum of large numbers may also be infinite
        finite[doubtful] = torch.isfinite(rows[doubtful]).all(dim=1)
    return finite.cpu().numpy()
