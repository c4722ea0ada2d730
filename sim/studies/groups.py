"""Groups of runs that differ only in their seeds, with their figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.results.kaplan_meier import CensoredTimes, median_time
from sim.studies.index import Value
from sim.studies.robust import RobustStatistics
from sim.studies.statistics import LEVEL, Contrast, Estimate
from sim.studies.study import StudiedRun

BUDGETS = {"steps": "training steps", "samples": "samples", "bytes": "bytes sent", "time": "seconds up"}
BUDGET_METRICS = {"steps": "training_steps", "samples": "samples_seen"}  # recorded per client


@dataclass(frozen=True)
class SeedGroup:
    """The runs that differ only in their seeds."""

    values: Mapping[str, Value]
    runs: tuple[StudiedRun, ...]

    @property
    def excluded(self) -> tuple[int, ...]:
        """Clients excluded by the group's case."""
        return self.runs[0].excluded

    @property
    def texts(self) -> dict[str, str]:
        """Values of the group by axis, as text."""
        return {axis: str(value) for axis, value in self.values.items()}

    @property
    def unaffected_by(self) -> tuple[str, ...]:
        """Axes that cannot affect the group's case."""
        return self.runs[0].unaffected_by

    def stands_for(self, texts: Mapping[str, str]) -> bool:
        """Return whether runs with these values on some axes, as text, would equal the runs of the group."""
        own = self.texts
        return all(own[axis] == text or axis in self.unaffected_by for axis, text in texts.items())

    def without(self, excluded: Sequence[int]) -> SeedGroup:
        return SeedGroup(self.values, tuple([run.without(excluded) for run in self.runs]))

    @property
    def label(self) -> str:
        return ", ".join(self.texts.values()) or "all runs"

    @property
    def tuned(self) -> str:
        """Names of the studies that tuned the settings of its runs, "no" without one; joined if several."""
        studies = [run.view.get("tuned", "study") or "no" for run in self.runs]
        return ", ".join(dict.fromkeys(studies))

    @property
    def tuning_seeds(self) -> set[int]:
        """Seeds of the runs that were also seeds of their tuning."""
        return {run.seed for run in self.runs if run.seed in (run.view.get("tuned", "seeds") or ())}

    def budget(self, kind: str) -> float:
        """Return a client's mean use of "steps", "samples", "bytes" or "time" (s); NaN if unknown.

        If clients are excluded, steps and samples cover the clients that count.
        """
        if self.excluded and kind in BUDGET_METRICS:
            return float(np.mean([run.number(BUDGET_METRICS[kind]) for run in self.runs]))
        found = [run.view.get("work", kind, "mean") for run in self.runs]
        return float(np.mean([math.nan if each is None else each for each in found]))


@dataclass(frozen=True)
class GroupMetric:
    """One metric of one group.

    against: the difference from the baseline, None without one and for the baseline itself. p: the p-value of
    the difference, corrected for the number of comparisons in the table. robust: statistics over the clients
    of all runs, None if the metric is not measured per client.
    """

    group: SeedGroup
    metric: str
    estimate: Estimate
    against: Contrast | None = None
    p: float = math.nan
    robust: RobustStatistics | None = None

    @property
    def is_significant(self) -> bool:
        """True if the difference from the baseline is significant at the level of the intervals."""
        return self.p < 1 - LEVEL


@dataclass(frozen=True)
class TargetCost:
    """The cost of a group's runs until they reached the target, in one kind of `COSTS`."""

    group: SeedGroup
    kind: str
    reached: CensoredTimes
    """Virtual time (s) at which each run reached the target."""
    until: float
    spent: Estimate
    """Cost until the target was reached, at most until virtual time `until` (s)."""

    @property
    def count(self) -> int:
        """Number of runs that reached the target by `until`."""
        return int((self.reached.at <= self.until).sum())

    @property
    def is_least(self) -> bool:
        """True if some runs did not reach the target, so `spent` is a lower bound."""
        return self.count < len(self.reached.at)

    @property
    def median_s(self) -> float | None:
        """Median virtual time (s) to the target (Kaplan-Meier); None if fewer than half reach it."""
        return median_time(self.reached)


def is_a_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
