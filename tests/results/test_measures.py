"""What is measured, `METRICS` of the learning, and its words, `MEASURES` of the results, go together."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sim.learning.default_metrics import DEFAULT_METRICS
from sim.learning.metrics import METRICS, Metric, selected_metrics
from sim.results.measures import MEASURES, measure_called
from sim.scenario.sections.run import Run
from tests.lists import require_listed


@pytest.mark.parametrize("task", METRICS)
def test_each_metric_has_its_words_and_each_measure_is_measured(task: str) -> None:
    computed = [metric.name for metric in METRICS[task]]
    named = [measure.name for measure in MEASURES if task in measure.tasks]
    assert len(set(computed)) == len(computed), f'METRICS["{task}"] has a name twice: {computed}'
    unnamed = sorted(set(computed) - set(named))
    assert not unnamed, (
        f'add a Measure of {", ".join(unnamed)} to MEASURES in sim/results/measures.py, with "{task}" among '
        "its tasks: without one, run.metrics refuses the name, and no report shows it"
    )
    unmeasured = sorted(set(named) - set(computed))
    assert not unmeasured, (
        f'add a Metric of {", ".join(unmeasured)} to METRICS["{task}"] in sim/learning/metrics.py, or remove '
        f'"{task}" from its tasks in MEASURES of sim/results/measures.py: nothing measures it'
    )


def test_each_task_of_a_measure_has_metrics_and_some_by_default() -> None:
    tasks = {task for measure in MEASURES for task in measure.tasks}
    require_listed(tasks, METRICS, "METRICS in sim/learning/metrics.py")
    for task in tasks:
        assert selected_metrics(task), f'add "{task}" to DEFAULT_METRICS in sim/learning/default_metrics.py'


def test_the_text_of_run_metrics_names_every_metric_and_default() -> None:
    text = Run.model_json_schema()["properties"]["metrics"]["description"]
    for measure in MEASURES:
        where = "_about_metrics in sim/scenario/sections/run.py"
        assert f'"{measure.name}"' in text and measure.label in text, f"name {measure.name} in {where}"
    for task, names in DEFAULT_METRICS.items():
        assert f"{' and '.join(names)} ({task})" in text


K, T = 3, 4  # classes or targets, tokens
OF_SAMPLES = [
    pytest.param(task, metric, id=f"{task}-{metric.name}")
    for task, metrics in METRICS.items()
    for metric in metrics
    if metric.on in ("samples", "outputs")
]


def drawn(task: str, metric: Metric, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Outputs [B, K] or [B, T, K] of one client's model, and its classes, targets or tokens."""
    random = torch.Generator().manual_seed(seed)
    outputs = 4 * torch.randn((samples, T, K) if task == "language" else (samples, K), generator=random)
    if task == "regression":
        y = 4 * torch.randn((samples, K), generator=random)
        return outputs, (y > 0).float() if metric.of_tags else y
    return outputs, torch.arange(outputs[..., 0].numel()).reshape(outputs.shape[:-1]) % K


def value(metric: Metric, outputs: Tensor, y: Tensor) -> float:
    """The metric of one client, computed as an evaluation does."""
    if metric.on == "outputs":
        return float(metric.of(outputs.double().numpy(), y.numpy()))
    return float(metric.of(outputs[None].movedim(-1, 1), y[None]).float().mean())


@pytest.mark.parametrize(("task", "metric"), OF_SAMPLES)
def test_each_metric_is_computed_from_the_samples_of_its_task(task: str, metric: Metric) -> None:
    """A metric of several tasks may fit only one of them, and a run would find out."""
    values = [value(metric, *drawn(task, metric, 12, seed)) for seed in range(20)]
    assert all(map(math.isfinite, values)), values
    measure = measure_called(metric.name)
    y = drawn(task, metric, 12, 0)[1]
    wrong = []
    if task != "regression":  # the true class has the least score
        wrong = [value(metric, -100 * functional.one_hot(y, K).float(), y)]
    within = all(0 <= each <= 1 for each in (*values, *wrong))
    assert within == (measure.is_share or measure.is_of_one), (
        f"state is_of_one or is_share of {metric.name} in sim/results/measures.py only if it is from 0 to 1; "
        f"here it is {min(values):g} to {max(values):g}"
    )


@pytest.mark.parametrize(("task", "metric"), OF_SAMPLES)
def test_a_metric_that_one_sample_leaves_undefined_has_a_reason(task: str, metric: Metric) -> None:
    undefined = math.isnan(value(metric, *drawn(task, metric, 1, 0)))
    assert undefined == bool(measure_called(metric.name).undefined_if), (
        f"state undefined_if of {metric.name} in sim/results/measures.py: its value for one sample is "
        f"{'not a number' if undefined else 'a number'}"
    )
