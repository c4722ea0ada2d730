"""Axes of a sweep: their values, and the combinations of the values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from sim.errors import UserError
from sim.scenario.overrides import overlap
from sim.scenario.sections.sweep import Axes, lists_by_key
from sim.studies.index import Value, axis_values_text, plugin_names
from sim.studies.option_values import as_toml, is_of_sweep, override_key, parsed, split_at_commas
from sim.studies.words import axis_named

SEED_KEY = "run.seed"


class AxisChoice(NamedTuple):
    """One value of an axis, or one value each of several axes that change together.

    overrides, unset: changes to the scenario. excluded: clients that do not count in comparisons. without:
    axes of which it uses only the first value.
    """

    values: dict[str, Value]
    overrides: tuple[str, ...]
    unset: tuple[str, ...] = ()
    excluded: tuple[int, ...] = ()
    without: tuple[str, ...] = ()


Choices = list[AxisChoice]


def dimensions_of(axes: Axes, lists: dict[str, list[Any]], fixed: Iterable[str]) -> list[Choices]:
    """Return lists of choices, to be combined: cases, then `zip`, then each key of `grid`."""
    stated = [*fixed, *lists]

    def is_free(key: str) -> bool:
        return not any(overlap(key, other) for other in stated)

    cases: dict[str, Choices] = {}
    for case in axes.case:
        choice = AxisChoice({case.axis: case.name}, case.set, case.unset, case.excluded, case.without)
        cases.setdefault(case.axis, []).append(choice)
    together = {key: values for key, values in lists_by_key(axes.zip).items() if is_free(key)}
    grid = {key: values for key, values in lists_by_key(axes.grid).items() if is_free(key)} | lists
    rows = [
        axis_choice(dict(zip(together, row, strict=True))) for row in zip(*together.values(), strict=True)
    ]
    alone = [[axis_choice({key: value}) for value in values] for key, values in grid.items()]
    found = [*cases.values(), *([rows] if rows else []), *alone]
    names = [axis for dimension in found for axis in dimension[0].values]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UserError(f"sweep: two axes have the name {twice[0]}; rename or remove one")
    for dimension in found:
        values = [choice.values for choice in dimension]
        if again := [each for number, each in enumerate(values) if each in values[:number]]:
            raise UserError(
                f"sweep: {axis_values_text(again[0])} appears twice; values of an axis must differ"
            )
    return found


def combinations(dimensions: Sequence[Choices]) -> Iterator[tuple[AxisChoice, ...]]:
    """Yield one choice of each dimension, only the first one of axes that a chosen case leaves out."""
    for choices in product(*dimensions):
        without = {axis for choice in choices for axis in choice.without}
        later = [
            choice for choice, all_of in zip(choices, dimensions, strict=True) if choice is not all_of[0]
        ]
        if not any(without & choice.values.keys() for choice in later):
            yield choices


def narrowed(dimensions: Sequence[Choices], only: Iterable[str], labels: Mapping[str, str]) -> list[Choices]:
    """Keep the choices that `--only` names by axis or label; several values of one axis are allowed."""
    wanted: dict[str, set[str]] = {}
    axes = axis_values(dimensions)
    for option in only:
        name, equals, value = map(str.strip, option.partition("="))
        axis, value = parse_axis_value(f"{axis_named(name, axes, labels)}{equals}{value}", axes, "--only")
        wanted.setdefault(axis, set()).add(value)

    def is_wanted(choice: AxisChoice) -> bool:
        return all(str(choice.values[axis]) in wanted[axis] for axis in wanted.keys() & choice.values.keys())

    narrowed = [list(filter(is_wanted, dimension)) for dimension in dimensions]
    for before, after in zip(dimensions, narrowed, strict=True):
        if not after:
            raise UserError(f"--only: no run has this combination of values of {', '.join(before[0].values)}")
    return narrowed


def parse_axis_value(text: str, axes: Mapping[str, Sequence[Value]], option: str) -> tuple[str, str]:
    """Parse ``"axis=value"`` into texts. Raises UserError with the name of the option."""
    axis, _, value = map(str.strip, text.partition("="))
    names = {axis: plugin_names(values) for axis, values in axes.items()}
    for each in axes.get(axis, ()):
        called = value in (str(each), names[axis].get(each))
        if called or (type(each) is not str and parsed(value) == each):
            return axis, str(each)
    if not axes:
        raise UserError(f"{option} {text}: the runs have no axes; omit it")
    known = "; ".join(
        f"{axis}={'|'.join(str(names[axis].get(value, value)) for value in values)}"
        for axis, values in axes.items()
    )
    raise UserError(f"{option} {text}: must be an axis and one of its values: {known}")


def axis_choice(values: Mapping[str, Any]) -> AxisChoice:
    shown = {key: value if isinstance(value, Value) else as_toml(value) for key, value in values.items()}
    return AxisChoice(shown, tuple([f"{key}={as_toml(value)}" for key, value in values.items()]))


def axis_values(dimensions: Iterable[Choices]) -> dict[str, tuple[Value, ...]]:
    found: dict[str, dict[Value, None]] = {}
    for dimension in dimensions:
        for choice in dimension:
            for axis, value in choice.values.items():
                found.setdefault(axis, {})[value] = None
    return {axis: tuple(values) for axis, values in found.items()}


def split_lists(overrides: Iterable[str]) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the overrides with one value, and by key the values of overrides that list several."""
    fixed, lists = [], {}
    for override in overrides:
        key, equals, text = override.partition("=")
        values = split_at_commas(text)
        if equals and len(values) > 1:
            if not all(values):
                raise UserError(f"--set {override}: a value is missing before or after a comma")
            if is_of_sweep(key):
                raise UserError(f"--set {override}: keys of [sweep] apply to all runs; give one value")
            if override_key(key) == SEED_KEY:
                raise UserError(f"--set {override}: seeds are no axis; pass --seeds {','.join(values)}")
            lists[key.strip()] = [parsed(value) for value in values]
        else:
            fixed.append(override)
    return fixed, lists
