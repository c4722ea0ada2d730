"""Contents of comparison.html: facts of a study, and its curves as columns of numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import one_line
from sim.results import outcome
from sim.results.report.columns import PageColumn, float_column
from sim.results.store.output_dir import EXPLORE, REPORT
from sim.studies.answer import answer
from sim.studies.comparison import Comparison
from sim.studies.groups import GroupMetric, SeedGroup
from sim.studies.statistics import LEVEL
from sim.studies.study import COSTS, WAITS, StudiedRun, higher_is_better, metric_bounds, values_at_times
from sim.studies.tables import (
    cost_name_and_scope,
    difference_text,
    display_factor,
    interval_text,
    label_with_unit,
    metric_unit,
)

POINTS_MAX = 120
"""Most points of a run's curve on the page."""
_POINTS_MIN = 10
_POINTS_TOTAL = 400_000  # of all curves of all runs; the page stays below 5 MB


@dataclass(frozen=True)
class StudyContent:
    """Facts for the page, in JSON, and columns of the curves by name."""

    facts: dict[str, Any]
    columns: dict[str, PageColumn]


def study_page_content(comparison: Comparison, folder: Path) -> StudyContent:
    """Return the contents of the page of a comparison in this folder."""
    study = comparison.study
    runs = [(number, run) for number, group in enumerate(comparison.groups) for run in group.runs]
    curves = _Curves(comparison, [run for _, run in runs])
    seeds = sorted({run.seed for _, run in runs})
    numbers = [_ends(comparison, group) for group in comparison.groups]
    rows = [_run(run, number, folder, numbers[number][run.seed]) for number, run in runs]
    _add_forks(rows, [run for _, run in runs])
    facts: dict[str, Any] = {
        "title": study.name,
        "answer": answer(comparison),
        "warnings": comparison.warnings,
        "footnotes": [str(each) for each in comparison.footnotes.lines],
        "axes": [
            {"label": study.label(axis), "values": [str(each) for each in study.axes[axis]], "key": axis}
            for axis in study.axes
        ],
        "by": None if comparison.by is None else [*study.axes].index(comparison.by),
        "compared": None if (axis := comparison.compared_axis) is None else [*study.axes].index(axis),
        "seeds": seeds,
        "groups": [_group(comparison, group) for group in comparison.groups],
        "runs": rows,
        "metrics": [_metric(metric) for metric in comparison.metrics],
        "lines": [
            [_line(comparison.line(group, metric)) for group in comparison.groups]
            for metric in comparison.metrics
        ],
        "scales": [
            {"kind": kind, "label": cost_name_and_scope(kind).removesuffix(" per run")}
            for kind in curves.scales
        ],
        "curves": curves.names,
        "quantiles": _quantiles(max(len(group.runs) for group in comparison.groups)),
    }
    return StudyContent(facts, curves.columns())


def _group(comparison: Comparison, group: SeedGroup) -> dict[str, Any]:
    axes = comparison.study.axes
    values = [[*axes[axis]].index(value) for axis, value in group.values.items()]
    return {
        "label": group.label,
        "values": values,
        "marks": comparison.footnotes.marks(comparison.named(group)),
    }


def _ends(comparison: Comparison, group: SeedGroup) -> dict[int, list[float | None]]:
    """Return the metrics at the end of a group's runs, by seed; None if unknown."""
    of_metrics = [comparison.numbers(group, metric) for metric in comparison.metrics]
    return {run.seed: [_finite_or_none(each[run.seed]) for each in of_metrics] for run in group.runs}


def _run(run: StudiedRun, group: int, folder: Path, ends: list[float | None]) -> dict[str, Any]:
    pages = [name for name in (REPORT, EXPLORE) if (run.directory / name).is_file()]
    place = os.path.relpath(run.directory.absolute(), folder.absolute()).replace(os.sep, "/")
    return {
        "group": group,
        "seed": run.seed,
        "name": run.directory.name,
        "place": place,
        "pages": pages,
        "ends": ends,
        "held": run.ended_itself,
        "warnings": [one_line(each) for each in outcome.cautions(run.view.summary)],
    }


def _add_forks(rows: Sequence[dict[str, Any]], runs: Sequence[StudiedRun]) -> None:
    """Add the parents of forks, by number; None for a parent that is not part of the study."""
    numbers = {row["name"]: number for number, row in enumerate(rows)}
    for row, run in zip(rows, runs, strict=True):
        forked = outcome.fork_origin_text(run.view.summary)
        parent = run.view.get("fork", "of")
        row["fork"] = None if forked is None else [forked, numbers.get(str(parent))]


def _metric(metric: str) -> dict[str, Any]:
    low, high = metric_bounds(metric)
    return {
        "name": metric,
        "title": label_with_unit(metric),
        "unit": metric_unit(metric),
        "scale": display_factor(metric),
        "bounds": [_finite_or_none(low), _finite_or_none(high)],
        "higher": higher_is_better(metric),
        "waits": metric in WAITS,
    }


def _line(line: GroupMetric) -> dict[str, Any]:
    found, against = line.estimate, line.against
    gap = None if against is None else [_finite_or_none(each) for each in against.difference[:3]]
    return {
        "mean": _finite_or_none(found.mean),
        "low": _finite_or_none(found.low),
        "high": _finite_or_none(found.high),
        "seeds": found.runs,
        "difference": gap,
        "p": _finite_or_none(line.p),
        "text": [interval_text(found, line.metric), difference_text(line)],
    }


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _quantiles(runs: int) -> list[float]:
    """Return Student's quantiles for the half width of an interval, by the number of runs, from 2 on."""
    from scipy.stats import t

    return [float(t.ppf(0.5 + LEVEL / 2, count - 1)) for count in range(2, runs + 1)]


class _Curves:
    """Curves of all runs, at the times of their evaluations, thinned in equal steps."""

    def __init__(self, comparison: Comparison, runs: Sequence[StudiedRun]) -> None:
        self._runs = runs
        self.names = [
            number
            for number, metric in enumerate(comparison.metrics)
            if metric not in WAITS and any(run.curve(metric) is not None for run in runs)
        ]
        self._metrics = [comparison.metrics[number] for number in self.names]
        self.scales = [kind for kind in COSTS if all(run.cost(kind) is not None for run in runs)]
        columns = max(1, len(self.names) + len(self.scales))
        self._most = max(_POINTS_MIN, min(POINTS_MAX, _POINTS_TOTAL // (columns * len(runs))))

    def columns(self) -> dict[str, PageColumn]:
        """Return the number of points of each run, and each scale and metric at these points."""
        times = [self._times(run) for run in self._runs]
        found = {"count": float_column([each.size for each in times])}
        for number, kind in enumerate(self.scales):
            found[f"scale{number}"] = float_column(
                np.concatenate(
                    [
                        values_at_times(cost, at, hold=True) if (cost := run.cost(kind)) is not None else at
                        for run, at in zip(self._runs, times, strict=True)
                    ]
                )
            )
        for number, metric in zip(self.names, self._metrics, strict=True):
            found[f"metric{number}"] = float_column(
                np.concatenate(
                    [_curve_values_at(run, metric, at) for run, at in zip(self._runs, times, strict=True)]
                )
            )
        return found

    def _times(self, run: StudiedRun) -> NDArray[np.float64]:
        known = [each.times for metric in self._metrics if (each := run.curve(metric)) is not None]
        times = np.unique(np.concatenate(known)) if known else np.empty(0)
        if times.size <= self._most:
            return times
        return times[np.unique(np.linspace(0, times.size - 1, self._most).round().astype(int))]


def _curve_values_at(run: StudiedRun, metric: str, times: NDArray[np.float64]) -> NDArray[np.float64]:
    series = run.curve(metric)
    return np.full(times.size, math.nan) if series is None else values_at_times(series, times, hold=False)
