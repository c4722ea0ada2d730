"""Checks of a sweep without running it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from sim.run.setup.checking import check
from sim.run.setup.plan import RunPlan
from sim.scenario.resolved import resolve_contents
from sim.scenario.scenario import Scenario
from sim.studies.cells import Plan, StatedScenario, SweepCell, values_added_to_errors
from sim.studies.index import Value, axis_values_text


class CheckedCell(NamedTuple):
    """A run of a sweep that can start."""

    cell: SweepCell
    scenario: Scenario
    plan: RunPlan


def checked_cells(
    planned: Plan, data_dir: Path | None = None, *, seed: int | None = None, code: bool = True
) -> Iterator[CheckedCell]:
    """Check and yield one run for each combination of the axes' values. Raises UserError.

    seed: the seed of these runs; by default, the first one of the sweep. Each run is checked like a single
    run, with its samples and its models. Afterwards, one run of each other seed is checked for each choice of
    data and of clients, because a seed may draw a partition for which a class has too few samples.
    """
    keys: dict[str, str] = {}
    for cell in planned.cells:
        if cell.seed == planned.seeds[0]:
            scenario, made = _checked(planned, cell, cell.values, seed, data_dir, code=code)
            keys[axis_values_text(cell.values)] = _data_key(scenario)
            yield CheckedCell(cell, scenario, made)
    seen: set[tuple[str, int]] = set()
    for cell in planned.cells:
        drawn = keys[axis_values_text(cell.values)], cell.seed
        if cell.seed != planned.seeds[0] and drawn not in seen:
            seen.add(drawn)
            _checked(planned, cell, {**cell.values, "seed": cell.seed}, None, data_dir, code=code)


def _checked(
    planned: Plan,
    cell: SweepCell,
    values: Mapping[str, Value],
    seed: int | None,
    data_dir: Path | None,
    *,
    code: bool,
) -> tuple[Scenario, RunPlan]:
    """Check a run; errors name the values."""
    stated = StatedScenario(planned.file, cell.overrides, cell.unset, code)
    with values_added_to_errors(values):
        scenario = stated.scenario(cell.seed if seed is None else seed)
        return scenario, check(scenario, data_dir)


def _data_key(scenario: Scenario) -> str:
    """Return a text that is equal for scenarios in which a seed draws the same samples for the clients."""
    contents = resolve_contents(scenario)
    return repr([contents["data"], contents["clients"]])
