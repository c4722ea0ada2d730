"""Repetition of an archive's runs, and comparison of its figures with the repeated figures."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from sim.errors import UserError, one_line
from sim.results.store.run_directory import RunDirectory
from sim.results.text import counted
from sim.scenario.plugin_tables import named_code
from sim.scenario.reading import toml_tables
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from sim.studies.artifacts.archive import RUNS, FileList, PackedRun, unpack
from sim.studies.artifacts.compared_tables import ComparedTable, compared_tables
from sim.studies.artifacts.figures import ComparedFigure, compare_figures, conditions_of_values
from sim.studies.artifacts.sample import choose_spread_runs, unrepeatable_reason
from sim.studies.artifacts.verdict import Verdict
from sim.studies.cells import SweepCell
from sim.studies.index import INDEX, SweepIndex, Value, plugin_names
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
    values: Mapping[str, Value] = field(default_factory=dict)
    """Values on the axes of the sweep, and the seed."""
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
    values: dict[str, dict[str, Value]] = field(default_factory=dict)
    """Values of the archive's runs on the axes of its sweeps, by folder of the run."""
    named: dict[str, dict[str, str]] = field(default_factory=dict)
    """Names of the authors' code in the scenarios of the runs, by folder of the run and key."""
    created: tuple[Path, ...] = ()
    """Folders that did not exist before, the innermost first."""
    repeated: list[Repetition] = field(default_factory=list)
    tables: list[ComparedTable] = field(default_factory=list)

    @property
    def executed_code(self) -> list[str]:
        """The archive's files that the chosen runs execute, and names of code that is none of these files."""
        found: dict[str, None] = {}
        for run in self.chosen:
            if names := self.named.get(run.directory):
                folder = f"{RUNS}/{run.directory}/"
                own = [each for each in self.files.files if each.startswith(folder) and each.endswith(".py")]
                found |= dict.fromkeys(own)
                found |= dict.fromkeys(
                    one_line(each, 200) for each in names.values() if not _is_in(each, own)
                )
        return list(found)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all runs and tables."""
        is_equal = all(table.verdict == Verdict.equal for table in self.tables)
        return self.verdict_of_runs if is_equal else Verdict.different

    @property
    def verdict_of_runs(self) -> Verdict:
        """The worst verdict of all repeated runs; "not equal" if no run was repeated."""
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


def _is_in(name: str, files: Sequence[str]) -> bool:
    """Return whether one of the files has the code of a name: "my.py:Net" or "package.module:Net"."""
    source = name.rpartition(":")[0]
    module = source.replace(".", "/")
    places = (source,) if source.endswith(".py") else (f"{module}.py", f"{module}/__init__.py")
    return any(file.endswith(f"/{place}") for file in files for place in places)


def free_folder(archive: Path) -> Path:
    """Return the default folder of a reproduction: `reproduced-<name>`, with a number if it has files."""
    names = (f"reproduced-{archive.stem}{'' if number == 1 else f'-{number}'}" for number in count(1))
    return next(folder for folder in map(Path, names) if _is_free(folder))


def _is_free(folder: Path) -> bool:
    return not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir()))


def open_archive(
    archive: Path, folder: Path, runs: int | None = SAMPLE, *, code: bool = True
) -> Reproduction:
    """Unpack an archive into a new folder, and choose `runs` of its runs, or all; nothing is executed.

    code=False rejects an archive if any of its runs needs code of the authors. Raises UserError, and then
    leaves no folder.
    """
    if not _is_free(folder):
        raise UserError(f"--out {folder}: must be a new or an empty folder")
    created = tuple([each for each in (folder, *folder.parents) if not each.exists()])
    with _removing_if_refused(folder, created):
        files = unpack(archive, folder / ARCHIVE)
        named = {run.directory: _named_code(folder / ARCHIVE / RUNS / run.directory) for run in files.runs}
        if not code:
            _require_no_code(archive, files, named)
        able, skipped = [], {}
        for run in files.runs:
            reason = unrepeatable_reason(folder / ARCHIVE / RUNS / run.directory)
            if reason is None:
                able.append(run)
            else:
                skipped[run.directory] = reason
        if not able:
            why = "".join(f"\n{name}: {reason}" for name, reason in skipped.items())
            raise UserError(f"{archive}: no run of the archive can be repeated{why}")
    values = _values(folder / ARCHIVE)
    code_of = {run: names.values() for run, names in named.items()}
    chosen = able if runs is None else choose_spread_runs(able, values, runs, code_of)
    return Reproduction(folder, files, chosen, skipped, values, named, created)


def _values(packed: Path) -> dict[str, dict[str, Value]]:
    """Return the values of the runs of an archive's sweeps on their axes, by folder of the run.

    Code of the authors is named as in tables.
    """
    found: dict[str, dict[str, Value]] = {}
    for index in sorted((packed / RUNS).glob(f"*/{INDEX}")):
        with suppress(UserError):  # the tables of its comparison name the damage
            cells = SweepIndex.read(index.parent).cells
            axes = dict.fromkeys(axis for cell in cells for axis in cell.values)
            names = {
                axis: plugin_names(
                    list(dict.fromkeys(cell.values[axis] for cell in cells if axis in cell.values))
                )
                for axis in axes
            }
            for cell in cells:
                if cell.directory is not None:
                    found[cell.directory] = {
                        axis: names[axis].get(value, value) for axis, value in cell.values.items()
                    }
    return found


def _named_code(run: Path) -> dict[str, str]:
    """Return the names of the authors' code in the scenario of a run, by key."""
    with suppress(UserError):  # an unreadable scenario executes nothing; repeating it names the damage
        return named_code(toml_tables(run / "scenario.toml"))
    return {}


def _require_no_code(archive: Path, files: FileList, named: Mapping[str, Mapping[str, str]]) -> None:
    """Reject an archive with runs that need code of the authors. Raises UserError."""
    if not (needing := [run.directory for run in files.runs if named.get(run.directory)]):
        return
    [(key, name), *_] = named[needing[0]].items()
    total = counted(len(files.runs), "run")
    needs = "needs" if len(needing) == 1 else "need"
    such = one_line(f'{needing[0]}, {key} = "{name}"', 200)
    problem = f"{len(needing):,} of {total} {needs} Python code that does not come with coterie"
    raise UserError(f"{archive}: {problem}, which --no-code forbids: {such}")


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
    values = {**made.values.get(run.directory, {}), "seed": run.seed}
    if result is None or result.directory is None or result.error is not None:
        error = "the run left no results" if result is None else result.error
        return Repetition(run.directory, error=error or "the run left no results", values=values)
    published = RunDirectory.load(made.packed / RUNS / run.directory)
    reproduced = RunDirectory.load(out / result.directory)
    others = [
        RunDirectory.load(made.packed / RUNS / each.directory).summary()
        for each in made.files.runs
        if each.alike == run.alike
    ]
    figures = compare_figures(published, reproduced, others, tolerance=tolerance)
    return Repetition(run.directory, tuple(figures), None, values, tuple(_differences(published, reproduced)))


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
                "values": dict(each.values),
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
