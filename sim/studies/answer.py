"""The answer of a study in sentences: the best method, its lead, where another is best, and who is hurt."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.text import counted
from sim.studies.comparison import TIMES, Comparison, contrast_by_seed
from sim.studies.groups import SeedGroup, is_a_number
from sim.studies.statistics import Contrast, contrast, estimate
from sim.studies.study import HURT, WORST, direction, higher_is_better, is_share
from sim.studies.tables import metric_label, metric_unit, value_text

_SHOWN_MAX = 4  # values of an axis in one sentence
_NAMED_MAX = 3  # clients of a group in one sentence
_SAME_END = 0.95  # of the latest end: then runs count as ending at the same time
Setting = tuple[str, ...]
"""Values of the other axes."""


def answer(comparison: Comparison) -> list[str]:
    """Return sentences that answer the question of a study, each computed from the compared figures.

    Empty if fewer than two values can be ranked.
    """
    standing = MethodRanking(comparison)
    if standing.metric not in comparison.metrics or len(standing.ranking) < 2:
        return []
    first = [standing.best, standing.ends, *standing.elsewhere]
    parts = [*first, standing.lead, standing.harm, standing.always_hurt, standing.cautions]
    return [part for part in parts if part]


class MethodRanking:
    """Ranking of the methods, or of the values of another compared axis, by the measure at the end.

    It covers the settings of the other axes in which every method has runs.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        measure = comparison.study.measure
        known = [metric for metric in comparison.metrics if direction(metric) is not None]
        self.metric = measure if measure in comparison.metrics or not known else known[0]
        self.sign = 1 if higher_is_better(self.metric) else -1
        self.axis = comparison.compared_axis

    @cached_property
    def settings(self) -> dict[Setting, dict[str, SeedGroup]]:
        """For each setting, the groups with a known result, by their value on the compared axis.

        If another axis cannot affect a group, the group is in the settings with each value of that axis.
        Groups that the compared axis cannot affect are left out.
        """
        if self.axis is None:
            return {}
        found: dict[Setting, dict[str, SeedGroup]] = {}
        able = [each for each in self.comparison.groups if self.axis not in each.unaffected_by]
        known = [each for each in able if not math.isnan(self._mean(each))]
        others = [axis for axis in self.comparison.study.axes if axis != self.axis]
        for group in known:
            setting = tuple([group.texts[axis] for axis in others])
            found.setdefault(setting, {})[group.texts[self.axis]] = group
        for setting, groups in found.items():
            for group in known:
                if group.stands_for(dict(zip(others, setting, strict=True))):
                    groups.setdefault(group.texts[self.axis], group)
        return found

    @cached_property
    def complete(self) -> dict[Setting, dict[str, SeedGroup]]:
        values = set().union(*self.settings.values())
        return {setting: groups for setting, groups in self.settings.items() if groups.keys() == values}

    @cached_property
    def ranking(self) -> list[tuple[str, float]]:
        """Values of the axis with their mean result over settings, the best first."""
        values = next(iter(self.complete.values()), {})
        means = {
            value: float(np.mean([self._mean(groups[value]) for groups in self.complete.values()]))
            for value in values
        }
        return sorted(means.items(), key=lambda each: -self.sign * each[1])

    @cached_property
    def gap(self) -> Contrast:
        """Difference between the best and the second-best value, averaged over settings."""
        (first, _), (second, _), *_ = self.ranking
        return self._gap(first, second, list(self.complete.values()))

    def _gap(self, first: str, second: str, settings: Sequence[Mapping[str, SeedGroup]]) -> Contrast:
        """Return the difference of two values, paired by seed; each seed is a mean over settings.

        If the common seeds contradict the ranking, which has all seeds, the difference has all of them, too.
        """
        ours, theirs = self._by_seed(first, settings), self._by_seed(second, settings)
        found = contrast_by_seed(ours, theirs)
        if self.sign * found.difference.mean > 0 or ours.keys() == theirs.keys():
            return found
        return contrast(list(ours.values()), list(theirs.values()), paired=False)

    @property
    def best(self) -> str:
        (first, mean), (second, next_mean), *_ = self.ranking
        count, found = len(self.complete), self.gap.difference
        over = f" on average over {self._settings_in_words(count)}" if count > 1 else ""
        end = f"{self._value(first)} has the best {metric_label(self.metric)} at the end"
        if math.isclose(mean, next_mean, rel_tol=1e-12):
            return f"{end}{over}, {self._figure(mean)}, and so has {self._value(second)}."
        if not self.sign * found.mean > 0:  # seeds are missing in some of the settings
            return (
                f"{end}{over}: {self._figure(mean)}; too few seeds have results in all settings for a lead."
            )
        more = "more" if found.mean > 0 else "less"
        lead = f"{self._difference(abs(found.mean))} {more} than {self._value(second)}"
        return f"{end}{over}: {self._figure(mean)}, {lead} ({self._certainty(self.gap)})."

    @property
    def ends(self) -> str:
        """Sentence about runs that end at different times: their results are not from one time."""
        ends = {
            value: float(np.mean([run.end_s for each in self.complete.values() for run in each[value].runs]))
            for value, _ in self.ranking
        }
        first, last = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
        if ends[first] >= _SAME_END * ends[last]:
            return ""
        early, late = [f"{text.duration(ends[each])} with {self._value(each)}" for each in (first, last)]
        return f"Runs end at different times: on average at {early}, and at {late}."

    def _settings_in_words(self, count: int) -> str:
        """Describe the settings of the other axes: the 6 settings of "speed" and "size"."""
        study = self.comparison.study
        labels = [
            f'"{study.label(axis)}"'
            for axis, values in study.axes.items()
            if axis != self.axis and len(values) > 1
        ]
        if len(labels) == 1:
            return f"the {count:,} values of {labels[0]}"
        return f"the {count:,} settings of {', '.join(labels[:-1])} and {labels[-1]}"

    def _certainty(self, gap: Contrast, *, briefly: bool = False) -> str:
        """Describe the interval of a lead, and whether chance may explain it."""
        found = gap.difference
        if math.isnan(found.low):
            return "one seed" if briefly else "one seed: chance may explain the difference"
        low, high = sorted([self.sign * found.low, self.sign * found.high])
        runs = "" if briefly else f", {found.runs:,} seeds" + ("" if gap.paired else " each")
        shown = f"95% interval {value_text(low, self.metric)} to {value_text(high, self.metric)}{runs}"
        if low > 0 or high < 0:
            return shown
        return f"{shown}; {'may be chance' if briefly else 'chance may explain the difference'}"

    @property
    def elsewhere(self) -> list[str]:
        """Sentences about the settings in which another value is best, with its lead there."""
        if len(self.settings) < 2:
            return []
        first, winners = self.ranking[0][0], dict[str, list[Setting]]()
        known = {setting: groups for setting, groups in self.settings.items() if first in groups}
        for setting, groups in known.items():
            best = max(groups, key=lambda value: self.sign * self._mean(groups[value]))
            winners.setdefault(best, []).append(setting)
        own, lacking = len(winners.pop(first, [])), [each for each in self.settings if each not in known]
        without = f"; it has no results {self._where(lacking)}" if lacking else ""
        of = "settings in which it has results" if lacking else "settings"
        if not winners:
            every = {1: "the only", 2: "both"}.get(own, f"all {own:,}")
            of = of if own > 1 else of.replace("settings", "setting")
            return [f"It is the best in {every} {of}{without}."]
        found = [
            f"{self._value(best)} {self._where(settings)}{self._ahead(best, settings)}"
            for best, settings in winners.items()
        ]
        more = f"; and {counted(len(found) - _SHOWN_MAX, 'other')}" if len(found) > _SHOWN_MAX else ""
        where = f"It is the best in {own:,} of {len(known):,} {of}"
        return [f"{where}; elsewhere the best is {'; '.join(found[:_SHOWN_MAX])}{more}{without}."]

    def _ahead(self, best: str, settings: Sequence[Setting]) -> str:
        """Describe the lead of a value over the overall best in these settings; empty if unknown."""
        gap = self._gap(best, self.ranking[0][0], [self.settings[setting] for setting in settings])
        if not self.sign * gap.difference.mean >= 0:  # seeds are missing in some of the settings
            return ""
        ahead = f"ahead by {self._difference(abs(gap.difference.mean))}"
        return f" ({ahead}, {self._certainty(gap, briefly=True)})"

    def _where(self, settings: Sequence[Setting]) -> str:
        study = self.comparison.study
        varied = [axis for axis in study.axes if axis != self.axis]
        for place, axis in enumerate(varied):  # all settings with some values of one axis
            values = dict.fromkeys(setting[place] for setting in settings)
            alike = [setting for setting in self.settings if setting[place] in values]
            if len(values) < len(study.axes[axis]) and len(alike) == len(settings):
                return self._with_values(axis, list(values))
        names = [
            ", ".join(
                f"{study.label(axis)} = {value}"
                for axis, value in zip(varied, setting, strict=True)
                if len(study.axes[axis]) > 1
            )
            for setting in settings
        ]
        more = f" and {counted(len(names) - 2, 'other setting')}" if len(names) > 2 else ""
        return f"with {' and with '.join(names[:2])}{more}"

    def _with_values(self, axis: str, values: Sequence[str]) -> str:
        """Describe values of an axis: "with speed = 1 or 5", or "from speed = 5 on"."""
        study, every = self.comparison.study, self.comparison.study.axes[axis]
        if len(values) > 1 and all(map(is_a_number, every)):
            ordered = [str(each) for each in sorted(every, key=float)]
            if set(ordered[-len(values) :]) == set(values):
                return f"from {study.label(axis)} = {ordered[-len(values)]} on"
            if set(ordered[: len(values)]) == set(values):
                return f"up to {study.label(axis)} = {ordered[len(values) - 1]}"
        return f"with {study.label(axis)} = {' or '.join(values)}"

    @property
    def lead(self) -> str:
        """Sentence about the time from which the best value's mean curve leads.

        Empty if that curve does not lead at the end. If some runs are longer than others, the sentence
        names the time up to which all curves are known.
        """
        times, curves = self._curves()
        first = self.ranking[0][0]
        if first not in curves or len(curves) < 2:
            return ""
        others = [each for value, each in curves.items() if value != first]
        ahead: NDArray[np.float64] = np.min([self.sign * (curves[first] - each) for each in others], axis=0)
        times, leads = times[~np.isnan(ahead)], ahead[~np.isnan(ahead)] > 0
        if not times.size or not leads[-1]:
            return ""
        behind = np.flatnonzero(~leads)
        since, end_s = 0 if not behind.size else int(behind[-1]) + 1, float(times[-1])
        ends = [
            run.end_s for groups in self.complete.values() for each in groups.values() for run in each.runs
        ]
        is_end = end_s >= max(ends) * (1 - 1 / (TIMES - 1))
        measured = "" if is_end else f" (all curves are measured until {text.duration(end_s)})"
        if since == times.size - 1:
            return f"Its mean curve leads only at the end, at {text.duration(end_s)}."
        if since == 0:
            return f"Its mean curve leads from the start{measured}."
        return f"Its mean curve leads from {text.duration(float(times[since]))} on{measured}."

    def _curves(self) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """Return times [T], and the mean curve [T] over settings by value."""
        times, curves = self.comparison.curves(self.metric)
        by_group = {id(group): mean for group, mean, _ in curves}
        found: dict[str, list[NDArray[np.float64]]] = {}
        for groups in self.complete.values():
            for value, group in groups.items():
                if id(group) in by_group:
                    found.setdefault(value, []).append(by_group[id(group)])
        return times, {value: np.mean(each, axis=0) for value, each in found.items()}

    @property
    def harm(self) -> str:
        """Sentence about the clients that are worse than alone; if these are unknown, about the worst 10%."""
        hurt = {value: self._hurt(value) for value, _ in self.ranking}
        known = {value: share for value, share in hurt.items() if not math.isnan(share)}
        if known:
            shares = self._listed(known, HURT, most_hurt=max, of=" of the clients")
            return f"Worse than alone are {shares}."
        worst = self.metric + WORST
        if worst not in self.comparison.metrics:
            return ""
        ends = {value: self._mean_over_settings(value, worst) for value, _ in self.ranking}
        known = {value: mean for value, mean in ends.items() if not math.isnan(mean)}
        if not known:
            return ""
        most_hurt = min if higher_is_better(worst) else max
        found = self._listed(known, worst, most_hurt=most_hurt)
        unknown = "No run states which clients are worse than alone (run.compare_alone); the worst 10% reach"
        return f"{unknown} {found}."

    @property
    def always_hurt(self) -> str:
        """Sentence about the clients that are worse than alone in all runs of a group.

        Groups in which all clients are hurt are left out: `harm` states that.
        """
        groups = [groups[value] for value, _ in self.ranking for groups in self.complete.values()]
        hurt = [(group, losses) for group in groups if (losses := self._losses_in_all_runs(group))]
        hurt.sort(key=lambda each: -max(each[1].values()))
        found = [
            f"in all {len(group.runs):,} runs with {self.comparison.named(group)}, {self._losers(losses)}"
            for group, losses in hurt[:_SHOWN_MAX]
        ]
        if len(hurt) > _SHOWN_MAX:
            found.append(f"and some clients in all runs of {counted(len(hurt) - _SHOWN_MAX, 'other group')}")
        sentence = f"{'; '.join(found)}."
        return f"{sentence[0].upper()}{sentence[1:]}" if found else ""

    def _losses_in_all_runs(self, group: SeedGroup) -> dict[str, float]:
        """Return the mean losses of clients that are worse than alone in all runs, by name.

        The 95% interval of a mean loss must be above 0, so that few runs name no client by chance. Empty if
        all clients are worse than alone.
        """
        rows = [run.gains_over_alone(self.metric) for run in group.runs]
        found = dict[str, float]()
        clients = sorted(set(rows[0]).intersection(*rows[1:]))
        for client in clients:
            losses = [-row[client] for row in rows]
            if min(losses) > 0 and estimate(losses).low > 0:
                found[group.runs[0].view.clients[client]] = float(np.mean(losses))
        return {} if len(found) == len(clients) else found

    def _losers(self, losses: Mapping[str, float]) -> str:
        """Name the clients with the largest losses: client-3 is worse than alone, by 2 points on average."""
        named = sorted(losses, key=lambda client: -losses[client])[:_NAMED_MAX]
        *others, last = [losses[client] for client in named]
        lost = _joined([*[value_text(each, self.metric) for each in others], self._difference(last)])
        if len(losses) > len(named):
            most = f"most of all {_joined(named)}, by {lost} on average"
            return f"{len(losses):,} clients are worse than alone, {most}"
        are = "are" if len(named) > 1 else "is"
        return f"{_joined(named)} {are} worse than alone, by {lost} on average"

    def _listed(
        self, known: Mapping[str, float], metric: str, *, most_hurt: Callable[..., float], of: str = ""
    ) -> str:
        """List the numbers of the values; of many, the first ones and that of the most hurt value."""
        rows, last = list(known.items()), ""
        if len(rows) > _SHOWN_MAX:
            rows, others = rows[: _SHOWN_MAX - 1], rows[_SHOWN_MAX - 1 :]
            extreme = most_hurt(each for _, each in others)
            value = next(value for value, each in others if each == extreme)
            known_ends = [each for _, each in rows]
            if extreme not in known_ends and most_hurt(extreme, *known_ends) == extreme:
                last = f"; they are hurt most with {self._value(value)}, {self._figure(extreme, metric)}"
        figures = [
            f"{self._figure(each, metric)}{of if not number else ''} with {self._value(value)}"
            for number, (value, each) in enumerate(rows)
        ]
        return f"{_joined(figures)}{last}"

    def _hurt(self, value: str) -> float:
        lines = [self.comparison.line(groups[value], self.metric).robust for groups in self.complete.values()]
        found = [line.hurt.mean for line in lines if line is not None]
        return float(np.mean(found)) if len(found) == len(lines) else math.nan

    @property
    def cautions(self) -> str:
        """A sentence about runs with warnings."""
        notes = self.comparison.footnotes
        names = [self.comparison.named(group) for group in self.comparison.groups]
        groups = [name for name in names if notes.marks(name)]
        if not groups:
            return ""
        more = f" and of {counted(len(groups) - 3, 'other group')}" if len(groups) > 3 else ""
        return f"Runs of {'; '.join(groups[:3])}{more} have warnings: read the footnotes (\N{DAGGER}) first."

    def _mean(self, group: SeedGroup, metric: str = "") -> float:
        return self.comparison.line(group, metric or self.metric).estimate.mean

    def _mean_over_settings(self, value: str, metric: str) -> float:
        return float(np.mean([self._mean(groups[value], metric) for groups in self.complete.values()]))

    def _by_seed(self, value: str, settings: Sequence[Mapping[str, SeedGroup]]) -> dict[int, float]:
        """Return the mean result over settings by seed, for seeds with a result in all settings."""
        rows = [self.comparison.numbers(groups[value], self.metric) for groups in settings]
        seeds = sorted(set(rows[0]).intersection(*rows[1:]))
        means = {seed: float(np.mean([row[seed] for row in rows])) for seed in seeds}
        return {seed: mean for seed, mean in means.items() if not math.isnan(mean)}

    def _value(self, value: str) -> str:
        assert self.axis is not None
        is_word = not value.replace(".", "").replace("-", "").isdecimal()
        return value if is_word else f"{self.comparison.study.label(self.axis)} = {value}"

    def _figure(self, number: float, metric: str = "") -> str:
        metric = metric or self.metric
        unit = metric_unit(metric)
        return f"{value_text(number, metric)}{unit if unit == '%' else f' {unit}'}".strip()

    def _difference(self, number: float) -> str:
        points = "points" if is_share(self.metric) else metric_unit(self.metric)
        return f"{value_text(number, self.metric)} {points}".strip()


def _joined(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
