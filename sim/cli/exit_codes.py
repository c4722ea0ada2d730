"""Messages and exit codes at the end of commands, and the output during a run."""

import errno
import gc
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from sim.cli.console import ProgressLine, Terminal, results_table
from sim.errors import UserError, naming_file_in_errors, require_current_folder
from sim.results.frames import failure_origin_text
from sim.results.outcome import why_failed
from sim.results.store.output_dir import REPORT
from sim.results.text import counted
from sim.run.interrupts import BEFORE_RESULTS, exit_code

if TYPE_CHECKING:
    from sim.run.resume.resuming import ResumableRun
    from sim.run.running import RunResult
    from sim.scenario.scenario import Scenario

FAILED, REFUSED = 1, 2
_FAILURES_SHOWN = 10
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors for which Python does not name the file
_LINE_MAX = 2_000  # characters


@contextmanager
def exit_on_errors(file: Path | None = None) -> Iterator[None]:
    """Turn errors that the user can correct into a message without a traceback, and an exit code."""
    from sim.kernel.clock import Deadlock

    try:
        with naming_file_in_errors(file):
            require_current_folder()
            yield
    except UserError as error:
        stop("\n".join([str(error), *getattr(error, "__notes__", ())]), REFUSED)
    except Deadlock as error:
        stop("\n".join([f"the run failed: {error}", *getattr(error, "__notes__", ())]), FAILED)
    except OSError as error:
        if error.filename is None:
            if error.errno not in _FULL:
                raise
            stop(f"cannot write: {error.strerror}", FAILED)
        is_invalid_name = error.errno == errno.ENAMETOOLONG  # checked here for all options with a path
        stop(f"{error.filename}: {error.strerror}", REFUSED if is_invalid_name else FAILED)
    except MemoryError:
        stop("not enough memory: use fewer clients, smaller data or a smaller model", FAILED)
    except KeyboardInterrupt as error:
        stop(BEFORE_RESULTS, exit_code_of_interrupt(error))


@contextmanager
def ignoring_output_errors() -> Iterator[None]:
    """Ignore errors of output, such as a full disk or a closed pipe, so that the run continues."""
    with suppress(OSError):
        yield
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # None if it is closed
                stream.flush()
        except OSError:  # discard the contents of its buffer
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def echo(line: object, err: bool = False) -> None:
    """Print a line about a run; ignore output errors."""
    with ignoring_output_errors():
        typer.echo(line, err=err)


def run_with_progress(
    scenario: "Scenario",
    file: Path | None = None,
    *,
    quiet: bool,
    earlier: "ResumableRun | None" = None,
    **options: Any,
) -> "RunResult":
    """Run a scenario with these `RunOptions`, and show its progress."""
    with exit_on_errors(file):
        from sim.run import running
        from sim.run.options import RunOptions

        gc.freeze()  # imported objects stay alive: the run's collections skip them
        if quiet:
            chosen = RunOptions(notice=partial(echo, err=True), **options)
            return running.run_scenario(scenario, chosen, earlier=earlier)
        with ProgressLine(Terminal(stderr=True)) as progress:
            chosen = RunOptions(progress=progress, notice=progress.print, **options)
            return running.run_scenario(scenario, chosen, earlier=earlier)


def show_result(result: "RunResult") -> None:
    failures = result.summary.get("failures") or []
    with ignoring_output_errors():
        Terminal().print(results_table(result.summary))
    for failure in failures[:_FAILURES_SHOWN]:
        echo(f"failed: {failure}")
    if len(failures) > _FAILURES_SHOWN:
        more = counted(len(failures) - _FAILURES_SHOWN, "more failure")
        echo(f"and {more}, see summary.json")
    for warning in result.summary.get("warnings", ()):
        echo(f"warning: {warning}", err=True)
    if traceback := result.summary.get("failure_traceback"):
        echo(failure_origin_text(traceback), err=True)
    # A plain line: a table would wrap the path, and terminals could not open it.
    if result.directory is not None and not result.unwritten:
        report = result.directory / REPORT
        echo(f"report: {report}" if report.is_file() else f"results: {result.directory}")


def stop_if_cut_short(result: "RunResult") -> None:
    """End with a message and an exit code if a signal or a full disk cut the run or its results short."""
    if result.unwritten:
        kept = f"the others are in {result.directory}" if result.directory else "no result could be saved"
        stop("\n".join(["not all results could be written:", *result.unwritten, kept]), FAILED)
    if result.signal is not None:
        which = "the results so far" if result.interrupted else "the run had ended, and its results"
        stop(f"interrupted; {which} are in that directory", exit_code(result.signal))


def stop_if_failed(result: "RunResult") -> None:
    if (reason := why_failed(result.summary)) is not None:
        stop(f"the run failed: {reason}", FAILED)


def list_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and descriptions in two columns."""
    rows = list(pairs)
    width = max([len(name) for name, _ in rows], default=0)
    for name, what in rows:
        typer.echo(f"{name:<{width}}  {what}")


def exit_code_of_interrupt(error: KeyboardInterrupt) -> int:
    return exit_code(getattr(error, "number", signal.SIGINT))


def stop(message: str, code: int) -> NoReturn:
    """Exit with a message, and shorten its lines, which may quote user input of any length."""
    lines = message.split("\n")
    echo(
        "\n".join([line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]}..." for line in lines]), err=True
    )
    raise typer.Exit(code)
