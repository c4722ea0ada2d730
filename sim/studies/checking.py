"""Checks of a sweep without running it."""

from collections.abc import Iterable
from pathlib import Path

from sim.run.setup.checking import check
from sim.studies.cells import Plan, StatedScenario, SweepCell, values_added_to_errors
from sim.studies.index import axis_values_text


def cells_to_check(planned: Plan) -> list[SweepCell]:
    """Return the run with the first seed of each combination of the axes' values."""
    first = {axis_values_text(cell.values): cell for cell in reversed(planned.cells)}
    return [*reversed(first.values())]


def check_cells(
    planned: Plan, cells: Iterable[SweepCell], data_dir: Path | None = None, *, code: bool = True
) -> None:
    """Check runs of a sweep like single runs, with their samples and their models. Raises UserError."""
    for cell in cells:
        stated = StatedScenario(planned.file, cell.overrides, cell.unset, code)
        with values_added_to_errors(cell.values):
            check(stated.scenario(cell.seed), data_dir)
