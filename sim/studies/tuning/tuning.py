"""Tuning: the same number of trials for each method, and selection on samples that the clients hold out.

A trial is one choice of settings, run with every tuning seed. Trial 0 has the settings of the scenario. All
runs are cells of one sweep, so that an interrupted tuning goes on where it stopped: the sampler asks for the
same trials again, and runs with results are kept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import UserError
from sim.learning.data.kept import keeping_last_data
from sim.results.outcome import why_failed
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView
from sim.run.setup.checking import check
from sim.scenario.reading import default_name
from sim.scenario.resolved import digest
from sim.scenario.scenario import Scenario
from sim.scenario.sections.sweep import Comparing
from sim.studies.axes import AxisChoice
from sim.studies.cells import CELLS_MAX, Plan, SweepCell, make_cell, values_added_to_errors
from sim.studies.index import Value
from sim.studies.option_values import as_toml
from sim.studies.sweep import Execute, SweepProgress, finished_folders, run_sweep
from sim.studies.tuning.methods import TunedMethod
from sim.studies.tuning.sampler_names import SamplerName
from sim.studies.tuning.samplers import Point, Sampler, make_sampler
from sim.studies.worker import CellOptions, CellResult

_FIRST_SEED = 9001
"""First seed if only the number of seeds is stated, far from the seeds of reports."""
_LAST = 0.1
"""Share of the evaluations that count, at the end of a run."""


def tuning_seeds(stated: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the seeds of trials: those stated, or a number of seeds from 9001 on."""
    return stated if isinstance(stated, tuple) else tuple(range(_FIRST_SEED, _FIRST_SEED + stated))


@dataclass(frozen=True)
class Tuning:
    """A tuning study. seed: the seed of the sampler. file: the scenario file as stated.

    conditions: changes to the scenario; each trial runs with every seed in each of them.
    """

    file: Path
    methods: Sequence[TunedMethod]
    trials: int
    seeds: tuple[int, ...]
    sampler: SamplerName
    seed: int
    conditions: Sequence[AxisChoice] = (AxisChoice({}, ()),)

    @property
    def name(self) -> str:
        return default_name(self.file)

    @property
    def runs_per_trial(self) -> int:
        return len(self.seeds) * len(self.conditions)

    @property
    def threads(self) -> int:
        """Maximum number of threads of one run."""
        stated = [method.stated.scenario().engine.threads for method in self.methods]
        return max(each if isinstance(each, int) else 1 for each in stated)


class _TuningPlan(Plan):
    """The runs of a tuning study so far; the folder of the index stays the same while runs are added."""

    definition: str

    @property
    def key(self) -> str:
        return hashlib.blake2b(self.definition.encode(), digest_size=4).hexdigest()

    @property
    def folder(self) -> str:
        return f"{self.name}-tune-{self.key}"


@dataclass
class TuningTrial:
    """One choice of settings of a method, and its results.

    settings: searched settings by whole key; empty for the settings of the scenario. selection, test: mean of
    the last tenth of the evaluations, over clients, seeds and conditions; nan if a run failed. reason: why
    the run failed.
    """

    method: TunedMethod
    number: int
    settings: Mapping[str, Any]
    cells: list[SweepCell] = field(default_factory=list)
    selection: float = math.nan
    test: float = math.nan
    reason: str | None = None

    @property
    def score(self) -> float:
        """The selection, so that higher is better; -inf after a failure."""
        if math.isnan(self.selection):
            return -math.inf
        return self.selection if self.method.selected_by.higher_is_better else -self.selection

    def overrides(self) -> tuple[str, ...]:
        """Return the settings as options."""
        return tuple([f"{key}={as_toml(value)}" for key, value in self.settings.items()])


@dataclass(frozen=True)
class TuningResult:
    """Results of a tuning study. directory: folder of its index and tables."""

    tuning: Tuning
    directory: Path
    trials: Mapping[str, list[TuningTrial]]
    """Trials in order, by method."""

    def best(self, method: str) -> TuningTrial | None:
        """Return the trial with the best selection, the first one of equals; None if all failed."""
        trials = self.trials[method]
        found = max(trials, key=lambda trial: trial.score)
        return found if math.isfinite(found.score) else None


def tune(
    tuning: Tuning,
    *,
    out: Path = Path("runs"),
    how: CellOptions | None = None,
    execute: Execute | None = None,
    show: Callable[[SweepProgress], object] = lambda progress: None,
) -> TuningResult:
    """Run all trials that have no results yet, and return all results. Raises UserError."""
    how = how or CellOptions()
    if (count := len(tuning.methods) * tuning.trials * tuning.runs_per_trial) > CELLS_MAX:
        raise UserError(f"the search has {count:,} runs; must be at most {CELLS_MAX:,}", tuning.file)
    samplers: dict[str, Sampler] = {}
    trials: dict[str, list[TuningTrial]] = {}
    for method in tuning.methods:
        values = list(method.space.values())
        samplers[method.name] = make_sampler(tuning.sampler, values, tuning.seed, method.name)
        trials[method.name] = [TuningTrial(method, 0, {})]
    _check_runs([trial for known in trials.values() for trial in known], tuning, out, how)
    fresh = {name: list(known) for name, known in trials.items()}
    asked: dict[str, list[Point]] = {}
    if tuning.sampler is SamplerName.sobol:  # all points are known at once
        asked = _propose_trials(tuning, samplers, trials, fresh)
    failed: Mapping[str, CellResult] = {}  # which later batches do not run again
    errors: Mapping[str, str] = {}
    while any(fresh.values()):
        for each in (trial for of_method in fresh.values() for trial in of_method):
            _add_cells(each, tuning)
        plan = _plan(tuning, trials)
        if plan.cells:
            result = run_sweep(plan, out=out, how=how, execute=execute, show=show, failed=failed)
            failed, errors = result.failed, result.errors
        new = [trial for of_method in fresh.values() for trial in of_method]
        folders = finished_folders(
            out, {cell.key for trial in new for cell in trial.cells}
        )  # read once for all
        for each in new:
            _score(each, out, folders, errors)
        for name, points in asked.items():
            if points:
                samplers[name].tell(points, [trial.score for trial in fresh[name][-len(points) :]])
        fresh = {name: [] for name in trials}
        asked = _propose_trials(tuning, samplers, trials, fresh)
    return TuningResult(tuning, out / _plan(tuning, trials).folder, trials)


def _propose_trials(
    tuning: Tuning,
    samplers: Mapping[str, Sampler],
    trials: Mapping[str, list[TuningTrial]],
    fresh: Mapping[str, list[TuningTrial]],
) -> dict[str, list[Point]]:
    """Add the next batch of trials of each method to `trials` and `fresh`; return their points."""
    asked: dict[str, list[Point]] = {}
    for method in tuning.methods:
        missing = tuning.trials - len(trials[method.name])
        asked[method.name] = samplers[method.name].ask(missing) if missing > 0 else []
        for point in asked[method.name]:
            trial = TuningTrial(method, len(trials[method.name]), method.settings(point))
            trials[method.name].append(trial)
            fresh[method.name].append(trial)
    return asked


def _add_cells(trial: TuningTrial, tuning: Tuning) -> None:
    """Plan the runs of a trial; a choice of settings that the scenario refuses counts as a failure."""
    try:
        trial.cells = [cell for cell, _ in _runs_of(trial, tuning)]
    except UserError as error:
        if not trial.number:
            raise
        trial.reason = str(error).splitlines()[0]


def _runs_of(trial: TuningTrial, tuning: Tuning) -> list[tuple[SweepCell, Scenario]]:
    """Return the runs of a trial, with their scenarios. Raises UserError."""
    choice = AxisChoice({"method": trial.method.name, "trial": trial.number}, trial.overrides())
    return [
        make_cell(trial.method.stated, [choice, condition], seed)
        for condition in tuning.conditions
        for seed in tuning.seeds
    ]


def _check_runs(trials: Iterable[TuningTrial], tuning: Tuning, out: Path, how: CellOptions) -> None:
    """Check the runs of these trials that have no results, with data and models. Raises UserError.

    Otherwise, a seed for which a class has too few samples would fail in each trial of a long search.
    """
    runs = [run for trial in trials for run in _runs_of(trial, tuning)]
    finished = finished_folders(out, {cell.key for cell, _ in runs})
    with keeping_last_data():
        for cell, scenario in runs:
            if cell.key not in finished:
                values = {key: value for key, value in cell.values.items() if key != "trial"}
                with values_added_to_errors({**values, "seed": cell.seed}):
                    check(scenario, how.data_dir, download=True)


def _plan(tuning: Tuning, trials: Mapping[str, list[TuningTrial]]) -> _TuningPlan:
    """Return the runs of all trials so far."""
    cells = [cell for of_method in trials.values() for trial in of_method for cell in trial.cells]
    definition = [tuning.trials, tuning.seeds, str(tuning.sampler), tuning.seed]
    definition += [
        [each.name, each.source, str(each.space), each.stated.overrides] for each in tuning.methods
    ]
    definition += [digest(method.stated.scenario()) for method in tuning.methods]
    definition += [condition for condition in tuning.conditions if condition.values]
    axes: dict[str, tuple[Value, ...]] = {
        "method": tuple([method.name for method in tuning.methods]),
        "trial": tuple(range(tuning.trials)),
    }
    for axis in tuning.conditions[0].values:
        axes[axis] = tuple(dict.fromkeys(condition.values[axis] for condition in tuning.conditions))
    return _TuningPlan(
        file=tuning.methods[0].stated.file,
        name=tuning.name,
        question=f"Tuning of {', '.join(method.name for method in tuning.methods)}",
        axes=axes,
        seeds=tuning.seeds,
        labels={},
        compare=Comparing(),
        threads=tuning.threads,
        cells=tuple(cells),
        notices=(),
        definition=json.dumps(definition),
    )


def _score(trial: TuningTrial, out: Path, folders: Mapping[str, str], errors: Mapping[str, str]) -> None:
    """Read the results of a trial's runs. folders: results folders in `out`, by the keys of their cells."""
    if trial.reason is not None:
        return
    values = []
    for cell in trial.cells:
        if cell.key not in folders:
            trial.reason = errors.get(str(cell), "the run left no results")
            return
        view = RunView(RunDirectory.load(out / folders[cell.key]))
        if (failed := why_failed(view.summary)) is not None or view.get("non_finite"):
            trial.reason = failed or "diverged: a model was not finite"
            return
        names = (trial.method.selected_by.name, trial.method.tested_by.name)
        values.append([_last_tenth(view, name) for name in names])
    trial.selection, trial.test = np.mean(values, axis=0).tolist()
    if math.isnan(trial.selection):
        trial.reason = f"{trial.method.selected_by.name} was not measured"


def _last_tenth(view: RunView, name: str) -> float:
    """Return the mean of a measure over clients and the last tenth of the evaluations; nan if unknown."""
    panel = view.panel(name)
    if panel is None:
        return math.nan
    last = panel.values[-math.ceil(_LAST * len(panel.values)) :]
    known = last[~np.isnan(last).all(axis=1)]
    return float(np.nanmean(known, axis=1).mean()) if known.size else math.nan


def all_trials(result: TuningResult) -> Iterator[TuningTrial]:
    """Yield the trials of all methods."""
    for trials in result.trials.values():
        yield from trials
