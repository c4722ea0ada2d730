"""Commands for archives of studies: `coterie pack` and `coterie reproduce`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from sim.cli import options
from sim.cli.console import Terminal
from sim.cli.exit_codes import FAILED, echo, exit_on_errors, stop
from sim.cli.studies import Executor, Jobs, SweepStatusLine, executor, print_table
from sim.cli.tuning import app
from sim.errors import UserError, one_line
from sim.results import text
from sim.run.interrupts import raise_interrupted, signals_handled_by
from sim.studies.artifacts.verdict import Verdict

if TYPE_CHECKING:
    from sim.studies.artifacts.reproducing import Repetition, Reproduction

_SHOWN = 10  # figures of a run, or values of tables, that are not equal


@app.command()
def pack(
    study: Annotated[
        Path,
        Argument(metavar="STUDY", help="Folder of a sweep, of several runs, or of one run."),
    ],
    out: Annotated[
        Path | None, Option(help="The archive to write; by default the folder's name with .zip.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an earlier archive.")] = False,
    reports: Annotated[bool, Option("--reports", help="Include the pages of the runs.")] = False,
    no_events: Annotated[
        bool, Option("--no-events", help="Leave out the tables of all messages, which are large.")
    ] = False,
    no_data: Annotated[bool, Option("--no-data", help="Leave out data files that scenarios name.")] = False,
    license_: Annotated[
        str | None, Option("--license", help="License of the archive: a name such as CC-BY-4.0, or a URL.")
    ] = None,
    source: Annotated[
        str | None,
        Option(
            metavar="URL", help="Where readers get coterie's source, if their package index lacks coterie."
        ),
    ] = None,
) -> None:
    """Write an archive of a study for a reviewer: scenarios, code, results, versions, and a README.

    Removed: the folders of absolute paths in values, and, from all texts but code, the names of the machine
    and of your user account. Not removed, but named in a warning: absolute paths, e-mail addresses, and your
    name in git's settings, in your code, comments and other texts, and names of the machine in your code.
    """
    with exit_on_errors():
        from sim.studies.artifacts.packing import UNLICENSED, PackOptions, pack

        license_ = license_ or UNLICENSED
        chosen = PackOptions(
            reports=reports,
            events=not no_events,
            data=not no_data,
            license=license_,
            source=source,
            overwrite=overwrite,
        )
        packed = pack(study, out, chosen)
    for each in packed.left_out:
        echo(f"left out: {each}", err=True)
    for each in packed.warnings:
        echo(f"warning: may identify you or this machine: {each}", err=True)
    for name, reason in packed.unrepeatable.items():
        echo(f"warning: cannot be repeated: {name}: {reason}", err=True)
    count, size = len(packed.files.runs), packed.path.stat().st_size
    echo(f"{count:,} run{'s' * (count != 1)}, {text.size(size)}: {packed.path}")
    if packed.files.missing:
        echo(packed.files.missing_text)
    if packed.source is None:
        echo("the README does not say where to get coterie; state it with --source URL", err=True)
    if len(packed.unrepeatable) < count:
        echo(f"reproduce it: coterie reproduce {packed.path}")


@app.command()
def reproduce(
    archive: Annotated[Path, Argument(metavar="ARCHIVE", help="Archive that `coterie pack` wrote.")],
    runs: Annotated[
        int | None,
        Option(min=1, metavar="N", help="Number of runs to repeat, those with code first; by default 3."),
    ] = None,
    all_: Annotated[bool, Option("--all", help="Repeat all runs.")] = False,
    out: Annotated[
        Path | None,
        Option(help="New folder for the unpacked archive and the results; by default reproduced-ARCHIVE."),
    ] = None,
    tolerance: Annotated[
        float,
        Option(
            min=0.0,
            help="Relative difference that always counts as chance; with three or more seeds, the range can "
            "be wider.",
        ),
    ] = 0.02,
    jobs: Jobs = None,
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Repeat runs of an archive, and state for each figure whether it is equal, within chance, or not equal.

    The tables of the archive's comparison must equal the tables computed from the archived runs.

    Exit codes: 0 if all figures are equal or within chance and all tables are equal, 1 if not, 2 if the
    archive is refused.

    Code in the archive is executed if a repeated run names it. --no-code rejects an archive if any of its
    runs needs such code.
    """
    with exit_on_errors():
        from sim.studies.artifacts import reproducing
        from sim.studies.sweep import SweepProgress
        from sim.studies.worker import CellOptions

        if all_ and runs is not None:
            raise UserError("--runs and --all exclude each other; pass only one of them")
        execute, at_once = executor(Executor.processes, None, jobs, None, 1, device)
        folder = reproducing.free_folder(archive) if out is None else out
        count = None if all_ else runs or reproducing.SAMPLE
        made = reproducing.open_archive(archive, folder, count, code=not no_code)
        if executed := made.executed_code:
            echo(f"executes code of the archive: {', '.join(executed)}", err=True)
        how = CellOptions(data_dir, device.value, not no_code, at_once=at_once)
        started_s, total = time.perf_counter(), len(made.chosen)
        with signals_handled_by(raise_interrupted), SweepStatusLine(Terminal(stderr=True), quiet) as line:

            def show(done: int, running: tuple[float, ...]) -> None:
                elapsed_s = time.perf_counter() - started_s
                line.show(SweepProgress(total, 0, done, 0, running, elapsed_s))

            reproducing.repeat(made, how, execute, tolerance=tolerance, show=show)
    _print(made)
    if made.verdict == Verdict.different:
        stop("the archive is not reproduced", FAILED)


def _print(made: Reproduction) -> None:
    from sim.studies.index import axis_values_text

    rows = [[each.run, one_line(axis_values_text(each.values), 200), *_cells(each)] for each in made.repeated]
    print_table(["run", "values", "trace", "figures equal", "within chance", "not equal", "verdict"], rows, 3)
    for each in made.repeated:
        for line in _details(each):
            echo(f"{each.run}: {line}")
    for name, reason in made.skipped.items():
        echo(f"not repeated: {name}: {reason}", err=True)
    differences = [
        f"{table.name}: {each}: {table.verdict}" for table in made.tables for each in table.differences
    ]
    for line in differences[:_SHOWN]:
        echo(line)
    if made.tables:
        equal = sum(each.verdict == Verdict.equal for each in made.tables)
        are = "equal to those" if len(made.tables) > 1 else "equal to that"
        echo(f"tables: {equal:,} of {len(made.tables):,} {are} computed from the archived runs")
    if made.files.missing:
        echo(f"{made.files.missing_text} from the archive")
    verdict = made.verdict_of_runs
    count = sum(each.verdict == verdict for each in made.repeated)
    repeated = text.counted(len(made.repeated), "repeated run")
    archived = text.counted(len(made.files.runs), "run")
    are = "is" if count == 1 else "are"
    echo(f"{count:,} of {repeated} {are} {verdict}; the archive has {archived}; all figures: {made.result}")


def _cells(each: Repetition) -> list[str]:
    verdicts = [str(figure.verdict) for figure in each.figures]
    counts = [str(verdicts.count(kind)) for kind in Verdict]
    return [verdicts[0] if verdicts else text.NOTHING, *counts, each.verdict]


def _details(each: Repetition) -> list[str]:
    """Return how a repeated run differs: an error, its environment, and figures that are not equal."""
    if each.error is not None:
        return [f"the repetition failed: {each.error}"]
    unequal = [one for one in each.figures if one.verdict != Verdict.equal]
    others = [one for one in unequal if one.name != "trace_hash"]
    others.sort(key=lambda figure: figure.verdict != Verdict.different)
    lines = [*(each.environment if each.verdict != Verdict.equal else ()), *map(str, others[:_SHOWN])]
    more = len(others) - _SHOWN
    return lines + ([f"and {text.counted(more, 'more figure')}"] if more > 0 else [])
