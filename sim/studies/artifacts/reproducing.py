"""Repetition of an archive's runs, and comparison of its figures with the repeated figures."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from sim.errors import UserError
from sim.results.store.output_dir import CELL
from sim.results.store.run_directory import RunDirectory
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from sim.studies.artifacts.archive import FileList, PackedRun, unpack
from sim.studies.artifacts.compared_tables import ComparedTable, compared_tables
from sim.studies.artifacts.figures import ComparedFigure, compare_figures, conditions_of_values
from sim.studies.artifacts.packing import RUNS
from sim.studies.artifacts.verdict import Verdict
from sim.studies.cells import SweepCell
from sim.studies.index import INDEX, SweepIndex
from sim.studies.sweep import Execute
from sim.studies.worker import CellOptions, CellResult, CellTask

ARCHIVE, RESULT = "archive", "reproduction.json"
SAMPLE = 3
"""Number of runs that are repeated by default."""


@dataclass(frozen=True)
class Repetition:
    """A run, and its figures next to the figures of its repetition. error: why there is no repetition."""

    run: str
    figures: tuple[ComparedFigure, ...] = ()
    error: str | None = None
    environment: tuple[str, ...] = ()
    """Differences between both runs in code, libraries, data and processor."""

    @property
    def verdict(self) -> Verdict:
        found = {figure.verdict for figure in self.figures}
        if self.error is not None or Verdict.different in found:
            return Verdict.different
        return Verdict.chance if Verdict.chance in found else Verdict.equal


@dataclass
class Reproduction:
    """An unpacked archive, and its repeated runs. skipped: reasons by run that cannot be repeated.

    tables: the tables of the archive's comparisons, compared with the tables computed from its runs.
    """

    folder: Path
    files: FileList
    chosen: list[PackedRun]
    skipped: dict[str, str]
    code: list[str]
    created: tuple[Path, ...] = ()
    """Folders that did not exist before, the innermost first."""
    repeated: list[Repetition] = field(default_factory=list)
    tables: list[ComparedTable] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all runs and tables."""
        is_equal = all(table.verdict == Verdict.equal for table in self.tables)
        return self.verdict_of_runs if is_equal else Verdict.different

    @property
    def verdict_of_runs(self) -> Verdict:
        """The worst verdict of all repeated runs."""
        found = {each.verdict for each in self.repeated}
        order = (Verdict.different, Verdict.chance, Verdict.equal)
        return next((verdict for verdict in order if verdict in found), Verdict.different)

    @property
    def packed(self) -> Path:
        """Folder of the unpacked archive."""
        return self.folder / ARCHIVE

    @property
    def result(self) -> Path:
        """File with all figures."""
        return self.folder / RESULT


def free_folder(archive: Path) -> Path:
    """Return the default folder of a reproduction: `reproduced-<name>`, with a number if it has files."""
    names = (f"reproduced-{archive.stem}{'' if number == 1 else f'-{number}'}" for number in count(1))
    return next(folder for folder in map(Path, names) if _is_free(folder))


def _is_free(folder: Path) -> bool:
    return not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir()))


def open_archive(archive: Path, folder: Path, runs: int | None = SAMPLE) -> Reproduction:
    """Unpack an archive into a new folder, and choose `runs` of its runs, or all.

    Raises UserError, and then leaves no folder.
    """
    if not _is_free(folder):
        raise UserError(f"--out {folder}: must be a new or an empty folder")
    created = tuple([each for each in (folder, *folder.parents) if not each.exists()])
    with _removing_if_refused(folder, created):
        files = unpack(archive, folder / ARCHIVE)
        code = [name for name in files.files if name.endswith(".py")]
        able, skipped = [], {}
        for run in files.runs:
            reason = _unrepeatable_reason(folder / ARCHIVE / RUNS / run.directory)
            if reason is None:
                able.append(run)
            else:
                skipped[run.directory] = reason
        if not able:
            why = "".join(f"\n{name}: {reason}" for name, reason in skipped.items())
            raise UserError(f"{archive}: no run of the archive can be repeated{why}")
    chosen = able if runs is None else choose_spread_runs(able, _settings(folder / ARCHIVE), runs)
    return Reproduction(folder, files, chosen, skipped, code, created)


def choose_spread_runs(
    runs: Sequence[PackedRun], settings: Mapping[str, Mapping[str, object]], size: int
) -> list[PackedRun]:
    """Return `size` of the runs, spread over all axes and seeds.

    Each further run is the first of the runs whose values have been chosen least often. settings: values on
    the axes, by folder of the run; for a run without values, `PackedRun.alike` counts.
    """
    keys = [[("seed", run.seed), *settings.get(run.directory, {"alike": run.alike}).items()] for run in runs]
    used: Counter[tuple[str, object]] = Counter()
    waiting, chosen = [(0, number) for number in range(len(runs))], list[int]()
    while waiting and len(chosen) < size:
        before, number = heappop(waiting)
        now = sum(used[key] for key in keys[number])
        if now > before:  # counts only grow, so the first run with an unchanged count has the least
            heappush(waiting, (now, number))
        else:
            chosen.append(number)
            used.update(keys[number])
    return [runs[number] for number in sorted(chosen)]


def _settings(packed: Path) -> dict[str, dict[str, object]]:
    """Return the values of the runs of an archive's sweeps on their axes, by folder of the run."""
    found = {}
    for index in sorted((packed / RUNS).glob(f"*/{INDEX}")):
        with suppress(UserError):  # the tables of its comparison name the damage
            for cell in SweepIndex.read(index.parent).cells:
                if cell.directory is not None:
                    found[cell.directory] = dict[str, object](cell.values)
    return found


@contextmanager
def _removing_if_refused(folder: Path, created: Sequence[Path]) -> Iterator[None]:
    """Remove the unpacked archive, and the folders created for it, if this block raises a UserError."""
    try:
        yield
    except UserError:
        shutil.rmtree(folder / ARCHIVE, ignore_errors=True)
        with suppress(OSError):  # another program has added files
            for each in created:
                if each.exists():
                    each.rmdir()
        raise


def _unrepeatable_reason(path: Path) -> str | None:
    """Return why a run cannot be repeated from its scenario alone. Raises UserError for damaged results."""
    summary = RunDirectory.load(path).summary()
    if "live" in summary:
        return "a live run, whose wall-clock times differ in each repetition"
    if not summary["finished"]:
        return "the run is unfinished"
    if summary.get("fork") and not (path / CELL).is_file():  # forks of a sweep equal the whole run
        return "a fork, whose parent has other settings"
    return None


def repeat(
    made: Reproduction,
    how: CellOptions,
    execute: Execute,
    *,
    tolerance: float,
    show: Callable[[int, tuple[float, ...]], object] = lambda done, running: None,
) -> None:
    """Run the chosen runs again, and compare their figures with the archive's. Raises UserError.

    The tables of the archive's comparisons are compared, too. Scenarios are read first, so that code is
    refused before any run.
    """
    with _removing_if_refused(made.folder, made.created):
        tasks = {run.directory: _task(made, run, how) for run in made.chosen}
    made.tables = compared_tables(made.packed)
    results: dict[str, CellResult] = {}

    def add(task: CellTask, result: CellResult) -> None:
        results[task.out.name] = result

    def show_running(running: tuple[float, ...]) -> None:
        show(len(results), running)

    execute(list(tasks.values()), add, show_running)
    for run in made.chosen:
        made.repeated.append(
            _compare_repetition(made, run, tasks[run.directory].out, results.get(run.directory), tolerance)
        )
    _write(made)


def _task(made: Reproduction, run: PackedRun, how: CellOptions) -> CellTask:
    folder = made.packed / RUNS / run.directory
    if how.code:
        _import_packages(folder)
    scenario = load_scenario(folder / "scenario.toml", code=how.code)
    cell = SweepCell(values={}, seed=scenario.run.seed, overrides=(), unset=(), key=digest(scenario))
    return CellTask(folder / "scenario.toml", cell, made.folder / RUNS / run.directory, how)


def _import_packages(folder: Path) -> None:
    """Make Python find the copies of packages that a scenario names, after those that are installed."""
    for copy in sorted(folder.iterdir()):
        is_package = copy.is_dir() and not any(copy.glob("*.py")) and any(copy.glob("*/*.py"))
        if is_package and str(copy.absolute()) not in sys.path:
            sys.path.append(str(copy.absolute()))


def _compare_repetition(
    made: Reproduction, run: PackedRun, out: Path, result: CellResult | None, tolerance: float
) -> Repetition:
    if result is None or result.directory is None or result.error is not None:
        error = "the run left no results" if result is None else result.error
        return Repetition(run.directory, error=error or "the run left no results")
    published = RunDirectory.load(made.packed / RUNS / run.directory)
    reproduced = RunDirectory.load(out / result.directory)
    others = [
        RunDirectory.load(made.packed / RUNS / each.directory).summary()
        for each in made.files.runs
        if each.alike == run.alike
    ]
    figures = compare_figures(published, reproduced, others, tolerance=tolerance)
    return Repetition(run.directory, tuple(figures), None, tuple(_differences(published, reproduced)))


def _differences(published: RunDirectory, reproduced: RunDirectory) -> list[str]:
    (first, cpu), (second, other_cpu) = conditions_of_values(published), conditions_of_values(reproduced)
    first, second = ({} if not isinstance(each, Mapping) else dict(each) for each in (first, second))
    both = [("the processor", cpu, other_cpu)]
    both += [(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]
    return [f"{name}: {one} when published, {two} here" for name, one, two in both if one != two]


def _write(made: Reproduction) -> None:
    """Write all figures as JSON. Raises UserError."""
    content: dict[str, Any] = {
        "verdict": made.verdict,
        "skipped": made.skipped,
        "tables": [
            {"table": each.name, "verdict": each.verdict, "differences": each.differences}
            for each in made.tables
        ],
        "runs": [
            {
                "run": each.run,
                "verdict": each.verdict,
                "error": each.error,
                "environment": each.environment,
                "figures": [vars(figure) for figure in each.figures],
            }
            for each in made.repeated
        ],
    }
    try:
        made.result.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {made.result}: {error.strerror}") from None
