"""What is measured, `METRICS` of the learning, and its words, `MEASURES` of the results, go together."""

import pytest

from sim.learning.metrics import METRICS, metrics_of
from sim.results.measures import MEASURES
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
        assert metrics_of(task), f'add "{task}" to _DEFAULTS in sim/learning/metrics.py'
