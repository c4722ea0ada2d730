"""Checks of a sweep without running it."""

from pathlib import Path

from sim.run.setup.checking import check
from sim.studies.cells import Plan, StatedScenario, values_added_to_errors


def check_cells(planned: Plan, data_dir: Path | None = None, *, code: bool = True) -> None:
    """Check the run with the first seed for each combination of the axes' values. Raises UserError.

    Each run is checked like a single run, with its samples and its models.
    """
    for cell in planned.cells:
        if cell.seed == planned.seeds[0]:
            stated = StatedScenario(planned.file, cell.overrides, cell.unset, code)
            with values_added_to_errors(cell.values):
                check(stated.scenario(cell.seed), data_dir)
