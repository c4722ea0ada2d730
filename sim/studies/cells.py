"""Plan of a sweep: one run for each combination of values of the axes and each seed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from actors.nearest import did_you_mean
from sim.errors import UserError, naming_file_in_errors
from sim.results.measures import MEASURES, OWN_METRICS, base_metric_name
from sim.results.store.summary_file import KNOWN_KEYS
from sim.scenario.reading import default_name, find_scenario, first_comment, read_text
from sim.scenario.resolved import digest
from sim.scenario.scenario import Scenario, load_scenario, sweep_alone
from sim.scenario.sections.sweep import Axes, Case, Comparing, Seeds, Sweep, lists_by_key
from sim.scenario.shared_prefix import shared_prefix_end
from sim.studies.artifacts.kept_study import changed_data, copy_study, find_study
from sim.studies.axes import (
    SEED_KEY,
    AxisChoice,
    axis_choice,
    axis_values,
    combinations,
    dimensions_of,
    narrowed,
    parse_axis_value,
    split_lists,
)
from sim.studies.index import CellHead, SweepHead, Value, axis_values_text
from sim.studies.option_values import as_toml, is_of_sweep, override_key
from sim.studies.words import axis_named, same_label

CELLS_MAX = 100_000


class SweepCell(CellHead):
    """A planned run. key: a hash of its resolved scenario, the user's code and the seed.

    overrides, unset: options in addition to the file. parent: the key of the cell that it forks, None if it
    runs from the start. fork_s: the virtual time in seconds from which it differs from the parent.
    """

    overrides: tuple[str, ...]
    unset: tuple[str, ...]
    key: str
    parent: str | None = None
    fork_s: float | None = None


class Plan(SweepHead):
    """All runs of a sweep. file: the scenario file of the runs. threads: maximum number for one run.

    files: contents of the files of the study's copy, by path in the sweep's folder.
    """

    file: Path
    threads: int
    cells: tuple[SweepCell, ...]
    notices: tuple[str, ...]
    files: dict[str, bytes] = Field(default_factory=dict)

    @property
    def key(self) -> str:
        """Hash of all runs, as eight hexadecimal digits."""
        text = json.dumps(sorted({cell.key for cell in self.cells}))
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    @property
    def folder(self) -> str:
        """Name of the folder of the index."""
        return f"{self.name}-sweep-{self.key}"


def plan(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    unset: Sequence[str] = (),
    seeds: Seeds | None = None,
    only: Sequence[str] = (),
    full: bool = False,
    code: bool = True,
) -> Plan:
    """Return the runs of a scenario file's `[sweep]`, or of overrides with values: ``"network.loss=0,0.1"``.

    path: a scenario file, or the folder of a sweep, which contains the study and the options of the sweep. An
    override replaces an axis of the same key. only: ``"axis=value"``, the values that axes keep. The scenario
    of each run is read and validated. Raises UserError.
    """
    path, earlier = find_study(Path(path))
    if earlier is not None:
        kept_of = [
            each
            for each in earlier.overrides
            if not (isinstance(seeds, tuple) and override_key(each) == SEED_KEY)
        ]
        overrides, unset = (*kept_of, *overrides), (*earlier.unset, *unset)
        seeds, only, full = seeds or earlier.seeds, (*earlier.only, *only), full or earlier.full
    fixed, lists = split_lists(overrides)
    path = find_scenario(path)
    stated, alone = StatedScenario(path, fixed, unset, code).of_runs()
    base = _base_scenario(stated, lists, has_cases=alone is not None and bool(alone.case))
    sweep = alone or base.sweep or Sweep()
    axes = sweep.axes(full=full)
    labels = {key: str(label) for key, label in lists_by_key(sweep.labels).items()}
    with naming_file_in_errors(path):
        _require_axes(sweep.compare, axes.case, axis_values(dimensions_of(axes, lists, ())), labels)
        _require_labels(labels, {*lists, *_axis_names(sweep), *_axis_names(sweep.full)})
        _require_different_labels(labels, {*lists, *_axis_names(axes)})
    dimensions = narrowed(dimensions_of(axes, lists, map(override_key, stated.overrides)), only, labels)
    chosen = _seeds(seeds or axes.seeds, base.run.seed, stated.overrides)
    if (count := len(chosen) * math.prod(map(len, dimensions))) > CELLS_MAX:
        raise UserError(f"the sweep has {count:,} runs; it may have at most {CELLS_MAX:,}", path)
    of_runs = [each for each in stated.overrides if override_key(each) != SEED_KEY]
    of_all, keys = replace(stated, overrides=axes.set), set(map(override_key, overrides))
    rows = [_options_last(choices, of_runs, lists) for choices in combinations(dimensions)]
    made = [make_cell(of_all, choices, seed, keys) for choices in rows for seed in chosen]
    scenarios = [scenario for _, scenario in made]
    options = dict(overrides=tuple(overrides), unset=tuple(unset), seeds=seeds, only=tuple(only), full=full)
    copy = copy_study(path, stated.file, scenarios, options)
    _require_clients(sweep.compare.clients or (), scenarios, path)
    notices = [notice for scenario in scenarios for notice in scenario.notices]
    notices += _metric_notices(sweep.compare.metrics or ())
    notices += changed_data(earlier, scenarios) if earlier is not None else []
    target = sweep.compare.target or base.run.target_accuracy or base.run.target
    return Plan(
        file=stated.file,
        name=base.name if alone is None else default_name(path),
        question=base.question if alone is None else first_comment(read_text(path)),
        axes=axis_values(dimensions),
        seeds=chosen,
        labels=labels,
        compare=sweep.compare.model_copy(update={"target": target}),
        threads=max(each if isinstance(each := one.engine.threads, int) else 1 for one in scenarios),
        cells=tuple(_plan_forks(made) if sweep.forks else [cell for cell, _ in made]),
        notices=tuple(dict.fromkeys(notices)),
        study=copy.study,
        files=copy.files,
    )


@dataclass(frozen=True)
class StatedScenario:
    """A file and options in addition to it, as for `load_scenario`."""

    file: Path
    overrides: Sequence[str]
    unset: Sequence[str]
    code: bool

    def scenario(self, seed: int | None = None) -> Scenario:
        """Load the scenario. Raises UserError."""
        return load_scenario(self.file, self.overrides, seed, unset=self.unset, code=self.code)

    def of_runs(self) -> tuple[StatedScenario, Sweep | None]:
        """Return the options of the runs, and the sweep of a file that only holds one. Raises UserError."""
        (of_sweep, overrides), (unset_of_sweep, unset) = (
            _split_sweep_overrides(self.overrides),
            _split_sweep_overrides(self.unset),
        )
        alone = sweep_alone(find_scenario(self.file), of_sweep, unset_of_sweep)
        return (
            (self, None)
            if alone is None
            else (StatedScenario(alone[0], overrides, unset, self.code), alone[1])
        )


def _split_sweep_overrides(stated: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split overrides or keys into those that change the sweep itself and those that change its runs."""
    of_sweep = list(filter(is_of_sweep, stated))
    return of_sweep, [each for each in stated if each not in of_sweep]


def _base_scenario(stated: StatedScenario, lists: Mapping[str, list[Any]], *, has_cases: bool) -> Scenario:
    """Return the scenario without axes, or with their first values if an axis is a required key."""
    try:
        return stated.scenario()
    except UserError as error:
        if not lists:
            if has_cases:
                error.add_note("in the scenario without the cases of the sweep")
                _add_hint_on_cases(error)
            raise
    first = axis_choice({key: values[0] for key, values in lists.items()})
    with values_added_to_errors(first.values):
        return replace(stated, overrides=[*stated.overrides, *first.overrides]).scenario()


@contextmanager
def values_added_to_errors(
    values: Mapping[str, Value], of_sweep: Container[str] = (), of_values: Container[str] = ()
) -> Iterator[None]:
    """Add the values of the runs to a UserError raised in this block.

    of_sweep: keys that the sweep sets, and not an option. of_values: those of them that these values set.
    """
    try:
        yield
    except UserError as error:
        lines = error.problem.split("\n")
        keys = [line.partition(" = ")[0] for line in lines]
        error.problem = "\n".join(
            line.replace(" (from --set): ", " (from the sweep): ", 1) if key in of_sweep else line
            for line, key in zip(lines, keys, strict=True)
        )
        if values:
            error.add_note(f"in the runs with {axis_values_text(values)}")
            if not any(key in of_values for key in keys):
                _add_hint_on_cases(error)
        raise


def _add_hint_on_cases(error: UserError) -> None:
    """Add to an error where to set a key that some of the methods lack."""
    if ": unknown key; " in error.problem:
        error.add_note("put a key that only some runs have into `set` of a [[sweep.case]]")


def _options_last(
    choices: Sequence[AxisChoice], options: Iterable[str], lists: Container[str]
) -> list[AxisChoice]:
    """Return the choices of a run, with options after the choices of the file and before lists of options."""
    stated = [choice for choice in choices if any(axis in lists for axis in choice.values)]
    of_file = [choice for choice in choices if choice not in stated]
    return [*of_file, AxisChoice({}, tuple(options)), *stated]


def make_cell(
    of_all: StatedScenario, choices: Sequence[AxisChoice], seed: int, options: Container[str] | None = None
) -> tuple[SweepCell, Scenario]:
    """Return the run of one choice for each axis, with its scenario. Raises UserError.

    options: keys that options set; errors attribute the other keys of the choices to the sweep.
    """
    overrides = (*of_all.overrides, *[override for choice in choices for override in choice.overrides])
    unset = (*of_all.unset, *[key for choice in choices for key in choice.unset])
    values = {axis: value for choice in choices for axis, value in choice.values.items()}
    of_options = options if options is not None else set(map(override_key, overrides))
    of_sweep = {key for each in overrides if (key := override_key(each)) not in of_options}
    of_values = of_sweep.intersection(override_key(each) for choice in choices for each in choice.overrides)
    with values_added_to_errors(values, of_sweep, of_values):
        scenario = replace(of_all, overrides=overrides, unset=unset).scenario(seed)
    excluding = [choice for choice in choices if choice.excluded]
    excluded = tuple(sorted({client for choice in excluding for client in choice.excluded}))
    count = scenario.clients.count
    if excluded and (excluded[-1] >= count or len(excluded) == count):
        is_unknown = excluded[-1] >= count
        unknown = f"client {excluded[-1]}; must be from 0 to {count - 1}"
        what = unknown if is_unknown else f"all {count} clients; must leave at least one"
        cases = ", ".join(str(value) for choice in excluding for value in choice.values.values())
        verb = "excludes" if len(excluding) == 1 else "together exclude"
        raise UserError(f"sweep.case: {cases} {verb} {what}", of_all.file)
    cell = SweepCell(
        values=values,
        seed=seed,
        excluded=excluded,
        without=tuple(dict.fromkeys(axis for choice in choices for axis in choice.without)),
        overrides=overrides,
        unset=unset,
        key=digest(scenario),
    )
    return cell, scenario


def _plan_forks(made: Iterable[tuple[SweepCell, Scenario]]) -> list[SweepCell]:
    """Return the cells; a cell becomes a fork of the first cell that starts as the same run, if any."""
    found: list[SweepCell] = []
    parents: list[tuple[SweepCell, Scenario]] = []
    for cell, scenario in made:
        for parent, parents_scenario in parents:
            fork_s = shared_prefix_end(scenario, parents_scenario)
            if fork_s is not None:
                cell = cell.model_copy(update={"parent": parent.key, "fork_s": fork_s})
                break
        else:
            parents.append((cell, scenario))
        found.append(cell)
    return found


def _require_axes(
    compare: Comparing,
    cases: Sequence[Case],
    axes: Mapping[str, Sequence[Value]],
    labels: Mapping[str, str],
) -> None:
    """Reject keys that name an unknown axis, and baselines that are no value of an axis."""
    named = [("compare.by", axis_named(compare.by, axes, labels))] if compare.by is not None else []
    named += [(f"case.{number}.without", axis) for number, case in enumerate(cases) for axis in case.without]
    for key, axis in named:
        if axis not in axes:
            known = f"must be one of {', '.join(axes)}" if axes else "the sweep has no axes"
            raise UserError(f"sweep.{key} = {as_toml(axis)}: unknown axis; {known}")
    if compare.baseline is not None:
        axis, equals, value = map(str.strip, compare.baseline.partition("="))
        axis = axis_named(axis, axes, labels)
        parse_axis_value(f"{axis}{equals}{value}", axes, "sweep.compare.baseline =")


def _axis_names(axes: Axes) -> set[str]:
    return {*lists_by_key(axes.zip), *lists_by_key(axes.grid), *[case.axis for case in axes.case]}


def _metric_notices(metrics: Iterable[str]) -> Iterator[str]:
    """Yield a notice for each metric that is probably misspelled. A method may report metrics of any name."""
    known = [*[measure.name for measure in MEASURES], *sorted(OWN_METRICS), "iterations"]
    for metric in metrics:
        name = base_metric_name(metric)
        if name not in KNOWN_KEYS.union(known) and (meant := did_you_mean(name, known)):
            yield (
                f"sweep.compare.metrics: {as_toml(metric)} has values only if a method reports {name}, which "
                f"is not a metric of coterie{meant}"
            )


def _require_clients(clients: Iterable[int], scenarios: Iterable[Scenario], path: Path) -> None:
    """Reject compared clients that a run does not have."""
    count = min(scenario.clients.count for scenario in scenarios)
    if unknown := [client for client in clients if client >= count]:
        raise UserError(f"sweep.compare.clients: no client {unknown[0]}; must be from 0 to {count - 1}", path)


def _require_labels(labels: Mapping[str, str], axes: Collection[str]) -> None:
    """Reject labels of a misspelled axis, and empty ones. Keys that only options vary may have a label."""
    for key in labels:
        if key not in axes and (meant := did_you_mean(key, axes)):
            raise UserError(f"sweep.labels: {as_toml(key)} is not an axis of the sweep{meant}")
        if not labels[key].strip():
            raise UserError(f'sweep.labels: {as_toml(key)} = "": must not be empty')


def _require_different_labels(labels: Mapping[str, str], axes: Collection[str]) -> None:
    """Reject labels that two axes of the chosen form of the sweep have."""
    labels = {axis: label for axis, label in labels.items() if axis in axes}
    if same := same_label(sorted(axes), labels, labels):
        axis, other = same
        raise UserError(
            f"sweep.labels: {axis} = {as_toml(labels[axis])}: {other} has the same label; state another"
        )


def _seeds(seeds: Seeds | None, first: int, overrides: Iterable[str]) -> tuple[int, ...]:
    """Return the seeds. Raises UserError if overrides state the first seed, but `seeds` lists all of them."""
    stated = [each for each in overrides if override_key(each) == SEED_KEY]
    if stated and isinstance(seeds, tuple):
        listed_seeds = ", ".join(map(str, seeds))
        raise UserError(
            f"--set {stated[-1]}: sets the first seed, but all seeds are listed ({listed_seeds}); omit this "
            f"option, or pass the number of seeds: --seeds {len(seeds)}"
        )
    return seeds if isinstance(seeds, tuple) else tuple(range(first, first + (seeds or 1)))
