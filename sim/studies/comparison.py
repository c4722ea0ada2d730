"""Comparison of a study's runs: means over seeds, differences from a baseline, costs of a target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from actors.nearest import did_you_mean
from sim.errors import UserError
from sim.results.kaplan_meier import CensoredTimes, restricted_mean, survival_known_until
from sim.results.metrics import Series, time_to_target, value_at
from sim.results.outcome import cautions
from sim.results.text import counted
from sim.studies.axes import parse_axis_value
from sim.studies.footnotes import Footnotes
from sim.studies.groups import BUDGET_METRICS, BUDGETS, GroupMetric, SeedGroup, TargetCost, is_a_number
from sim.studies.index import Value
from sim.studies.robust import RobustStatistics, robust_statistics
from sim.studies.statistics import (
    Contrast,
    Estimate,
    contrast,
    correct_p_values,
    estimate,
    horizon,
    mean_curve,
)
from sim.studies.study import (
    COSTS,
    WAITS,
    WORST,
    StudiedRun,
    Study,
    direction,
    higher_is_better,
    is_share,
    metric_bounds,
    values_at_times,
)

TIMES = 101
"""Number of points of the common time grid."""
_METHODS = ("protocol.name", "protocol", "method")
_LINES_MAX = 3  # lines about runs without results for the same reason
_UNEQUAL = 0.05  # share by which budgets may differ without a warning
_WORSE = 0.02  # change after budgets, as a share of the value at the end, from which there is a warning


class Comparison:
    """Statistics of a study's groups.

    metrics: compared metrics; by default those of the study, or else the measure, its worst decile, and the
    known metrics of graph, newcomers and departures. by: the axis of the pictures. baseline:
    ``"axis=value"``. Raises UserError for unknown metrics, axes and values, for an impossible target, and for
    two runs with the same settings and seed.
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
        self.metrics = tuple(dict.fromkeys(metrics or study.defaults.metrics or self._usual_metrics()))
        self.target: float | None = study.defaults.target if target is None else target
        self._require_target("the sweep's target" if target is None else "--target")
        self.varied = [axis for axis, values in study.axes.items() if len(values) > 1]
        stated = study.axis(study.defaults.by or "")  # unless it is no axis of these runs
        chosen = None if by is None else study.axis(by)
        self.by = chosen or (stated if stated in study.axes else None) or self._usual_by()
        if self.by is not None and self.by not in study.axes:
            known = (
                f"must be one of {', '.join(study.axes)}" if study.axes else "the runs have no axes; omit it"
            )
            raise UserError(f"--by {by}: unknown axis; {known}")
        self._notices: list[str] = []
        self._baseline = self._parsed(baseline)
        self._note_missing_baseline()
        self._states_baseline = baseline is not None or study.defaults.baseline is not None
        self._require_metrics("sweep.compare.metrics:" if metrics is None else "--metric")

    def _usual_metrics(self) -> list[str]:
        measure = self.study.measure
        runs = self.study.runs
        usual = ["graph.l1", *(["population.deepest_dip"] if is_share(measure) else [])]
        known = [name for name in usual if _is_known(name, runs)]
        known += [name for name in WAITS if any(run.waits[name].at.size for run in runs)]
        return [measure, measure + WORST, *known]

    def _usual_by(self) -> str | None:
        """Return the last numeric axis, or the last of several axes, or None."""
        numeric = [axis for axis in self.varied if all(map(is_a_number, self.study.axes[axis]))]
        return numeric[-1] if numeric else self.varied[-1] if len(self.varied) > 1 else None

    def _parsed(self, baseline: str | None) -> tuple[str, str] | None:
        if baseline is not None:
            return parse_axis_value(self.study.named(baseline), self.study.axes, "--baseline")
        first = (self.varied[0], str(self.study.axes[self.varied[0]][0])) if self.varied else None
        if (stated := self.study.defaults.baseline) is None:
            return first
        try:
            return parse_axis_value(self.study.named(stated), self.study.axes, "sweep.compare.baseline")
        except UserError:  # runs with the baseline may be missing
            other = "there is no other" if first is None else f"the baseline is {' = '.join(first)}"
            self._notices.append(f"no run has the sweep's baseline {stated}; {other}")
            return first

    def _note_missing_baseline(self) -> None:
        if self._baseline is None:
            return
        axis, value = self._baseline
        if not any(group.texts[axis] == value for group in self.groups):
            self._notices.append(f"no run has the baseline {axis} = {value}, so there are no differences")

    def _require_target(self, stated: str) -> None:
        """Raise UserError for a target that all runs reach at the start, or that no run can reach."""
        if self.target is None:
            return
        least, most = metric_bounds(self.study.measure)
        if math.isfinite(self.target) and least < self.target <= most:
            return
        meant = f"; did you mean {self.target / 100:g}?" if most < self.target <= 100 * most else ""
        allowed = f"more than {least:g} and at most {most:g}" if most < math.inf else "finite"
        raise UserError(
            f"{stated} {self.target:g}: the target of {self.study.measure} must be {allowed}{meant}"
        )

    def _require_metrics(self, option: str) -> None:
        for metric in self.metrics:
            if metric not in WAITS and not _is_known(metric, self.study.runs):
                known = dict.fromkeys(name for run in self.study.runs for name in run.view.metric_names)
                named = f"a metric of the runs ({', '.join(known)}), those of clients with or without {WORST}"
                allowed = f"{named}, a path in summary.json such as graph.l1, {' or '.join(WAITS)}"
                of_clients = [each + WORST for each in known if self.study.is_of_clients(each)]
                total = metric.removesuffix(WORST)  # has no worst clients
                meant = did_you_mean(metric, [total] if total in known else [*known, *of_clients])
                raise UserError(f"{option} {metric}: unknown in all runs; must be {allowed}{meant}")

    def baseline_of(self, group: SeedGroup) -> SeedGroup | None:
        """Return a group's baseline: the group with the baseline's value and the same other values.

        A group that an axis cannot affect counts for all values of this axis. None for the baseline itself,
        and without a baseline.
        """
        if self._baseline is None:
            return None
        wanted = group.texts | dict([self._baseline])
        same = [each for each in self.groups if each.texts == wanted]
        other = next(iter([*same, *[each for each in self.groups if each.stands_for(wanted)]]), None)
        return None if other is group else other

    def numbers(self, group: SeedGroup, metric: str, until_s: float | None = None) -> dict[int, float]:
        """Return a metric at the end of a group's runs, by seed; for `WAITS` the restricted mean of each run.

        until_s: cut-off of the restricted mean; by default `until_s` of the group.
        """
        if metric not in WAITS:
            return {run.seed: run.number(metric) for run in group.runs}
        until = self.until_s(metric, group) if until_s is None else until_s
        return {run.seed: restricted_mean(run.waits[metric], until) for run in group.runs}

    def until_s(self, metric: str, *groups: SeedGroup) -> float:
        """Return the cut-off (s) of the restricted mean of one of `WAITS`; NaN if no run has such waits.

        It is the longest time known for all runs with the same value of `by` as one of `groups`. Other values
        of `by` have other cut-offs: if newcomers leave after 10 s in some runs, longer times are unknown
        only there.
        """
        values = [group.values.get(self.by or "") for group in groups]
        alike = [run for run in self.study.runs if run.values.get(self.by or "") in values]
        waits = [run.waits[metric] for run in alike if run.waits[metric].at.size]
        known = min(map(survival_known_until, waits), default=math.nan)
        return max([float(each.times.max()) for each in waits]) if known == math.inf else known

    def _contrast(self, metric: str, group: SeedGroup, other: SeedGroup) -> Contrast:
        """Compare two groups over clients that neither excludes; waits only up to a time known in both."""
        until = self.until_s(metric, group, other) if metric in WAITS else None
        group, other = group.without(other.excluded), other.without(group.excluded)
        return contrast_by_seed(self.numbers(group, metric, until), self.numbers(other, metric, until))

    @property
    def compared_axis(self) -> str | None:
        """The axis of the methods, else of a stated baseline, else the first axis, preferably not numeric.

        A baseline on another axis, such as calm weather, is only used for the differences in the tables.
        """
        of_words = [axis for axis in self.varied if not any(map(is_a_number, self.study.axes[axis]))]
        methods = [axis for axis in self.varied if axis in _METHODS]
        stated = [self._baseline[0]] if self._baseline is not None and self._states_baseline else []
        return next(iter([*methods, *stated, *of_words, *self.varied]), None)

    @property
    def stated_baseline(self) -> str | None:
        """The baseline as "axis=value" if the user or the study stated one; otherwise None."""
        if self._baseline is None or not self._states_baseline:
            return None
        return "=".join(self._baseline)

    @property
    def baseline_text(self) -> str:
        """The baseline in words, such as "method = alone"; "none" without one."""
        if self._baseline is None:
            return "none"
        axis, value = self._baseline
        return f"{self.study.label(axis)} = {value}"

    @cached_property
    def lines(self) -> list[GroupMetric]:
        """Every metric of every group, with comparisons corrected for their number."""
        found = []
        for metric in self.metrics:
            for group in self.groups:
                numbers, other = self.numbers(group, metric), self.baseline_of(group)
                against = None if other is None else self._contrast(metric, group, other)
                mean = _clip_interval(metric, estimate(list(numbers.values())))
                found.append(GroupMetric(group, metric, mean, against, robust=self._robust(group, metric)))
        corrected = correct_p_values([math.nan if line.against is None else line.against.p for line in found])
        return [replace(line, p=p) for line, p in zip(found, corrected, strict=True)]

    def _robust(self, group: SeedGroup, metric: str) -> RobustStatistics | None:
        """Return the statistics over clients of a group; None if the metric is not measured per client."""
        if metric in WAITS or metric.endswith(WORST) or not self.study.is_of_clients(metric):
            return None
        other = self.baseline_of(group)
        if other is None:
            return robust_statistics(metric, group.runs, [])
        ours, theirs = group.without(other.excluded), other.without(group.excluded)
        by_seed = {run.seed: run for run in theirs.runs}
        return robust_statistics(metric, group.runs, [(run, by_seed.get(run.seed)) for run in ours.runs])

    def line(self, group: SeedGroup, metric: str) -> GroupMetric:
        """Return the line about a metric of a group."""
        return self.lines[self.metrics.index(metric) * len(self.groups) + self.groups.index(group)]

    @cached_property
    def targets(self) -> list[TargetCost]:
        """Costs of reaching the target, by group and by each kind of cost that all runs recorded.

        Empty without a target, and if a run did not record the measure.
        """
        if self.target is None or any(run.curve(self.study.measure) is None for run in self.study.runs):
            return []
        reached = [self._reached(group) for group in self.groups]
        until = horizon(reached)
        found = []
        for kind in COSTS:
            if not math.isnan(until) and all(run.cost(kind) is not None for run in self.study.runs):
                for group, each in zip(self.groups, reached, strict=True):
                    spent = estimate(_costs_of_runs(group, kind, np.minimum(each.at, until)))
                    found.append(TargetCost(group, kind, each, until, _clip(spent, 0.0, math.inf)))
        return found

    def targets_of(self, group: SeedGroup) -> list[TargetCost]:
        """Return the `targets` of a group, in the order of `kinds`."""
        return [target for target in self.targets if target.group is group]

    @property
    def kinds(self) -> list[str]:
        """Kinds of cost in `targets`."""
        return list(dict.fromkeys(target.kind for target in self.targets))

    def _reached(self, group: SeedGroup) -> CensoredTimes:
        """Return the times at which a group's runs reached the target; never, for runs converged below it."""
        assert self.target is not None
        sign, at = 1 if higher_is_better(self.study.measure) else -1, []
        for run in group.runs:
            times, values = run.curve(self.study.measure) or Series(np.empty(0), np.empty(0))
            reached_s = time_to_target(Series(times, sign * values), sign * self.target)
            at.append(math.inf if reached_s is None else reached_s)
        watched = [math.inf if run.ended_itself else run.end_s for run in group.runs]
        return CensoredTimes(np.array(at), np.array(watched))

    def curves(self, metric: str) -> tuple[NDArray[np.float64], list[tuple[SeedGroup, NDArray, NDArray]]]:
        """Return common times [T], and for each group mean [T] and half width [T] of the interval over seeds.

        Both are NaN after the first end of a run of the group that did not end by itself. A run that ended by
        itself keeps its last values.
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
            rows = [
                values_at_times(each, times, hold=hold) for each, hold in known if isinstance(each, Series)
            ]
            if rows:
                within = times <= min(cut, default=math.inf) * (1 + 1e-9)
                found.append((group, *np.where(within, mean_curve(np.array(rows)), math.nan)))
        return times, found

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings to read before the results: missing runs, different seeds, unequal budgets and data."""
        found = [*missing_run_lines(self.study.missing), *self._notices]
        seeds = {frozenset(run.seed for run in group.runs) for group in self.groups}
        if len(seeds) > 1:
            found.append("groups have different seeds; differences are paired if two or more are common")
        if max(len(group.runs) for group in self.groups) == 1:
            found.append("one seed per group: there are no intervals, and differences may be due to chance")
        found += [*self._about_tuning(), *self.unequal_budgets()]
        return [*found, *self._unequal_data(), *self._worse_after_budget()]

    def unequal_budgets(self) -> list[str]:
        """Return a warning for each budget of which some groups used more than others."""
        found = []
        for kind in self._budgets():
            if ends := self.unequal(kind):
                (least, of_least), (most, of_most) = ends
                found.append(
                    f"unequal budgets: {BUDGETS[kind]} per client from {of_least:,.0f} ({least}) to "
                    f"{of_most:,.0f} ({most}); {self._remedy(kind)}"
                )
        return found

    def _worse_after_budget(self) -> list[str]:
        """Return a warning for each group whose models became worse after the clients' budgets."""
        metric, found = self.metrics[0], []
        if direction(metric) is None:
            return []
        sign = 1 if higher_is_better(metric) else -1
        for group in self.groups:
            change = float(np.mean([run.change_after_budget(metric) for run in group.runs]))
            end = float(np.mean([run.number(metric) for run in group.runs]))
            if sign * change < -_WORSE * abs(end):
                found.append(
                    f"{self.named(group)}: {metric} became worse by {abs(change):.3g} after clients had used "
                    "run.budget, because they still merged models, but did not train; compare the curves, or "
                    "end the runs earlier (run.duration)"
                )
        return found

    def _unequal_data(self) -> list[str]:
        """Return a warning if methods train on different numbers of samples in one setting."""
        axis = self.compared_axis
        if axis not in _METHODS:
            return []
        settings: dict[tuple[str, ...], list[tuple[float, SeedGroup]]] = {}
        for group in self.groups:
            samples = [run.view.get("samples") for run in group.runs]
            if all(samples):
                others = tuple([group.texts[other] for other in self.study.axes if other != axis])
                settings.setdefault(others, []).append((float(np.mean(samples)), group))
        for found in settings.values():
            (least, of_least), (most, of_most) = (end(found, key=lambda each: each[0]) for end in (min, max))
            if most > (1 + _UNEQUAL) * least:
                return [
                    f"unequal data: training samples per client from {least:,.0f} ({self.named(of_least)}) "
                    f"to {most:,.0f} ({self.named(of_most)}); a method that holds out validation samples "
                    "trains on fewer (data.validation_share)"
                ]
        return []

    def _remedy(self, kind: str) -> str:
        """Return what to change so that each client has the same budget."""
        budgets = [run.view.get("budget") or {} for group in self.groups for run in group.runs]
        unspent = sum(None in (budget.get("spent_seconds") or ()) for budget in budgets)
        if unspent:
            return (
                f"{counted(unspent, 'run')} ended before all clients had used run.budget; for equal "
                "budgets, set a longer run.duration"
            )
        return f"to give each client the same, use --set run.budget.{kind}=N"

    @cached_property
    def footnotes(self) -> Footnotes:
        """Warnings of the runs, by the name of their group."""
        found = {}
        for group in self.groups:
            found[self.named(group)] = [cautions(run.view.summary) for run in group.runs]
        return Footnotes(found)

    def named(self, group: SeedGroup) -> str:
        """Return the values of a group on the varied axes; numbers follow the label of their axis."""
        parts = []
        for axis in self.varied:
            value = group.values[axis]
            parts.append(value if isinstance(value, str) else f"{self.study.label(axis)} {value}")
        return ", ".join(parts) or "all runs"

    @property
    def any_tuned(self) -> bool:
        return any(group.tuned != "no" for group in self.groups)

    def _about_tuning(self) -> list[str]:
        """Return warnings about tuned groups next to others, different studies, and seeds of the tuning."""
        found = []
        untuned = [group.label for group in self.groups if group.tuned == "no"]
        studies = list(dict.fromkeys(group.tuned for group in self.groups if group.tuned != "no"))
        if untuned and studies:
            found.append(f"only some methods are tuned; not tuned: {'; '.join(untuned)}")
        if len(studies) > 1:
            found.append(f"settings were tuned by different studies: {'; '.join(studies)}")
        if seeds := sorted(set().union(*[group.tuning_seeds for group in self.groups])):
            numbers = ", ".join(map(str, seeds))
            also = f"seed {numbers} was" if len(seeds) == 1 else f"seeds {numbers} were"
            found.append(f"{also} also used for tuning; use other seeds for results")
        return found

    def unequal(self, kind: str) -> list[tuple[str, float]]:
        """Return the groups with the least and the largest use of a budget, and both uses; empty if alike."""
        spent = [(self.named(group), group.budget(kind)) for group in self.groups]
        known = sorted([each for each in spent if not math.isnan(each[1])], key=lambda each: each[1])
        return [known[0], known[-1]] if known and known[-1][1] > (1 + _UNEQUAL) * known[0][1] else []

    def _budgets(self) -> list[str]:
        """Return the budgets to compare: those that all runs set, else training steps and samples.

        Bytes, time, and unset budgets are results of a method.
        """
        budgets = [run.view.get("budget") or {} for group in self.groups for run in group.runs]
        stated = [kind for kind in BUDGET_METRICS if all(kind in budget for budget in budgets)]
        return stated or list(BUDGET_METRICS)


def missing_run_lines(missing: Mapping[str, str]) -> list[str]:
    """Return a line per run without results, or one line for many runs with the same reason."""
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
            raise UserError(
                f"{same.directory} and {run.directory} have the same settings and the same seed; "
                "name only one of them"
            )
    return [SeedGroup(dict(values), tuple(runs.values())) for values, runs in found.items()]


def _costs_of_runs(group: SeedGroup, kind: str, times: NDArray[np.float64]) -> list[float]:
    """Return the cost of each run of a group up to its time (s), in one kind of `COSTS`."""
    if kind == "seconds":
        return times.tolist()
    costs = [run.cost(kind) for run in group.runs]
    return [value_at(cost, time_s) for cost, time_s in zip(costs, times, strict=True) if cost is not None]


def contrast_by_seed(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Contrast:
    """Compare runs with equal seeds in pairs, if there are several: they share data, devices and draws."""
    common = [seed for seed in ours if seed in theirs]
    if len(common) > 1:
        return contrast([ours[seed] for seed in common], [theirs[seed] for seed in common], paired=True)
    return contrast(list(ours.values()), list(theirs.values()), paired=False)


def _clip_interval(metric: str, found: Estimate) -> Estimate:
    """Clip an interval to the bounds of its metric; with few seeds it can exceed them."""
    return _clip(found, *metric_bounds(metric))


def _clip(found: Estimate, least: float, most: float) -> Estimate:
    low, high = np.clip([found.low, found.high], least, most).tolist()
    return found._replace(low=low, high=high)


def _is_known(metric: str, runs: Iterable[StudiedRun]) -> bool:
    return any(not math.isnan(run.number(metric)) or run.curve(metric) for run in runs)
