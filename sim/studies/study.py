"""Runs of a comparison, from a sweep or single folders: their differences and their results."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.errors import UserError
from sim.results.kaplan_meier import CensoredTimes
from sim.results.measures import ALONE, MEASURES, base_metric_name, measure_called
from sim.results.metrics import Series, worst_decile
from sim.results.outcome import protocol, was_cut_short
from sim.results.population import ClientPanelData
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from sim.scenario.sections.sweep import Comparing, lists_by_key
from sim.studies.index import DONE, INDEX, SweepIndex, Value
from sim.studies.short_values import short_values
from sim.studies.words import axis_named, key_label

IMPROVEMENT, HURT = "improvement", "hurt"
"""Shares of clients that are better than in the baseline's runs, and worse than alone."""
_SHARES_OF_A_RUN = ("graph", "population.deepest_dip", IMPROVEMENT, HURT)
_DIRECTIONS = {
    "graph.l1": False,
    "graph.edge_precision": True,
    "graph.edge_recall": True,
    "better_than_alone": True,
    "population.deepest_dip": False,
    IMPROVEMENT: True,
    HURT: False,
}
_OF_ONE = ("graph.edge_precision", "graph.edge_recall")  # from 0 to 1, not shown in percent
WORST = ".worst_decile"
"""Suffix of a metric's name for the mean of the worst 10% of clients."""
COSTS = {"seconds": "", "bytes": "bytes_sent", "joules": "joules", "steps": "steps_taken", "FLOPs": "flops"}
"""Kinds of cost of reaching a target, with the metric that records each, summed over clients."""
ENERGY = "energy"
"""Entry of a summary: energy, cost and CO2 of a run."""
CATCH_UP, RECOVERY = "catch_up", "recovery"
WAITS = (CATCH_UP, RECOVERY)
"""Seconds until newcomers reach 90% of other clients' accuracy, and until survivors recover."""


@dataclass(frozen=True)
class StudiedRun:
    """A run. values: its value on each axis. clients: clients that count, except `excluded`; None for all.

    unaffected_by: axes that cannot affect it, so that its value on them stands for all values.
    """

    directory: Path
    values: Mapping[str, Value]
    clients: tuple[int, ...] | None = None
    excluded: tuple[int, ...] = ()
    unaffected_by: tuple[str, ...] = ()

    @cached_property
    def view(self) -> RunView:
        return RunView(RunDirectory.load(self.directory))

    @property
    def seed(self) -> int:
        return int(self.view.get("seed"))

    @cached_property
    def end_s(self) -> float:
        """Virtual time of the last evaluation."""
        times = self.view.bytes_sent.times
        return float(times[-1]) if times.size else self.view.end_s

    @property
    def ended_itself(self) -> bool:
        """True if the run ended before its duration, or had none, so more time would change nothing.

        False if it was cut short: its later values are unknown.
        """
        if was_cut_short(self.view.summary):
            return False
        planned_s = self.view.get("planned_seconds")
        return planned_s is None or self.view.end_s < planned_s * (1 - 1e-9)

    def without(self, excluded: Sequence[int]) -> StudiedRun:
        more = set(excluded) - set(self.excluded)
        if not more:
            return self
        same = replace(self, excluded=(*self.excluded, *sorted(more)))
        same.__dict__.update(view=self.view)  # read once
        return same

    @cached_property
    def _counted(self) -> list[int] | None:
        """Clients that count; None for all."""
        if self.clients is None and not self.excluded:
            return None
        clients = range(len(self.view.clients)) if self.clients is None else self.clients
        return [each for each in clients if each not in self.excluded]

    def curve(self, metric: str) -> Series | None:
        """Return a metric over time: the mean over clients that count and are up; None if not measured.

        For a metric with the suffix `WORST`, the mean of the worst 10% of these clients. For a total such as
        `bytes_sent`, the total of all clients.
        """
        panel = self._panel(metric.removesuffix(WORST))
        if panel is None:
            total = self.view.total(metric)
            return total if total.times.size else None
        if metric.endswith(WORST):
            higher = higher_is_better(metric)
            rows = [row[~np.isnan(row)] for row in panel.values]
            values = [worst_decile(row, higher_is_better=higher) for row in rows]
            return Series(panel.times, np.array(values))
        return Series(panel.times, np.nanmean(panel.values, axis=1))

    def _panel(self, name: str) -> ClientPanelData | None:
        panel = self.view.panel(name)
        if panel is None or self._counted is None:
            return panel
        if outside := [client for client in self._counted if client >= panel.values.shape[1]]:
            raise UserError(
                f"{self.directory}: no client {outside[0]}; clients are 0 to {panel.values.shape[1] - 1}"
            )
        chosen = panel.values[:, self._counted]
        known = ~np.isnan(chosen).all(axis=1)
        return ClientPanelData(panel.times[known], chosen[known]) if known.any() else None

    def number(self, metric: str) -> float:
        """Return a metric at the end, or a number of the summary by its path; NaN if unknown."""
        found = self.view.get(*metric.split("."))
        if self._counted is None or self.view.panel(metric.removesuffix(WORST)) is None:
            if isinstance(found, int | float) and not isinstance(found, bool):
                return float(found)
            if isinstance(found, Mapping) and isinstance(found.get("mean"), int | float):
                return float(found["mean"])
        series = self.curve(metric)
        return float(series.values[-1]) if series is not None and series.times[-1] >= self.end_s else math.nan

    def finals(self, metric: str) -> NDArray[np.float64] | None:
        """Return the final metric of each client that counts, NaN if unknown; None if not per client."""
        panel = self._panel(metric)
        if panel is None:
            return None
        return panel.values[-1] if panel.times[-1] >= self.end_s else np.full_like(panel.values[-1], math.nan)

    def gains_over_alone(self, metric: str) -> dict[int, float]:
        """Return how much better each client that counts is than after training alone; empty if unknown."""
        ends, alone = self.finals(metric), self.finals(metric + ALONE)
        if ends is None or alone is None or ends.shape != alone.shape:
            return {}
        clients = range(len(ends)) if self._counted is None else self._counted
        gains = (ends - alone) * (1 if higher_is_better(metric) else -1)
        return {
            client: gain for client, gain in zip(clients, gains.tolist(), strict=True) if not math.isnan(gain)
        }

    def change_after_budget(self, metric: str) -> float:
        """Return how much a metric changed after clients had exhausted their budgets, as a mean over clients.

        The change of a client is from its first evaluation at or after that time to its last. NaN if unknown.
        """
        panel = self._panel(metric)
        if panel is None:
            return math.nan
        spent_s = self.view.spent_s if self._counted is None else self.view.spent_s[self._counted]
        first = np.searchsorted(panel.times, spent_s)  # NaN is sorted to the end
        changes = [
            values[-1] - values[at]
            for values, at in zip(panel.values.T, first, strict=True)
            if at < len(values)
        ]
        known = [change for change in changes if math.isfinite(change)]
        return float(np.mean(known)) if known else math.nan

    def cost(self, kind: str) -> Series | None:
        """Return one of `COSTS` over time: the time itself, or a sum over clients; None if unknown."""
        if kind == "seconds":
            times = self.view.bytes_sent.times
            return Series(times, times)
        found = self.view.total(COSTS[kind])
        return found if found.times.size and bool(np.isfinite(found.values).all()) else None

    @cached_property
    def waits(self) -> dict[str, CensoredTimes]:
        """Times until newcomers catch up and until survivors recover from departures, by names of `WAITS`."""
        population = self.view.population
        if population is None:
            return dict.fromkeys(WAITS, CensoredTimes.of([], []))
        return {CATCH_UP: population.catching_up, RECOVERY: population.recovering}


@dataclass(frozen=True)
class Study:
    """Runs to compare. axes: the values of each axis, in order. missing: reasons by run without results.

    shortened: maps "axis=value" with the full name of user code to "axis=value" with its short name.
    """

    name: str
    question: str
    axes: Mapping[str, tuple[Value, ...]]
    labels: Mapping[str, str]
    runs: tuple[StudiedRun, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    defaults: Comparing = field(default_factory=Comparing)
    shortened: Mapping[str, str] = field(default_factory=dict)

    def axis(self, name: str) -> str:
        """Return the name of an axis in this study, given its name or its label."""
        return axis_named(name, self.axes, self.labels)

    def named(self, choice: str) -> str:
        """Return "axis=value" with the names of this study."""
        axis, equals, value = map(str.strip, choice.partition("="))
        choice = f"{self.axis(axis)}{equals}{value}"
        return self.shortened.get(choice, choice)

    def label(self, axis: str) -> str:
        """Return the name of an axis in tables and pictures."""
        return self.labels.get(axis) or key_label(axis)

    @property
    def clients(self) -> str:
        """Numbers of the clients that count, as in "0-3, 7"; empty if all clients count."""
        counted = sorted(set(self.runs[0].clients or ()))
        ends = [n for n, each in enumerate(counted) if each + 1 not in counted]
        spans = [counted[first + 1 : last + 1] for first, last in pairwise([-1, *ends])]
        return ", ".join([str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in spans])

    def is_of_clients(self, metric: str) -> bool:
        """Return whether a metric is measured per client."""
        return any(run.view.panel(metric.removesuffix(WORST)) is not None for run in self.runs)

    @property
    def measure(self) -> str:
        """Name of the measure of the clients' results."""
        found = self.runs[0].view.measure
        return "accuracy" if found is None else found[0].name


def direction(metric: str) -> bool | None:
    """Return whether larger values of a metric are better; None if unknown, as for counts of messages."""
    name = base_metric_name(metric)
    if metric in _DIRECTIONS or name == ENERGY:
        return _DIRECTIONS.get(metric, False)
    return measure_called(name).higher_is_better if any(each.name == name for each in MEASURES) else None


def higher_is_better(metric: str) -> bool:
    """Return whether larger values of a metric are better; True if unknown."""
    return direction(metric) is not False


def is_share(metric: str) -> bool:
    """Return whether a metric is shown in percent."""
    return metric in _SHARES_OF_A_RUN or measure_called(base_metric_name(metric)).is_share


def metric_bounds(metric: str) -> tuple[float, float]:
    """Return the known bounds of a metric, infinite if unknown."""
    if (
        is_share(metric)
        or metric.removesuffix(WORST) in _OF_ONE
        or measure_called(base_metric_name(metric)).is_of_one
    ):
        return 0.0, 1.0
    return (0.0 if metric == "graph.l1" else -math.inf), math.inf


def load_study(paths: Sequence[Path], clients: Sequence[int] | None = None) -> Study:
    """Load the runs in these results folders, or the runs of one sweep. Raises UserError."""
    sweeps = [path for path in paths if (path / INDEX).is_file()]
    if sweeps and len(paths) > 1:
        if len(sweeps) == 1:
            advice = "name only the sweep, or only results folders of single runs"
            raise UserError(f"{sweeps[0]} is a sweep, which cannot be combined with other folders; {advice}")
        latest = max(sweeps, key=lambda path: (path / INDEX).stat().st_mtime)
        one = f"name one sweep (the latest is {latest})"
        problem = f"is one of {len(sweeps)} sweeps"
        raise UserError(f"{sweeps[0]} {problem}; {one}, or results folders of single runs")
    study = _of_sweep(paths[0], clients) if sweeps else _of_runs(paths, clients)
    if not study.runs:
        why = "".join(f"\n{cell}: {reason}" for cell, reason in study.missing.items())
        raise UserError(f"{paths[0]}: no run is finished{why}")
    _require_one_direction(study.runs)
    return study


def _require_one_direction(runs: Sequence[StudiedRun]) -> None:
    """Raise UserError if higher values of a user-defined measure are better in only some of the runs."""
    found: dict[str, tuple[bool, Path]] = {}
    for run in runs:
        for own in run.view.summary.get("own_measures") or ():
            direction, first = found.setdefault(own["name"], (own["higher_is_better"], run.directory))
            if direction != own["higher_is_better"]:
                better = ("higher", "lower") if direction else ("lower", "higher")
                raise UserError(
                    f"the measure {own['name']} has two directions: {better[0]} is better in {first}, and "
                    f"{better[1]} in {run.directory}; compare runs with the same direction"
                )


def _of_sweep(path: Path, clients: Sequence[int] | None) -> Study:
    index = SweepIndex.read(path)
    is_named = clients is not None  # clients named by the user count even if excluded
    counted = index.compare.clients if clients is None else tuple(clients)
    names = index.names
    axes = {
        axis: tuple([names[axis].get(each, each) for each in values]) for axis, values in index.axes.items()
    }
    runs = [
        StudiedRun(
            path.parent / cell.directory,
            {axis: names[axis].get(value, value) for axis, value in cell.values.items()},
            counted,
            () if is_named else cell.excluded,
            cell.without,
        )
        for cell in index.cells
        if cell.state == DONE and cell.directory is not None
    ]
    missing = {str(cell): cell.error or "not run yet" for cell in index.cells if cell.state != DONE}
    shortened = {
        f"{axis}={code}": f"{axis}={name}" for axis, short in names.items() for code, name in short.items()
    }
    return Study(
        index.name, index.question, axes, index.labels, tuple(runs), missing, index.compare, shortened
    )


def _of_runs(paths: Sequence[Path], clients: Sequence[int] | None) -> Study:
    """Return a study of single runs; its axes are the keys that differ between their scenarios."""
    counted = None if clients is None else tuple(clients)
    settings = [_settings(path) for path in paths]
    protocols = [settings_of["protocol"] for settings_of in settings]
    keys = [key for key in dict.fromkeys(key for each in settings for key in each) if _differs(key, settings)]
    if len(set(protocols)) > 1:  # settings of different protocols always differ
        keys = [key for key in keys if not key.startswith("protocol.") or _differs_within(key, settings)]
    columns = {key: short_values([each.get(key, "-") for each in settings]) for key in keys}
    values = [{key: column[number] for key, column in columns.items()} for number in range(len(settings))]
    axes = {key: _in_order([each[key] for each in values]) for key in keys}
    runs = [StudiedRun(path, each, counted) for path, each in zip(paths, values, strict=True)]
    # Unfinished runs count, since the user named them.
    unfinished = [run.directory for run in runs if not run.view.summary["finished"]]
    missing = {str(each): "the run is unfinished; its evaluations count" for each in unfinished}
    return Study("comparison", "", axes, {}, tuple(runs), missing)


def _in_order(values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the unique values: numbers sorted, others in order of appearance."""
    found = list(dict.fromkeys(values))
    return tuple(sorted(found) if all(isinstance(each, int | float) for each in found) else found)


def _settings(path: Path) -> dict[str, Value]:
    """Return the resolved scenario of a run by key, without name and seed, and with its protocol."""
    directory = RunDirectory.load(path)
    try:
        contents = tomllib.loads(directory.scenario_text())
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path / 'scenario.toml'} is damaged: {error}") from error
    summary = directory.summary()
    found: dict[str, Value] = {"protocol": protocol(summary), "live": "live" in summary}
    for key, value in lists_by_key(contents).items():
        if key not in ("run.name", "run.seed", "protocol.name", "protocol.alone"):
            found[key] = value if isinstance(value, Value) else json.dumps(value, default=str)
    return found


def _differs(key: str, settings: Sequence[Mapping[str, Value]]) -> bool:
    return len({repr(each.get(key)) for each in settings}) > 1


def _differs_within(key: str, settings: Sequence[Mapping[str, Value]]) -> bool:
    names = {each["protocol"] for each in settings}
    return any(_differs(key, [each for each in settings if each["protocol"] == name]) for name in names)


def values_at_times(series: Series, times: NDArray[np.float64], *, hold: bool) -> NDArray[np.float64]:
    """Return the last values at `times` [T]; NaN before the first, and without `hold` after the last."""
    position = np.searchsorted(series.times, times, side="right") - 1
    values = np.where(position >= 0, series.values[np.maximum(position, 0)], np.nan)
    return values if hold else np.where(times <= series.times[-1] * (1 + 1e-9), values, np.nan)
