"""Which runs a sweep consists of: the combinations of all values of all axes, with every seed."""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import UserError, errors_about
from sim.scenario.overrides import overlap
from sim.scenario.reading import default_name, find_scenario, first_comment, read_text
from sim.scenario.resolved import digest
from sim.scenario.scenario import Scenario, load_scenario, sweep_alone
from sim.scenario.sections.sweep import Axes, Case, Comparing, Seeds, Sweep, listed
from sim.scenario.shared_prefix import shared_until
from sim.studies.index import Value

CELLS_MAX = 100_000
_Choices = list["_Choice"]


class _Choice(NamedTuple):
    """One value of an axis, or one value of each of several axes that change together.

    overrides, unset: what it changes in the scenario. excluded: clients that do not count in comparisons.
    without: axes of which it takes the first value alone.
    """

    values: dict[str, Value]
    overrides: tuple[str, ...]
    unset: tuple[str, ...] = ()
    excluded: tuple[int, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class SweepCell:
    """One run of a sweep. key: a hash of its resolved scenario, the user's code and the seed."""

    values: Mapping[str, Value]
    """Its value on each axis."""
    overrides: tuple[str, ...]
    unset: tuple[str, ...]
    seed: int
    key: str
    excluded: tuple[int, ...] = ()
    """The clients that do not count when it is compared."""
    parent: str | None = None
    """The key of the cell that it is a fork of; None if it is run from the start."""
    fork_s: float | None = None
    """Of a fork, the virtual time in seconds from which on it differs from its parent."""


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep. file: the scenario whose runs they are."""

    file: Path
    name: str
    question: str
    axes: Mapping[str, tuple[Value, ...]]
    """The values of each axis, in order."""
    seeds: tuple[int, ...]
    labels: Mapping[str, str]
    compare: Comparing
    target: float | None
    threads: int
    """The most that one run computes with."""
    cells: tuple[SweepCell, ...]
    notices: tuple[str, ...]

    @property
    def key(self) -> str:
        """Eight hexadecimal digits that change with any of the runs."""
        text = json.dumps(sorted({cell.key for cell in self.cells}))
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


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
    """The runs of a scenario file's `[sweep]`, or of overrides that list values: ``"network.loss=0,0.1"``.

    An override takes the place of an axis of the same key. only: ``"axis=value"``, the values to which axes
    are narrowed. Every run's scenario is read and validated. Raises UserError.
    """
    fixed, lists = _split(overrides)
    path = find_scenario(path)
    study = _study(path, fixed, lists, unset, code)
    axes = study.sweep.axes(full=full)
    with errors_about(path):
        _require_axes(study.sweep.compare, axes.case, _values(_dimensions(axes, lists, ())))
    dimensions = _narrowed(_dimensions(axes, lists, list(map(_key, study.fixed))), only)
    chosen = _seeds(seeds or axes.seeds, study.base.run.seed)
    if (count := len(chosen) * math.prod(map(len, dimensions))) > CELLS_MAX:
        raise UserError(f"a sweep of {count:,} runs; must have {CELLS_MAX:,} at most", path)
    cells, scenarios = [], []
    for choices in _combinations(dimensions):
        for seed in chosen:
            cell, scenario = _cell(study.file, [*axes.set, *study.fixed], study.unset, choices, seed, code)
            cells.append(cell)
            scenarios.append(scenario)
    if study.sweep.forks:
        cells = _forked(cells, scenarios)
    notices = [notice for scenario in scenarios for notice in scenario.notices]
    threads = [scenario.engine.threads for scenario in scenarios]
    return Plan(
        file=study.file,
        name=study.name,
        question=study.question,
        axes=_values(dimensions),
        seeds=chosen,
        labels={key: str(label) for key, label in listed(study.sweep.labels).items()},
        compare=study.sweep.compare,
        target=study.sweep.compare.target or study.base.run.target_accuracy,
        threads=max(each if isinstance(each, int) else 1 for each in threads),
        cells=tuple(cells),
        notices=tuple(dict.fromkeys(notices)),
    )


class _Study(NamedTuple):
    """A sweep and its scenario file. fixed, unset: stated for all runs. base: the scenario without axes."""

    file: Path
    name: str
    question: str
    sweep: Sweep
    fixed: Sequence[str]
    unset: Sequence[str]
    base: Scenario


def _study(
    path: Path, fixed: Sequence[str], lists: Mapping[str, list[Any]], unset: Sequence[str], code: bool
) -> _Study:
    """Read a file: a scenario with its `[sweep]`, if any, or a sweep of another file's scenario."""
    alone = sweep_alone(path, list(filter(is_of_sweep, fixed)), list(filter(is_of_sweep, unset)))
    if alone is None:
        base = _base(path, fixed, lists, unset, code)
        return _Study(path, base.name, base.question, base.sweep or Sweep(), fixed, unset, base)
    file, sweep = alone
    fixed = [override for override in fixed if not is_of_sweep(override)]
    unset = [key for key in unset if not is_of_sweep(key)]
    base = _base(file, fixed, lists, unset, code)
    question = first_comment(read_text(path))
    return _Study(file, default_name(path), question, sweep, fixed, unset, base)


def _base(
    path: Path, fixed: Sequence[str], lists: Mapping[str, list[Any]], unset: Sequence[str], code: bool
) -> Scenario:
    """The scenario without axes; if that lacks a required key which is an axis, with the first values."""
    try:
        return load_scenario(path, fixed, unset=unset, code=code)
    except UserError:
        if not lists:
            raise
    first = [f"{key}={as_toml(values[0])}" for key, values in lists.items()]
    return load_scenario(path, [*fixed, *first], unset=unset, code=code)


def _cell(
    path: Path, fixed: Sequence[str], unset: Sequence[str], choices: Sequence[_Choice], seed: int, code: bool
) -> tuple[SweepCell, Scenario]:
    stated = (*fixed, *[override for choice in choices for override in choice.overrides])
    gone = (*unset, *[key for choice in choices for key in choice.unset])
    values = {axis: value for choice in choices for axis, value in choice.values.items()}
    try:
        scenario = load_scenario(path, stated, seed, unset=gone, code=code)
    except UserError as error:
        where = ", ".join(f"{axis} = {value}" for axis, value in values.items())
        if where:
            error.add_note(f"in the runs with {where}")
        raise
    excluded = tuple(sorted({client for choice in choices for client in choice.excluded}))
    count = scenario.clients.count
    if excluded and (excluded[-1] >= count or len(excluded) == count):
        what = f"client {excluded[-1]}" if excluded[-1] >= count else "every client"
        cases = ", ".join(
            str(value) for choice in choices if choice.excluded for value in choice.values.values()
        )
        raise UserError(f"sweep.case: {cases} excludes {what} of {count}, numbered from 0", path)
    return SweepCell(values, stated, gone, seed, digest(scenario), excluded), scenario


def _forked(cells: Sequence[SweepCell], scenarios: Sequence[Scenario]) -> list[SweepCell]:
    """The cells, each made a fork of the first cell that is the same run for some time, if there is one."""
    found: list[SweepCell] = []
    parents: list[tuple[SweepCell, Scenario]] = []
    for cell, scenario in zip(cells, scenarios, strict=True):
        for parent, parents_scenario in parents:
            moment_s = shared_until(scenario, parents_scenario)
            if moment_s is not None:
                cell = replace(cell, parent=parent.key, fork_s=moment_s)
                break
        else:
            parents.append((cell, scenario))
        found.append(cell)
    return found


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def is_of_sweep(override: str) -> bool:
    """Whether an override changes the sweep itself, and not its runs."""
    return _key(override).partition(".")[0] == "sweep"


def _require_axes(compare: Comparing, cases: Sequence[Case], axes: Mapping[str, Sequence[Value]]) -> None:
    """Refuse an axis to draw along or to leave out, or a baseline, that is none of the axes."""
    named = [("compare.by", compare.by)] if compare.by is not None else []
    named += [(f"case.{number}.without", axis) for number, case in enumerate(cases) for axis in case.without]
    for key, axis in named:
        if axis not in axes:
            there = ", ".join(axes) or "none"
            raise UserError(f"sweep.{key} = {as_toml(axis)}: no axis; must be one of {there}")
    if compare.baseline is not None:
        axis_value(compare.baseline, axes, "sweep.compare.baseline =")


def _seeds(seeds: Seeds | None, first: int) -> tuple[int, ...]:
    return seeds if isinstance(seeds, tuple) else tuple(range(first, first + (seeds or 1)))


# --- axes ---------------------------------------------------------------------------------------------------


def _dimensions(axes: Axes, lists: dict[str, list[Any]], fixed: Iterable[str]) -> list[_Choices]:
    """The lists of choices whose combinations are the runs: cases, then `zip`, then each key of `grid`."""
    stated = [*fixed, *lists]

    def is_free(key: str) -> bool:
        return not any(overlap(key, other) for other in stated)

    cases: dict[str, _Choices] = {}
    for case in axes.case:
        choice = _Choice({case.axis: case.name}, case.set, case.unset, case.excluded, case.without)
        cases.setdefault(case.axis, []).append(choice)
    together = {key: values for key, values in listed(axes.zip).items() if is_free(key)}
    grid = {key: values for key, values in listed(axes.grid).items() if is_free(key)} | lists
    rows = [_row(dict(zip(together, row, strict=True))) for row in zip(*together.values(), strict=True)]
    alone = [[_row({key: value}) for value in values] for key, values in grid.items()]
    found = [*cases.values(), *([rows] if rows else []), *alone]
    names = [axis for dimension in found for axis in dimension[0].values]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UserError(f"sweep: {twice[0]} is an axis twice")
    return found


def _combinations(dimensions: Sequence[_Choices]) -> Iterator[tuple[_Choice, ...]]:
    """One choice of each dimension: the first where a case among them leaves this axis out."""
    for choices in product(*dimensions):
        without = {axis for choice in choices for axis in choice.without}
        later = [
            choice for choice, all_of in zip(choices, dimensions, strict=True) if choice is not all_of[0]
        ]
        if not any(without & choice.values.keys() for choice in later):
            yield choices


def _narrowed(dimensions: Sequence[_Choices], only: Iterable[str]) -> list[_Choices]:
    """Only the choices that `--only` names; several values of one axis are all kept."""
    wanted: dict[str, set[str]] = {}
    for option in only:
        axis, value = axis_value(option, _values(dimensions), "--only")
        wanted.setdefault(axis, set()).add(value)

    def is_wanted(choice: _Choice) -> bool:
        return all(str(choice.values[axis]) in wanted[axis] for axis in wanted.keys() & choice.values.keys())

    narrowed = [list(filter(is_wanted, dimension)) for dimension in dimensions]
    for before, after in zip(dimensions, narrowed, strict=True):
        if not after:
            raise UserError(f"--only: no row of {', '.join(before[0].values)} has these values together")
    return narrowed


def axis_value(text: str, axes: Mapping[str, Sequence[Value]], option: str) -> tuple[str, str]:
    """The axis and the value in ``"axis=value"``, as texts. Raises UserError, which names the option."""
    axis, _, value = map(str.strip, text.partition("="))
    for each in axes.get(axis, ()):
        if value == str(each) or (type(each) is not str and _parsed(value) == each):
            return axis, str(each)
    if not axes:
        raise UserError(f"{option} {text}: there is no axis, and so no value of one")
    there = "; ".join(f"{name}={'|'.join(map(str, values))}" for name, values in axes.items())
    raise UserError(f"{option} {text}: must be axis=value, of {there}")


def _row(values: Mapping[str, Any]) -> _Choice:
    shown = {key: value if isinstance(value, Value) else as_toml(value) for key, value in values.items()}
    return _Choice(shown, tuple([f"{key}={as_toml(value)}" for key, value in values.items()]))


def _values(dimensions: Iterable[_Choices]) -> dict[str, tuple[Value, ...]]:
    found: dict[str, dict[Value, None]] = {}
    for dimension in dimensions:
        for choice in dimension:
            for axis, value in choice.values.items():
                found.setdefault(axis, {})[value] = None
    return {axis: tuple(values) for axis, values in found.items()}


def as_toml(value: Any) -> str:
    """A value as it is written after ``--set key=``."""
    return value if isinstance(value, str) and _is_plain(value) else _toml(value)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def _is_plain(text: str) -> bool:
    """Whether a text after ``--set key=`` is read as that text, and not as a number, a list, ..."""
    if not text or text != text.strip() or not text.isprintable() or "," in text:
        return False
    try:
        tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return True
    return False


def _split(overrides: Iterable[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """Overrides with one value, and by key the values of overrides that list several with commas."""
    fixed, lists = [], {}
    for override in overrides:
        key, equals, text = override.partition("=")
        values = _parts(text)
        if equals and len(values) > 1:
            if not all(values):
                raise UserError(f"--set {override}: has no value before or after a comma")
            if is_of_sweep(key):
                raise UserError(f"--set {override}: runs do not differ in what a sweep says; state one value")
            lists[key.strip()] = [_parsed(value) for value in values]
        else:
            fixed.append(override)
    return fixed, lists


def _parts(text: str) -> list[str]:
    """Split a text at its commas, but not within brackets, braces and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _parsed(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
