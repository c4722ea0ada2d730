"""Checks of a sweep without running it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sim.run.setup.checking import check
from sim.run.setup.plan import RunPlan
from sim.scenario.scenario import Scenario
from sim.studies.cells import Plan, StatedScenario, SweepCell, values_added_to_errors


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
    run, with its samples and its models.
    """
    for cell in planned.cells:
        if cell.seed == planned.seeds[0]:
            stated = StatedScenario(planned.file, cell.overrides, cell.unset, code)
            with values_added_to_errors(cell.values):
                scenario = stated.scenario(cell.seed if seed is None else seed)
                made = check(scenario, data_dir)
            yield CheckedCell(cell, scenario, made)
