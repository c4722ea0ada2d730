"""The small study, run once."""

from collections.abc import Callable

import pytest

from sim.studies.cells import Plan, plan
from sim.studies.sweep import SweepResult, run_sweep
from sim.studies.worker import CellResult, CellTask, run_cells
from tests.studies.worlds import study


def here(
    tasks: list[CellTask],
    ran: Callable[[CellTask, CellResult], None],
    look: Callable[[tuple[float, ...]], None],
) -> None:
    """Run tasks in this process, one after the other."""
    for task in tasks:
        ran(task, *run_cells([task]))
        look(())


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, SweepResult]:
    """The study's plan, and what running it gave."""
    folder = tmp_path_factory.mktemp("study")
    planned = plan(study(folder))
    return planned, run_sweep(planned, out=folder / "runs", execute=here)
