"""Compares the runs of a study: means over seeds, differences to a baseline, costs of reaching a target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.errors import UserError
from sim.results.kaplan_meier import Reached, known_until, median_time, restricted_mean
from sim.results.metrics import Series, time_to_target, value_at
from sim.studies.cells import axis_value
from sim.studies.index import Value
from sim.studies.statistics import LEVEL, Contrast, Estimate, contrast, curve, estimate, holm, horizon
from sim.studies.study import (
    COSTS,
    WAITS,
    WORST,
    StudiedRun,
    Study,
    at_times,
    bounds_of,
    higher_is_better,
    is_share,
)

TIMES = 101
"""Points of the common grid of times."""
_LINES_MAX = 3  # of runs that have no results for the same reason
_UNEQUAL = 0.05  # share by which budgets may differ before it is said
BUDGETS = {"steps": "training steps", "samples": "samples", "bytes": "bytes sent", "time": "seconds up"}
_BUDGET_METRICS = {"steps": "training_steps", "samples": "samples_seen"}  # recorded of each client


@dataclass(frozen=True)
class SeedGroup:
    """The runs that differ by their seeds alone."""

    values: Mapping[str, Value]
    runs: tuple[StudiedRun, ...]

    @property
    def excluded(self) -> tuple[int, ...]:
        """The clients that its case excludes."""
        return self.runs[0].excluded

    @property
    def texts(self) -> dict[str, str]:
        """The group's value on each axis, as text."""
        return {axis: str(value) for axis, value in self.values.items()}

    def without(self, excluded: Sequence[int]) -> SeedGroup:
        return SeedGroup(self.values, tuple([run.without(excluded) for run in self.runs]))

    @property
    def label(self) -> str:
        return ", ".join(self.texts.values()) or "all runs"

    def budget(self, kind: str) -> float:
        """What a client spent on average: "steps", "samples", "bytes" or "time" (seconds); NaN if unknown.

        Steps and samples are of the clients that count, where some are excluded.
        """
        if self.excluded and kind in _BUDGET_METRICS:
            return float(np.mean([run.number(_BUDGET_METRICS[kind]) for run in self.runs]))
        found = [run.view.get("work", kind, "mean") for run in self.runs]
        return float(np.mean([math.nan if each is None else each for each in found]))


@dataclass(frozen=True)
class Line:
    """One metric of one group.

    against: its difference to the baseline, None for the baseline itself. p: the p-value of that difference,
    corrected for the number of comparisons in the table.
    """

    group: SeedGroup
    metric: str
    estimate: Estimate
    against: Contrast | None = None
    p: float = math.nan

    @property
    def is_significant(self) -> bool:
        """Whether the difference to the baseline is significant, at the level of the intervals."""
        return self.p < 1 - LEVEL


@dataclass(frozen=True)
class Target:
    """What the runs of one group spent until they reached the target, in one kind of `COSTS`."""

    group: SeedGroup
    kind: str
    reached: Reached
    """When each run reached it, in virtual seconds."""
    until: float
    spent: Estimate
    """What was spent until the target was reached, or until virtual second `until` if that is first."""

    @property
    def count(self) -> int:
        """How many runs reached the target by `until`."""
        return int((self.reached.at <= self.until).sum())

    @property
    def is_least(self) -> bool:
        """Whether some runs did not reach it, so that `spent` is a lower bound."""
        return self.count < len(self.reached.at)

    @property
    def median_s(self) -> float | None:
        """Median of the virtual seconds until it is reached (Kaplan-Meier); None if not half reach it."""
        return median_time(self.reached)


class Comparison:
    """A study's groups and what they come to.

    metrics: what is compared; by default what clients are judged by, and what there is of graph, newcomers
    and departures. by: the axis to draw along. baseline: ``"axis=value"``. Raises UserError for what there
    is not.
    """

    def __init__(
        self,
        study: Study,
        *,
        metrics: Sequence[str] | None = None,
        by: str | None = None,
        baseline: str | None = None,
        target: float | None = None,
    ) -> None:
        self.study = study
        self.groups = _groups(study)
        self.metrics = tuple(metrics or study.defaults.metrics or self._usual_metrics())
        self.target: float | None = study.defaults.target if target is None else target
        self._require_target()
        self.varied = [axis for axis, values in study.axes.items() if len(values) > 1]
        stated = study.defaults.by  # unless none of the runs differ in it by now
        chosen = None if by is None else study.axis(by)
        self.by = chosen or (stated if stated in study.axes else None) or self._usual_by()
        if self.by is not None and self.by not in study.axes:
            raise UserError(f"--by {by}: no axis; must be one of {', '.join(study.axes) or 'none'}")
        self._notices: list[str] = []
        self._baseline = self._parsed(baseline)
        self._require_metrics()

    def _usual_metrics(self) -> list[str]:
        measure = self.study.measure
        runs = self.study.runs
        told = ["graph.l1", *(["population.deepest_dip"] if is_share(measure) else [])]
        there = [name for name in told if _is_there(name, runs)]
        there += [name for name in WAITS if any(run.waits[name].at.size for run in runs)]
        return [measure, measure + WORST, *there]

    def _usual_by(self) -> str | None:
        """The last axis of numbers, else the last one, if there is another."""
        numeric = [axis for axis in self.varied if all(map(is_a_number, self.study.axes[axis]))]
        return numeric[-1] if numeric else self.varied[-1] if len(self.varied) > 1 else None

    def _parsed(self, baseline: str | None) -> tuple[str, str] | None:
        if baseline is not None:
            return axis_value(self.study.named(baseline), self.study.axes, "--baseline")
        first = (self.varied[0], str(self.study.axes[self.varied[0]][0])) if self.varied else None
        if (stated := self.study.defaults.baseline) is None:
            return first
        try:
            return axis_value(self.study.named(stated), self.study.axes, "sweep.compare.baseline")
        except UserError:  # of the sweep's values some may not have been run
            other = "nothing" if first is None else " = ".join(first)
            self._notices.append(f"there is no run with the sweep's baseline, {stated}: held against {other}")
            return first

    def _require_target(self) -> None:
        """UserError for a target that all runs have reached from the start, or none can."""
        if self.target is None:
            return
        least, most = bounds_of(self.study.measure)
        if math.isfinite(self.target) and least < self.target <= most:
            return
        meant = f"; did you mean {self.target / 100:g}?" if most < self.target <= 100 * most else ""
        allowed = f"more than {least:g} and at most {most:g}" if most < math.inf else "finite"
        raise UserError(
            f"--target {self.target:g}: the target of {self.study.measure} must be {allowed}{meant}"
        )

    def _require_metrics(self) -> None:
        for metric in self.metrics:
            if metric not in WAITS and not _is_there(metric, self.study.runs):
                names = f"a name in metrics.parquet, or that with {WORST}; a path in summary.json"
                allowed = f"{names}; {', '.join(WAITS)}, as graph.l1"
                raise UserError(f"--metric {metric}: no run has it; must be {allowed}")

    def baseline_of(self, group: SeedGroup) -> SeedGroup | None:
        """The group that a group is compared with: with the baseline's value, and else the same values."""
        if self._baseline is None:
            return None
        wanted = group.texts | dict([self._baseline])
        other = next((each for each in self.groups if each.texts == wanted), None)
        return None if other is group else other

    def numbers(self, group: SeedGroup, metric: str, until_s: float | None = None) -> dict[int, float]:
        """A metric at the end of each run of a group, by seed; of `WAITS` the restricted mean of each run.

        until_s: where that mean cuts off; by default `until_s` of the group.
        """
        if metric not in WAITS:
            return {run.seed: run.number(metric) for run in group.runs}
        until = self.until_s(metric, group) if until_s is None else until_s
        return {run.seed: restricted_mean(run.waits[metric], until) for run in group.runs}

    def until_s(self, metric: str, *groups: SeedGroup) -> float:
        """The time (s) at which the restricted mean of one of `WAITS` is cut off; NaN without any newcomers.

        It is the longest time that is known of all runs with the same value of `by` as one of `groups`. Only
        of these: where newcomers leave after 10 s nobody knows who would have needed 20 s, but that is no
        reason to cut off the others at 10 s.
        """
        values = [group.values.get(self.by or "") for group in groups]
        beside = [run for run in self.study.runs if run.values.get(self.by or "") in values]
        waits = [run.waits[metric] for run in beside if run.waits[metric].at.size]
        known = min(map(known_until, waits), default=math.nan)
        return max([float(each.times.max()) for each in waits]) if known == math.inf else known

    def _contrast(self, metric: str, group: SeedGroup, other: SeedGroup) -> Contrast:
        """One group against another: the clients that neither excludes, times as far as known of both."""
        until = self.until_s(metric, group, other) if metric in WAITS else None
        group, other = group.without(other.excluded), other.without(group.excluded)
        return _contrast(self.numbers(group, metric, until), self.numbers(other, metric, until))

    @property
    def baseline_text(self) -> str:
        return "none" if self._baseline is None else " = ".join(self._baseline)

    @cached_property
    def lines(self) -> list[Line]:
        """Every metric of every group; all comparisons are corrected for their number."""
        found = []
        for metric in self.metrics:
            for group in self.groups:
                numbers, other = self.numbers(group, metric), self.baseline_of(group)
                against = None if other is None else self._contrast(metric, group, other)
                found.append(Line(group, metric, _within(metric, estimate(list(numbers.values()))), against))
        corrected = holm([math.nan if line.against is None else line.against.p for line in found])
        return [replace(line, p=p) for line, p in zip(found, corrected, strict=True)]

    def line(self, group: SeedGroup, metric: str) -> Line:
        """The one of `lines` about a metric of a group."""
        return self.lines[self.metrics.index(metric) * len(self.groups) + self.groups.index(group)]

    @cached_property
    def targets(self) -> list[Target]:
        """What reaching the target costs each group, in each recorded kind of cost; none without a target."""
        if self.target is None or any(run.curve(self.study.measure) is None for run in self.study.runs):
            return []
        reached = [self._reached(group) for group in self.groups]
        until = horizon(reached)
        found = []
        for kind in COSTS:
            if not math.isnan(until) and all(run.cost(kind) is not None for run in self.study.runs):
                for group, each in zip(self.groups, reached, strict=True):
                    spent = estimate(_spent(group, kind, np.minimum(each.at, until)))
                    found.append(Target(group, kind, each, until, spent))
        return found

    def targets_of(self, group: SeedGroup) -> list[Target]:
        """The `targets` of a group, in the order of `kinds`."""
        return [target for target in self.targets if target.group is group]

    @property
    def kinds(self) -> list[str]:
        """The kinds of cost that `targets` has."""
        return list(dict.fromkeys(target.kind for target in self.targets))

    def _reached(self, group: SeedGroup) -> Reached:
        """When each run of a group reached the target. A run that has converged below it never will."""
        assert self.target is not None
        sign, at = 1 if higher_is_better(self.study.measure) else -1, []
        for run in group.runs:
            times, values = run.curve(self.study.measure) or Series(np.empty(0), np.empty(0))
            reached_s = time_to_target(Series(times, sign * values), sign * self.target)
            at.append(math.inf if reached_s is None else reached_s)
        watched = [math.inf if run.ended_itself else run.end_s for run in group.runs]
        return Reached(np.array(at), np.array(watched))

    def curves(self, metric: str) -> tuple[NDArray[np.float64], list[tuple[SeedGroup, NDArray, NDArray]]]:
        """The common times [T], and of each group mean [T] and half width [T] of the interval over seeds.

        Both are NaN after the end of the group's shortest run, unless its training had ended by then.
        """
        series = {run.directory: run.curve(metric) for run in self.study.runs}
        if all(each is None for each in series.values()):
            return np.empty(0), []
        cuts = [[run.end_s for run in group.runs if not run.ended_itself] for group in self.groups]
        ends = [min(cut) for cut in cuts if cut]
        until = max(ends) if ends else max(run.end_s for run in self.study.runs)
        times = np.linspace(0, until, TIMES)
        found = []
        for group, cut in zip(self.groups, cuts, strict=True):
            known = [(series[run.directory], run.ended_itself) for run in group.runs]
            rows = [at_times(each, times, hold=hold) for each, hold in known if isinstance(each, Series)]
            if rows:
                there = times <= min(cut, default=math.inf) * (1 + 1e-9)
                found.append((group, *np.where(there, curve(np.array(rows)), math.nan)))
        return times, found

    @cached_property
    def warnings(self) -> list[str]:
        """What must be known before the numbers are read: missing runs, different seeds, unequal budgets."""
        found = [*without_results(self.study.missing), *self._notices]
        seeds = {frozenset(run.seed for run in group.runs) for group in self.groups}
        if len(seeds) > 1:
            found.append("not all groups have the same seeds; differences are paired by those that both have")
        if max(len(group.runs) for group in self.groups) == 1:
            found.append("one seed for each group: no intervals, and no difference can be told from chance")
        for kind in self._budgets():
            if ends := self.unequal(kind):
                (least, of_least), (most, of_most) = ends
                found.append(
                    f"unequal budgets: {BUDGETS[kind]} per client from {of_least:,.0f} ({least}) to "
                    f"{of_most:,.0f} ({most}); --set run.budget.{kind}=N gives each the same"
                )
        return found

    def unequal(self, kind: str) -> list[tuple[str, float]]:
        """The groups that spent least and most of a kind, and what; none where all spent alike."""
        spent = [(group.label, group.budget(kind)) for group in self.groups]
        known = sorted([each for each in spent if not math.isnan(each[1])], key=lambda each: each[1])
        return [known[0], known[-1]] if known and known[-1][1] > (1 + _UNEQUAL) * known[0][1] else []

    def _budgets(self) -> list[str]:
        """Warnings of budgets that differ: what each client of all runs was given, or else what it computed.

        What a method sends, how long it takes, and how many steps it makes of samples, are its results.
        """
        budgets = [run.view.get("budget") or {} for group in self.groups for run in group.runs]
        stated = [kind for kind in _BUDGET_METRICS if all(kind in budget for budget in budgets)]
        return stated or list(_BUDGET_METRICS)


def without_results(missing: Mapping[str, str]) -> list[str]:
    """A line for each run without results; one for all that have the same reason, where these are many."""
    by_reason: dict[str, list[str]] = {}
    for cell, reason in missing.items():
        by_reason.setdefault(reason, []).append(cell)
    found = []
    for reason, cells in by_reason.items():
        if len(cells) > _LINES_MAX:
            cells = [f"{len(cells):,} runs, from {cells[0]} to {cells[-1]}"]
        found += [f"no results: {cell}: {reason}" for cell in cells]
    return found


def _groups(study: Study) -> list[SeedGroup]:
    found: dict[tuple[tuple[str, Value], ...], dict[int, StudiedRun]] = {}
    for run in study.runs:
        runs = found.setdefault(tuple(run.values.items()), {})
        if (same := runs.setdefault(run.seed, run)) is not run:
            raise UserError(f"{same.directory} and {run.directory} are the same run; name one of them")
    return [SeedGroup(dict(values), tuple(runs.values())) for values, runs in found.items()]


def _spent(group: SeedGroup, kind: str, times: NDArray[np.float64]) -> list[float]:
    """What each run of the group had spent, in one kind of `COSTS`, by its time (seconds)."""
    if kind == "seconds":
        return times.tolist()
    costs = [run.cost(kind) for run in group.runs]
    return [value_at(cost, time_s) for cost, time_s in zip(costs, times, strict=True) if cost is not None]


def _contrast(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Contrast:
    """Paired by seed where both have the same seeds, as these share data, devices and random numbers."""
    common = [seed for seed in ours if seed in theirs]
    if len(common) > 1:
        return contrast([ours[seed] for seed in common], [theirs[seed] for seed in common], paired=True)
    return contrast(list(ours.values()), list(theirs.values()), paired=False)


def _within(metric: str, found: Estimate) -> Estimate:
    """The interval of a metric as far as there can be values: of few seeds it promises more than all."""
    least, most = bounds_of(metric)
    low, high = np.clip([found.low, found.high], least, most).tolist()
    return found._replace(low=low, high=high)


def _is_there(metric: str, runs: Iterable[StudiedRun]) -> bool:
    return any(not math.isnan(run.number(metric)) or run.curve(metric) for run in runs)


def is_a_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
