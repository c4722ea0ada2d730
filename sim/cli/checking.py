"""Checks of a scenario, or of the runs of a sweep, with the lines that `coterie check` prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sim.cli.exit_codes import echo
from sim.cli.outline import outline, setting_notices
from sim.errors import UserError
from sim.results import text
from sim.run.setup.checking import check
from sim.scenario.scenario import Scenario
from sim.studies.cells import StatedScenario, plan
from sim.studies.checking import checked_cells
from sim.studies.index import axis_values_text

_CELLS_ANNOUNCED = 20  # checks of this many combinations take seconds


class Checked(NamedTuple):
    """Result of a check: (label, text) rows, and notices."""

    rows: list[tuple[str, str]]
    notices: list[str]


def checked_scenario(scenario: Scenario, data_dir: Path | None) -> Checked:
    """Check a scenario. Raises UserError."""
    made = check(scenario, data_dir)
    return Checked(outline(scenario, made), setting_notices(scenario, made))


def checked_sweep(
    stated: StatedScenario, alone: Scenario | None, seed: int | None, data_dir: Path | None
) -> Checked:
    """Check one run for each combination of values of a sweep. Raises UserError.

    alone: the scenario without its sweep, if the file holds one; it need not be valid. seed: the seed of
    these runs; by default, the first one of the sweep. The rows are those of the first combination, and the
    number of runs.
    """
    short, whole = [
        plan(stated.file, stated.overrides, unset=stated.unset, full=full, code=stated.code)
        for full in (False, True)
    ]
    combinations = sum(cell.seed == short.seeds[0] for cell in short.cells)
    if combinations >= _CELLS_ANNOUNCED:
        echo(f"{stated.file}: checking {combinations:,} combinations of values", err=True)
    rows: list[tuple[str, str]] = []
    found: dict[str, list[str]] = {}
    for cell, scenario, made in checked_cells(short, data_dir, seed=seed, code=stated.code):
        rows = rows or outline(scenario, made)
        for notice in setting_notices(scenario, made):
            found.setdefault(notice, []).append(axis_values_text(cell.values))
    more = f", {len(whole.cells):,} with --full" if len(whole.cells) != len(short.cells) else ""
    rows.append(("sweep", f"{text.counted(len(short.cells), 'run')}{more}"))
    notices = [
        notice if len(of) == combinations else f"{notice} (in the runs with {_first_of(of)})"
        for notice, of in found.items()
    ]
    return Checked(rows, [*notices, *short.notices, *_notices_alone(alone, data_dir)])


def _notices_alone(scenario: Scenario | None, data_dir: Path | None) -> list[str]:
    """Return a notice if `coterie run`, which ignores the sweep, cannot run a scenario."""
    if scenario is None:
        return []
    try:
        check(scenario, data_dir)
    except UserError as error:
        return [f"coterie run, which ignores the [sweep], refuses this file: {error.problem}"]
    return []


def _first_of(combinations: Sequence[str]) -> str:
    others = len(combinations) - 1
    if not others:
        return combinations[0]
    return f"{combinations[0]}, and with {others:,} other combination{'s' if others > 1 else ''} of values"
