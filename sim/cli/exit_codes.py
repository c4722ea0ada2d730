"""How commands end: their messages and exit codes, and what they show meanwhile."""

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
from sim.errors import UserError, errors_about, require_current_folder
from sim.results.frames import where_from
from sim.results.outcome import why_failed
from sim.run.interrupts import BEFORE_RESULTS, exit_code

if TYPE_CHECKING:
    from sim.run.resume.resuming import ResumableRun
    from sim.run.running import RunResult
    from sim.scenario.scenario import Scenario

FAILED, REFUSED = 1, 2
_FAILURES_SHOWN = 10
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of which Python does not say what file it is
_LINE_MAX = 2_000  # characters


@contextmanager
def exit_on_errors(file: Path | None = None) -> Iterator[None]:
    """Turn errors that the user can mend into a message without a traceback, and an exit code."""
    from sim.kernel.clock import Deadlock

    try:
        with errors_about(file):
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
        is_no_name = error.errno == errno.ENAMETOOLONG  # which each place that takes a path would have to ask
        stop(f"{error.filename}: {error.strerror}", REFUSED if is_no_name else FAILED)
    except MemoryError:
        stop("there is not enough memory: use fewer clients, smaller data or a smaller model", FAILED)
    except KeyboardInterrupt as error:
        stop(BEFORE_RESULTS, code_of(error))


@contextmanager
def heard_or_not() -> Iterator[None]:
    """Output may meet a full disk or a closed pipe, which is ignored: the run is worth more."""
    with suppress(OSError):
        yield
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # as where it is closed
                stream.flush()
        except OSError:  # what is left in its buffer must go somewhere, too
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def say(line: object, err: bool = False) -> None:
    """A line about a run, for whoever listens."""
    with heard_or_not():
        typer.echo(line, err=err)


def run_shown(
    scenario: "Scenario",
    file: Path | None = None,
    *,
    quiet: bool,
    earlier: "ResumableRun | None" = None,
    **options: Any,
) -> "RunResult":
    """Run a scenario with these `RunOptions`, and show how far it is."""
    with exit_on_errors(file):
        from sim.run import running
        from sim.run.options import RunOptions

        gc.freeze()  # what was imported lasts: the run's collections need not look at it
        if quiet:
            chosen = RunOptions(notice=partial(say, err=True), **options)
            return running.run_scenario(scenario, chosen, earlier=earlier)
        with ProgressLine(Terminal(stderr=True)) as progress:
            chosen = RunOptions(progress=progress, notice=progress.say, **options)
            return running.run_scenario(scenario, chosen, earlier=earlier)


def show(result: "RunResult") -> None:
    failures = result.summary.get("failures") or []
    with heard_or_not():
        Terminal().print(results_table(result.summary))
    for failure in failures[:_FAILURES_SHOWN]:
        say(f"failed: {failure}")
    if len(failures) > _FAILURES_SHOWN:
        say(f"and {len(failures) - _FAILURES_SHOWN} more failures, in summary.json")
    for warning in result.summary.get("warnings", ()):
        say(f"warning: {warning}", err=True)
    if traceback := result.summary.get("failure_traceback"):
        say(where_from(traceback), err=True)
    # A plain line: a path in a table would be wrapped, and could not be opened from the terminal.
    if result.directory is not None and not result.unwritten:
        say(f"report: {result.directory / 'report.html'}")


def stop_if_cut_short(result: "RunResult") -> None:
    """End with a message and an exit code if a signal or a full disk cut the run or its results short."""
    if result.unwritten:
        kept = f"the others are in {result.directory}" if result.directory else "nothing could be kept"
        stop("\n".join(["not all results could be written:", *result.unwritten, kept]), FAILED)
    if result.signal is not None:
        there = (
            "the results up to then are" if result.interrupted else "the run had ended, and its results are"
        )
        stop(f"interrupted; {there} in that directory", exit_code(result.signal))


def stop_if_failed(result: "RunResult") -> None:
    if (reason := why_failed(result.summary)) is not None:
        stop(f"the run failed: {reason}", FAILED)


def list_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and what they mean, below each other."""
    rows = list(pairs)
    width = max([len(name) for name, _ in rows], default=0)
    for name, what in rows:
        typer.echo(f"{name:<{width}}  {what}")


def code_of(error: KeyboardInterrupt) -> int:
    return exit_code(getattr(error, "number", signal.SIGINT))


def stop(message: str, code: int) -> NoReturn:
    """End with a message. A line of it may quote what somebody wrote, of any length."""
    lines = message.split("\n")
    say("\n".join([line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]}..." for line in lines]), err=True)
    raise typer.Exit(code)
