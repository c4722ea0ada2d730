"""Checks of a sweep without running it."""

from pathlib import Path

from sim.run.setup.checking import check
from sim.studies.cells import Plan, StatedScenario, values_added_to_errors
from sim.studies.index import axis_values_text


def check_cells(planned: Plan, data_dir: Path | None = None, *, code: bool = True) -> None:
    """Check one run of each combination of the axes' values, with the first seed. Raises UserError.

    Each run is checked as a single run is, with its clients' samples and its models.
    """
    first = {axis_values_text(cell.values): cell for cell in reversed(planned.cells)}
    for cell in reversed(first.values()):
        stated = StatedScenario(planned.file, cell.overrides, cell.unset, code)
        with values_added_to_errors(cell.values):
            check(stated.scenario(cell.seed), data_dir)
