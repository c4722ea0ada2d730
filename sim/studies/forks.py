"""Forks of a study beside their parents, with the differences."""

from sim.results import outcome
from sim.studies.comparison import Comparison
from sim.studies.study import WAITS
from sim.studies.tables import ShownTable, axis_labels, metric_column_head, value_text


def forks_table(comparison: Comparison) -> ShownTable | None:
    """Return a table of the forks, each beside its parent; None without forks of runs of the study."""
    runs = {run.directory.name: run for group in comparison.groups for run in group.runs}
    metrics = [metric for metric in comparison.metrics if metric not in WAITS]
    rows = []
    for run in runs.values():
        forked, parent = outcome.fork_origin_text(run.view.summary), runs.get(str(run.view.get("fork", "of")))
        if forked is None or parent is None:
            continue
        cells = []
        for metric in metrics:
            ours, theirs = run.number(metric), parent.number(metric)
            sign = "+" if ours > theirs else ""
            cells += [
                value_text(ours, metric),
                value_text(theirs, metric),
                f"{sign}{value_text(ours - theirs, metric)}",
            ]
        words = [*map(str, run.values.values()), str(run.seed), forked]
        rows.append([*words, *cells])
    if not rows:
        return None
    heads = [
        head
        for metric in metrics
        for head in (metric_column_head(comparison, metric), "parent", "difference")
    ]
    note = "Each row is one run: a fork equals its parent until the time of the fork."
    axes = [*axis_labels(comparison), "seed", "fork"]
    return ShownTable("Forks beside their parents", axes, heads, rows, note)
