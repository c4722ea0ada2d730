"""Commands for many runs: `coterie sweep`, `compare` and `runs`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from sim.cli import options
from sim.cli.commands import app
from sim.cli.console import StatusLine, Terminal
from sim.cli.exit_codes import FAILED, echo, exit_code_of_interrupt, exit_on_errors, stop
from sim.errors import UserError, require_packages
from sim.results import outcome, text
from sim.results.measures import measure_called
from sim.run.interrupts import raise_interrupted, signals_handled_by

if TYPE_CHECKING:
    from sim.studies.comparison import Comparison
    from sim.studies.sweep import Execute, SweepProgress, SweepResult

TOGETHER_MAX = 1_000
_CLIENT_MAX = 999_999  # a scenario has a million clients at most


class Executor(StrEnum):
    processes = "processes"
    ray = "ray"


Jobs = Annotated[
    int | None,
    Option("--jobs", "-j", min=1, help="Concurrent runs; by default one per core, or one on a GPU."),
]
On = Annotated[Executor, Option(help="Executor of the runs: local processes, or Ray.")]
_Together = Annotated[
    int,
    Option(
        min=1,
        max=TOGETHER_MAX,
        metavar="N",
        help="Number of runs, with different seeds, that one process computes together; faster on a GPU.",
    ),
]
Gpus = Annotated[float | None, Option(min=0.0, help="GPUs per run on Ray; by default 1 with --device cuda.")]

_OverridesOrAxes = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE,...", help="Override a key, or run with several values: KEY=A,B."),
]
_Only = Annotated[
    list[str] | None,
    Option(metavar="AXIS=VALUE", help="Run only this value of an axis; you can repeat the option."),
]


def parsed_seeds(value: str) -> Any:
    from sim.scenario.sections.sweep import _seeds as checked

    try:
        numbers = [int(part) for part in value.removesuffix(",").split(",")]
        return checked(numbers if "," in value else numbers[0])
    except ValueError as error:
        reason = (
            str(error)
            if str(error).startswith("must")
            else "must be a number of seeds, or a list of seeds: 11,12,13 or 11,"
        )
        raise typer.BadParameter(reason) from None


_Seeds = Annotated[
    Any,
    Option(help="Number of seeds, or a list: 11,12,13, or 11, for one.", parser=parsed_seeds, metavar="N"),
]


def _clients(value: str) -> tuple[int, ...]:
    """Parse client numbers, such as ``0-3,7``."""
    found: dict[int, None] = {}
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        is_number = part.isascii() and first.isdecimal() and (not dash or last.isdecimal())
        if not is_number or not int(first) <= int(last or first) <= _CLIENT_MAX:
            raise typer.BadParameter("must be client numbers, such as 0-3,7")
        found |= dict.fromkeys(range(int(first), int(last or first) + 1))
    return tuple(found)


@app.command()
def sweep(
    file: options.ScenarioFile,
    overrides: _OverridesOrAxes = None,
    unset: options.Unset = None,
    seeds: _Seeds = None,
    only: _Only = None,
    full: Annotated[bool, Option("--full", help="Run the full form of a study, not the short one.")] = False,
    jobs: Jobs = None,
    together: _Together = 1,
    on: On = Executor.processes,
    address: options.Address = None,
    gpus: Gpus = None,
    out: options.Out = Path("runs"),
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    reports: Annotated[bool, Option("--reports", help="Keep report.html of each run.")] = False,
    checkpoints: Annotated[
        bool, Option("--checkpoints", help="Keep a checkpoint at the end of each run.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only check and list all runs.")] = False,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Run the table `sweep` of a scenario, or combinations of --set KEY=A,B and seeds.

    SCENARIO can also be the folder of an earlier sweep, which holds its study, code and options.

    To resume an interrupted sweep, repeat the command: it keeps finished runs.
    """
    with exit_on_errors(file):
        from sim.studies import sweep as sweeps
        from sim.studies.cells import plan
        from sim.studies.worker import CellOptions

        chosen: dict[str, Any] = {"unset": unset or (), "seeds": seeds, "only": only or (), "full": full}
        planned = plan(file, overrides or (), **chosen, code=not no_code)
        for notice in planned.notices:
            echo(f"{file}: {notice}", err=True)
        if dry_run:
            for cell in planned.cells:
                typer.echo(cell)
            return
        execute, at_once = executor(on, address, jobs, gpus, planned.threads, device, together)
        how = CellOptions(data_dir, device.value, not no_code, reports, checkpoints, at_once)
        with showing_sweep_progress(quiet) as line:
            result = sweeps.run_sweep(planned, out=out, how=how, execute=execute, show=line.show)
    _print_sweep(result)


def _print_sweep(result: SweepResult) -> None:
    """Print the outcome of a sweep; exit if runs failed."""
    earlier = f", {result.finished_before:,} of them earlier" if result.finished_before else ""
    finished_runs = result.cells - len(result.errors)
    echo(f"{finished_runs:,} of {result.cells:,} runs finished{earlier}: {result.directory}")
    for same in result.without_effect:
        echo(f"no effect: {same}", err=True)
    for name, reason in result.errors.items():
        echo(f"failed: {name}: {reason}", err=True)
    if result.errors:
        stop(
            f"{len(result.errors):,} of {result.cells:,} runs failed; repeat the command to run them again",
            FAILED,
        )
    if result.cells > 1:
        echo(f"compare them: coterie compare {result.directory}")


def executor(
    on: Executor,
    address: str | None,
    jobs: int | None,
    gpus: float | None,
    threads: int,
    device: options.DeviceChoice,
    together: int = 1,
) -> tuple[Execute, int | None]:
    """Return the executor of runs, and how many runs share this machine's cores (None on a cluster)."""
    if on is Executor.ray:  # the devices are those of the cluster
        if together > 1:
            raise UserError(f"--together {together}: runs compute together only with --on processes")
        from sim.studies.on_ray import ray_executor

        share = float(device is options.DeviceChoice.cuda) if gpus is None else gpus
        return ray_executor(address, threads=threads, gpus=share, jobs=jobs), None
    from sim.studies.sweep import default_jobs, process_executor

    options.refuse_address(address)
    if gpus is not None:
        raise options.needs_option("--gpus", "--on ray")
    at_once = jobs or default_jobs(threads, device.value)
    return process_executor(at_once, together), at_once


class SweepStatusLine(StatusLine):
    last = ""

    def show(self, progress: SweepProgress) -> None:
        self.last = f"{progress.finished_before + progress.done:,} of {progress.cells:,} runs"
        parts = [self.last, f"{len(progress.running)} running"]
        parts += [f"{progress.failed:,} failed"] if progress.failed else []
        if progress.remaining_s is not None:
            parts.append(f"about {text.duration(round(progress.remaining_s))} left")
        self.update(", ".join(parts), progress.share, progress.elapsed_s)


@contextmanager
def showing_sweep_progress(quiet: bool) -> Iterator[SweepStatusLine]:
    """Show the progress of many runs; if the user interrupts them, exit and say how to resume."""
    line = SweepStatusLine(Terminal(stderr=True), quiet)
    try:
        with signals_handled_by(raise_interrupted), line:
            yield line
    except KeyboardInterrupt as error:
        finished = line.last or "no runs"
        stop(f"interrupted; {finished} finished; repeat the command to resume", exit_code_of_interrupt(error))


@app.command()
def compare(
    paths: Annotated[
        list[Path], Argument(metavar="SWEEP|RUN...", help="Directory of a sweep, or directories of runs.")
    ],
    by: Annotated[
        str | None, Option(help="Axis of the study along which a further picture of each metric is drawn.")
    ] = None,
    baseline: Annotated[
        str | None, Option(metavar="AXIS=VALUE", help="Value with which the other values are compared.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        Option(
            "--metric", help="A metric, or a path in the summary such as graph.l1; you can repeat the option."
        ),
    ] = None,
    target: Annotated[
        float | None, Option(help="Target quality; adds the time, bytes and steps to reach it: 0.8.")
    ] = None,
    clients: Annotated[
        Any, Option(help="Compare only these clients: 0-3,7.", parser=_clients, metavar="NUMBERS")
    ] = None,
    labels: Annotated[
        list[str] | None,
        Option(
            "--label",
            metavar='KEY="WORDS"',
            help="Label of an axis; you can repeat the option.",
        ),
    ] = None,
    out: Annotated[
        Path | None, Option(help="Output folder; by default a folder in the sweep's directory.")
    ] = None,
) -> None:
    """Compare runs: tables and curves with 95% intervals over seeds, as HTML, CSV, LaTeX, PNG and SVG."""
    with exit_on_errors():
        require_packages("compare", "compare", "matplotlib")
        from sim.studies.comparison import Comparison
        from sim.studies.index import INDEX
        from sim.studies.pages import write_comparison
        from sim.studies.study import load_study
        from sim.studies.words import stated_labels

        study = load_study(paths, clients)
        stated = stated_labels(labels or (), [*study.axes], study.labels)
        study = replace(study, labels={**study.labels, **stated})
        comparison = Comparison(study, metrics=metrics, by=by, baseline=baseline, target=target)
        default = paths[0] / "comparison" if (paths[0] / INDEX).is_file() else Path("comparison")
        page = write_comparison(comparison, out or default)
    _print(comparison)
    typer.echo(f"page: {page}")


def _print(comparison: Comparison) -> None:
    from sim.studies.answer import answer
    from sim.studies.tables import tables_to_show

    *tables, spent = tables_to_show(comparison)
    for each in [*tables, spent] if comparison.unequal("time") else tables:
        print_table([*each.axes, *each.heads], each.rows, len(each.axes))
    for sentence in answer(comparison):
        typer.echo(sentence)
    for note in filter(None, [each.note for each in tables]):
        typer.echo(note)
    for footnote in comparison.footnotes.lines:
        typer.echo(str(footnote))
    for warning in comparison.warnings:
        typer.echo(f"warning: {warning}", err=True)


def print_table(heads: list[str], rows: list[list[str]], words: int) -> None:
    """Print aligned columns: the first `words` columns contain words, the other columns numbers."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if number < words else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())
    typer.echo()


@app.command()
def runs(
    folder: Annotated[
        Path | None, Argument(metavar="FOLDER", help="Folder of result directories; by default runs.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="The same as FOLDER; other commands also have this option.")
    ] = None,
    where: Annotated[
        list[str] | None,
        Option(metavar="COLUMN=VALUE", help="Filter of the runs: protocol=cobo, overrides~network.loss."),
    ] = None,
    sort: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Column to sort by; with -result, the best run comes first."),
    ] = None,
    as_csv: Annotated[bool, Option("--csv", help="Print CSV.")] = False,
) -> None:
    """List the runs in a folder."""
    with exit_on_errors():
        from sim.studies.footnotes import Footnotes
        from sim.studies.listing import COLUMNS, filter_and_sort_runs, runs_in

        if folder is not None and out is not None and folder != out:
            raise UserError(f"--out {out}: differs from FOLDER, {folder}; pass only FOLDER or --out")
        rows = filter_and_sort_runs(runs_in(folder or out or Path("runs")), where or (), sort)
    if as_csv:
        writer = csv.DictWriter(sys.stdout, [*COLUMNS, "measure"], lineterminator="\n")
        writer.writeheader()
        plain = [row | {"warnings": "; ".join(row["warnings"])} for row in rows]
        writer.writerows({name: text.without_formula(value) for name, value in row.items()} for row in plain)
        return
    footnotes = Footnotes({row["directory"]: [row["warnings"]] for row in rows})
    marked = [row | {"warnings": footnotes.marks(row["directory"])} for row in rows]
    print_table(list(COLUMNS), [[_cell(row, column) for column in COLUMNS] for row in marked], len(COLUMNS))
    for each in footnotes.lines:
        typer.echo(f"{each.mark} {each.text}")


def _fork_origin_text(directory: Path) -> str | None:
    """Name the parent and the time of a fork; None for other runs, and for unreadable ones."""
    from sim.results.store.run_directory import RunDirectory

    try:
        return outcome.fork_origin_text(RunDirectory(directory).provenance())
    except UserError:
        return None


def _cell(row: dict[str, Any], column: str) -> str:
    if column == "state":
        return ", ".join(filter(None, [row["state"], _fork_origin_text(Path(row["directory"]))]))
    if column != "result":
        return str(row[column])
    if row["result"] is None:
        return text.NOTHING
    return f"{row['measure']} {measure_called(row['measure']).text(row['result'])}"
