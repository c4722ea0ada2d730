"""Metrics of the observer. To add a metric, add it to `METRICS`, and to `MEASURES` in `sim.results.measures`.

A metric has one value for each client, and the same `name` here, in scenarios and in results.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch.nn import functional

from sim.learning.default_metrics import DEFAULT_METRICS
from sim.learning.engine.graph.samples import Subset
from sim.learning.objectives import OBJECTIVES, Objective


@dataclass(frozen=True)
class Metric:
    """Metric, computed by the function `of`; `on` defines the function's arguments and result.

    "samples": class scores [N, K, B] and true classes [N, B], or in a regression outputs [N, T, B] and
    targets [N, B, T], or for texts scores [N, K, B, T] and tokens [N, B, T], of N clients; it returns a
    number per sample [N, B], or per token [N, B, T], and the mean over a client's samples is the metric.
    "outputs": all outputs of a client [B, K] and its true classes [B], or targets [B, T]; it returns the
    metric, by scikit-learn. "models": the parameters [N, P] of N clients, the subset with their samples, and
    the clients; it returns a number per client [N]. "objective": no function; the metric is the clients' mean
    objective. "training", "validation": no function; the metric is the `quantity` of these samples.

    then: function of the mean, for "samples". of_tags: True if targets of a regression must be 0 or 1 each:
    tags, of which a sample may have several; predicted tags are outputs above 0.
    """

    name: str
    on: Literal["samples", "outputs", "models", "objective", "training", "validation"]
    of: Any = None
    then: Callable[[np.ndarray], np.ndarray] | None = None
    of_tags: bool = False
    quantity: str = "loss"


def accuracy(scores: Tensor, y: Tensor) -> Tensor:
    """Return True for samples whose class has the highest score."""
    return scores.max(dim=1).indices == y  # argmax takes five times as long on a CPU


def cross_entropy(scores: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy, in nats."""
    return functional.cross_entropy(scores, y, reduction="none")


def squared_error(scores: Tensor, y: Tensor) -> Tensor:
    """Return the squared error, averaged over the targets of a sample."""
    return (scores - y.transpose(1, 2)).square().mean(dim=1)


def tag_accuracy(scores: Tensor, y: Tensor) -> Tensor:
    """Return the share of a sample's tags that are predicted correctly."""
    return ((scores > 0) == (y.transpose(1, 2) > 0)).float().mean(dim=1)


def distance_to_optimum(rows: Tensor, subset: Subset, clients: Sequence[int]) -> np.ndarray:
    """Return ||x - mu|| of quadratic clients, whose single test row is (a, mu)."""
    numbers = np.asarray(clients, dtype=np.int64)
    x, _ = subset.gather(numbers, np.zeros((len(numbers), 1), dtype=np.int64))
    return (rows - x[:, 0, 1:]).norm(dim=1).double().cpu().numpy()


def _score(name: str) -> Callable[[np.ndarray, np.ndarray], float]:
    """Return scikit-learn's function `name`, averaged over the present classes or tags."""

    def score(outputs: np.ndarray, y: np.ndarray) -> float:
        from sklearn import metrics

        predicted = outputs > 0 if y.ndim == 2 else outputs.argmax(axis=1)
        truth = y > 0 if y.ndim == 2 else y
        return float(getattr(metrics, name)(truth, predicted, average="macro", zero_division=0))

    return score


def area_under_curve(outputs: np.ndarray, y: np.ndarray) -> float:
    """Return the area under the ROC curve, as a mean over classes (one against the others) or tags.

    Classes and tags that every sample has, or that no sample has, are left out; nan if none remains.
    """
    from sklearn.metrics import roc_auc_score

    truth = y > 0 if y.ndim == 2 else y[:, None] == np.arange(outputs.shape[1])
    scores = np.asarray(outputs, dtype=float)
    if y.ndim == 1:  # log-odds rank like probabilities, but never round to 0 or 1
        scores = scores - _log_sum_of_others(scores)
    both = truth.any(axis=0) & ~truth.all(axis=0)
    return float(roc_auc_score(truth[:, both], scores[:, both], average="macro")) if both.any() else np.nan


def _log_sum_of_others(scores: np.ndarray) -> np.ndarray:
    """Return, for each class, the log of the sum of exponentials of the other classes, [n, classes]."""
    none = np.full((len(scores), 1), -np.inf)
    before, after = (
        np.logaddexp.accumulate(np.hstack([none, each[:, :-1]]), axis=1) for each in (scores, scores[:, ::-1])
    )
    return np.logaddexp(before, after[:, ::-1])


def absolute_error(outputs: np.ndarray, y: np.ndarray) -> float:
    """Return the mean absolute error."""
    from sklearn.metrics import mean_absolute_error

    return float(mean_absolute_error(y, outputs))


def r_squared(outputs: np.ndarray, y: np.ndarray) -> float:
    """Return the mean of R^2 over the targets; nan with fewer than two samples."""
    from sklearn.metrics import r2_score

    return float(r2_score(y, outputs)) if len(y) > 1 else np.nan


_SCORES = (
    Metric("f1", "outputs", _score("f1_score"), of_tags=True),
    Metric("precision", "outputs", _score("precision_score"), of_tags=True),
    Metric("recall", "outputs", _score("recall_score"), of_tags=True),
    Metric("auc", "outputs", area_under_curve, of_tags=True),
    Metric("objective", "objective"),
    Metric("train_loss", "training"),
    Metric("validation_loss", "validation"),
)
METRICS: Mapping[str, tuple[Metric, ...]] = {
    "classification": (
        Metric("accuracy", "samples", accuracy),
        Metric("loss", "samples", cross_entropy),
        *_SCORES,
        Metric("validation_accuracy", "validation", quantity="accuracy"),
    ),
    "regression": (
        Metric("loss", "samples", squared_error),
        Metric("accuracy", "samples", tag_accuracy, of_tags=True),
        *_SCORES,
        Metric("mae", "outputs", absolute_error),
        Metric("r2", "outputs", r_squared),
    ),
    "language": (
        Metric("perplexity", "samples", cross_entropy, np.exp),
        Metric("loss", "samples", cross_entropy),
        Metric("accuracy", "samples", accuracy),
        Metric("objective", "objective"),
        Metric("train_loss", "training"),
        Metric("validation_loss", "validation"),
    ),
    "quadratic": (Metric("distance", "models", distance_to_optimum),),
}
"""Metrics of each task of the data."""


def selected_metrics(
    task: str, names: Sequence[str] = (), objective: Objective | None = None
) -> tuple[Metric, ...]:
    """Return the named metrics; without names, those of the task, and in some cases a method's objective.

    The objective is added if it is not the task's own and takes one view of each sample, except for quadratic
    functions: as the last metric for data with classes, otherwise as the first. Models are compared by the
    first metric.
    """
    if not names:
        names = DEFAULT_METRICS[task]
        is_own = objective not in (None, OBJECTIVES[task]) and _view_count(objective) == 1
        if is_own and task != "quadratic":
            names = (*names, "objective") if task == "classification" else ("objective", *names)
    known = {metric.name: metric for metric in METRICS[task]}
    return tuple([known[name] for name in names])


def metric_misfit_reasons(
    task: str, names: Sequence[str], targets: np.ndarray, objective: Objective | None, *, validates: bool
) -> Iterator[str]:
    """Yield the reasons why these metrics do not fit the data or the method's objective.

    validates: True if any client holds samples back for validation.
    """
    is_tags = targets.dtype.kind != "f" or bool(np.isin(targets, (0, 1)).all())
    for metric in selected_metrics(task, names) if names else ():
        if metric.of_tags and not is_tags:
            yield f'"{metric.name}" needs classes, or regression targets that are all 0 or 1'
        if metric.on == "objective" and _view_count(objective) > 1:
            yield '"objective" needs a loss with one view of each sample; the loss of this method takes two'
        if metric.on == "validation" and not validates:
            yield f'"{metric.name}" needs samples that clients hold out: set data.validation_share'


def _view_count(objective: Objective | None) -> int:
    """Return the number of views of a sample in a method's objective."""
    return getattr(objective, "views", 1)
