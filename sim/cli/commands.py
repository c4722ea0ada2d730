"""The command `coterie`. Exit codes: 0 done, 1 failed run, 2 refused input, 128 + n ended by signal n.

A run with results has failed where clients failed for good, or no model at its end is finite.

Modules that import torch are imported inside the commands that need them, so that the others start at once.
"""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from sim.cli.console import ProgressLine, results_table
from sim.cli.exports import TensorBoard, Trace, require_packages, write_exports
from sim.cli.options import (
    Anyway,
    CheckpointEvery,
    DataDir,
    DeviceChoice,
    NoCode,
    Overrides,
    Quiet,
    ScenarioFile,
    Seed,
    Unset,
    duration,
)
from sim.errors import NotVerified, UserError, errors_about
from sim.results.outcome import why_failed
from sim.results.place import forget
from sim.run.interrupts import answering, exit_code, raise_interrupted

if TYPE_CHECKING:
    from sim.run.resuming import Earlier
    from sim.run.running import RunResult
    from sim.scenario.scenario import Scenario

FAILED, REFUSED = 1, 2
_FAILURES_SHOWN = 10

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Listing(StrEnum):
    """What can be listed."""

    protocols = "protocols"
    datasets = "datasets"
    models = "models"
    partitions = "partitions"
    scenarios = "scenarios"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"coterie {version('coterie')}")
        raise typer.Exit


@app.callback()
def coterie(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Simulate decentralized collaborative learning."""


@app.command()
def run(
    file: ScenarioFile,
    overrides: Overrides = None,
    unset: Unset = None,
    seed: Seed = None,
    out: Annotated[Path, typer.Option(help="Folder for result directories.")] = Path("runs"),
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace earlier results of the same scenario, once this run is finished."
        ),
    ] = False,
    data_dir: DataDir = None,
    device: Annotated[DeviceChoice, typer.Option(help="Where to compute.")] = DeviceChoice.auto,
    verify: Annotated[bool, typer.Option("--verify", help="Run twice and compare the traces.")] = False,
    checkpoint_every: CheckpointEvery = None,
    checkpoint_at: Annotated[
        list[float] | None,
        typer.Option(
            help="Virtual time of a checkpoint that stays, to fork from; may be repeated.",
            parser=duration,
            metavar="TIME",
        ),
    ] = None,
    quiet: Quiet = False,
    no_code: NoCode = False,
    trace: Trace = False,
    tensorboard: TensorBoard = False,
) -> None:
    """Run a scenario: results, tables and a report go to a directory of its own.

    What it names of yours, such as protocol.name or model.name = "my_file.py:Class", is executed, unless
    --no-code refuses it.
    """
    scenario = _load(file, overrides, seed, unset, no_code)
    if scenario.sweep is not None:
        typer.echo(f"{file}: this is one run, without its [sweep]; coterie sweep runs that", err=True)
    with endings(file):
        require_packages(tensorboard)
        from sim.run import running as runs

        settings: dict[str, Any] = {"device": device.value, "data_dir": data_dir}
        with _progress(quiet) as progress:
            result = runs.run_scenario(
                scenario,
                out=out,
                overwrite=overwrite,
                progress=progress,
                notice=_notice(progress),
                checkpoint_every_s=checkpoint_every,
                checkpoints_s=checkpoint_at or (),
                **settings,
            )
    _show(result)
    if result.directory is not None and not result.unwritten:
        with endings(file):
            write_exports(result.directory, trace, tensorboard)
    _stop_if_cut_short(result)
    if verify:
        _verify(scenario, result, settings, quiet)
    _stop_if_failed(result)


@app.command()
def resume(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="Result directory of a run, or what it would be called.")
    ],
    until: Annotated[
        str | None,
        typer.Option(help='Virtual time at which it ends instead: --until "20 min".', metavar="TIME"),
    ] = None,
    anyway: Anyway = False,
    data_dir: DataDir = None,
    device: Annotated[DeviceChoice, typer.Option(help="Where to compute.")] = DeviceChoice.auto,
    checkpoint_every: CheckpointEvery = None,
    quiet: Quiet = False,
    no_code: NoCode = False,
) -> None:
    """Go on with a run that was interrupted or killed, from its last checkpoint, as if it had not been.

    A run that has ended is prolonged by --until, and stays. Results of a run that was cut short are replaced.
    """
    with endings(), answering(raise_interrupted):
        from sim.run.resuming import Earlier

        earlier = Earlier.find(directory)
        changes = [] if until is None else [f"run.duration={until}"]
        scenario = earlier.scenario(changes, code=not no_code)
        earlier.require_some_left(scenario)
    settings = {"device": device.value, "data_dir": data_dir, "checkpoint_every_s": checkpoint_every}
    _go_on(earlier, scenario, directory.parent, quiet, anyway=anyway, **settings)


@app.command()
def fork(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="Result directory of a run.")],
    at: Annotated[
        float,
        typer.Option(help="Virtual time after which it is another run.", parser=duration, metavar="TIME"),
    ],
    overrides: Overrides = None,
    unset: Unset = None,
    from_toml: Annotated[
        Path | None,
        typer.Option(help="TOML file with entries that are added: [[churn]] and the like, later than TIME."),
    ] = None,
    anyway: Anyway = False,
    data_dir: DataDir = None,
    device: Annotated[DeviceChoice, typer.Option(help="Where to compute.")] = DeviceChoice.auto,
    quiet: Quiet = False,
    no_code: NoCode = False,
) -> None:
    """Give a run another future: the same until TIME, and then with what is changed.

    What is changed must begin after TIME. It goes on from the last checkpoint that is not after TIME, see
    `coterie run --checkpoint-at`, or is computed from the start.
    """
    with endings(), answering(raise_interrupted):
        from sim.run.resuming import Earlier

        earlier = Earlier.find(directory, at)
        scenario = earlier.scenario(overrides or (), unset or (), from_toml, code=not no_code)
    if earlier.checkpoint is None:
        typer.echo(f"{directory} has no checkpoint until then: it is computed from the start", err=True)
    settings = {"device": device.value, "data_dir": data_dir}
    _go_on(earlier, scenario, directory.parent, quiet, anyway=anyway, **settings)


@app.command()
def explain(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="Result directory of a run.")],
    at: Annotated[
        float,
        typer.Option(
            help="Virtual time, after everything that happens then.", parser=duration, metavar="TIME"
        ),
    ],
    client: Annotated[int, typer.Option(min=0, help="Number of the client.")],
    data_dir: DataDir = None,
    no_code: NoCode = False,
) -> None:
    """Say what a client holds, waits for and has in its mailbox at a moment of a run.

    The run is walked through to that moment by its log, without tensor work.
    """
    with endings(), answering(raise_interrupted):
        from sim.run.explaining import explained_client

        rows = explained_client(directory, at, client, data_dir=data_dir, code=not no_code)
    width = max(len(name) for name, _ in rows)
    for name, what in rows:
        typer.echo(f"{name:<{width}}  {what}")


def _go_on(earlier: "Earlier", scenario: "Scenario", out: Path, quiet: bool, **settings: Any) -> None:
    """Run what is left of a run, and say what came of it."""
    with endings():
        from sim.run import running as runs

        with _progress(quiet) as progress:
            result = runs.run_scenario(
                scenario, out=out, progress=progress, notice=_notice(progress), earlier=earlier, **settings
            )
    if earlier.is_hidden and earlier.fork_s is None and result.directory is not None and not result.unwritten:
        forget(earlier.path)
    _show(result)
    _stop_if_cut_short(result)
    _stop_if_failed(result)


def _stop_if_failed(result: "RunResult") -> None:
    if (reason := why_failed(result.summary)) is not None:
        stop(f"the run failed: {reason}", FAILED)


@app.command()
def check(
    file: ScenarioFile,
    overrides: Overrides = None,
    unset: Unset = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    no_code: NoCode = False,
) -> None:
    """Check a scenario, its protocol and its data without running it, and say what it comes to.

    What it names of yours, such as protocol.name or model.name = "my_file.py:Class", is executed, unless
    --no-code refuses it.
    """
    scenario = _load(file, overrides, seed, unset, no_code)
    with endings(file):
        from sim.cli.outline import outline
        from sim.run.building import check as check_parts

        rows = outline(scenario, check_parts(scenario, data_dir))
        if scenario.sweep is not None:
            from sim.studies.cells import plan

            forms = [
                (full, plan(file, overrides or (), unset=unset or (), full=full)) for full in (False, True)
            ]
            counts = [f"{len(form.cells):,} runs{' with --full' * full}" for full, form in forms]
            rows.append(("sweep", ", ".join(dict.fromkeys(counts))))
    typer.echo(f"{file}: ok")
    for name, what in rows:
        typer.echo(f"  {name:<10}{what}")


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="Result directory of a run.")],
    trace: Trace = False,
    tensorboard: TensorBoard = False,
) -> None:
    """Write report.html of a result directory anew."""
    with endings():
        require_packages(tensorboard)
        from sim.results.checks import fitting_together, load_checked
        from sim.results.report import write_report

        with answering(raise_interrupted):
            run = load_checked(directory)
            try:
                with fitting_together(run):
                    path = write_report(run)
            except OSError as error:
                stop(f"cannot write the report to {directory}: {error.strerror}", FAILED)
        typer.echo(path)
        write_exports(directory, trace, tensorboard)


@app.command()
def watch(
    directory: Annotated[Path, typer.Argument(help="Folder with results.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any that is free.")] = 8642,
) -> None:
    """Show runs and sweeps while they run, on a page for this machine alone; Ctrl-C ends it."""
    with endings():
        from sim.cli.watch import server_of

        with server_of(directory, port) as server, suppress(KeyboardInterrupt):
            typer.echo(f"http://{server.server_address[0]!s}:{server.server_port}/")
            server.serve_forever()


@app.command("list")
def list_(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List what scenarios can name."""
    with endings():
        listing = _listing(what)
    width = max(map(len, listing), default=0)
    for name, meaning in listing.items():
        typer.echo(f"{name:<{width}}  {meaning}")


@app.command()
def schema(
    scenario: Annotated[
        Path | None, typer.Argument(help="With the keys of your own code that this scenario names.")
    ] = None,
    no_code: NoCode = False,
) -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from sim.scenario.editor_schema import for_editors
    from sim.scenario.protocol_loader import find_protocol, list_protocols
    from sim.scenario.schema import scenario_schema

    users = () if scenario is None else _load(scenario, None, None, None, no_code).users_code
    with endings():
        from sim.scenario.own_sections import own_tables

        known = {name: find_protocol(name).Settings for name in list_protocols()}
        typer.echo(json.dumps(for_editors(scenario_schema(known, own_tables(users))), indent=2))


def _load(
    file: Path, overrides: list[str] | None, seed: int | None, unset: list[str] | None, no_code: bool
) -> "Scenario":
    with endings(file):
        from sim.scenario.scenario import load_scenario

        scenario = load_scenario(file, overrides or (), seed, unset=unset or (), code=not no_code)
    for notice in scenario.notices:
        typer.echo(f"{file}: {notice}", err=True)
    return scenario


def _listing(what: Listing) -> dict[str, str]:
    if what is Listing.protocols:
        from sim.scenario.protocol_loader import list_protocols

        return list_protocols()
    if what is Listing.scenarios:
        from sim.scenario.reading import question_of, scenario_files

        found = {str(path): question_of(path) for path in scenario_files()}
        if not found:
            raise UserError(
                f"there is no scenario in {Path('scenarios').absolute()}, nor beside coterie's source"
            )
        return found
    from sim.learning.data import Data
    from sim.learning.models import Model
    from sim.learning.partitions import PartitionKind
    from sim.scenario.refusals import kinds_of

    return kinds_of({Listing.datasets: Data, Listing.models: Model, Listing.partitions: PartitionKind}[what])


def _verify(scenario: "Scenario", result: "RunResult", settings: dict[str, Any], quiet: bool) -> None:
    from sim.run import running as runs

    if not quiet:
        typer.echo("verifying: running it once more, in a process of its own", err=True)
    try:
        difference = runs.verify(scenario, result, **settings)
    except KeyboardInterrupt as error:
        stop("interrupted before the second run had ended; nothing is verified", code_of(error))
    except NotVerified as error:
        stop(f"not verified: the second run could not be compared: {error}", FAILED)
    if difference is not None:
        stop(f"the second run differs: {difference}", FAILED)
    typer.echo("verified: the second run has the same trace")


def _progress(quiet: bool) -> Any:
    return nullcontext() if quiet else ProgressLine(Console(stderr=True))


def _notice(progress: ProgressLine | None) -> Callable[[str], None]:
    """Where to say things while a run goes on: above the bar, if there is one."""
    return (lambda line: typer.echo(line, err=True)) if progress is None else progress.say


def _stop_if_cut_short(result: "RunResult") -> None:
    """End with what a signal or the disk did to a run and its results."""
    if result.unwritten:
        kept = f"the others are in {result.directory}" if result.directory else "nothing could be kept"
        stop("\n".join(["not all results could be written:", *result.unwritten, kept]), FAILED)
    if result.signal is not None:
        there = (
            "the results up to then are" if result.interrupted else "the run had ended, and its results are"
        )
        stop(f"interrupted; {there} in that directory", exit_code(result.signal))


def code_of(error: KeyboardInterrupt) -> int:
    return exit_code(getattr(error, "number", signal.SIGINT))


def _show(result: "RunResult") -> None:
    console = Console()
    console.print(results_table(result.summary))
    failures = result.summary.get("failures") or []
    for failure in failures[:_FAILURES_SHOWN]:
        console.print(f"failed: {failure}", markup=False, highlight=False, soft_wrap=True)
    if len(failures) > _FAILURES_SHOWN:
        console.print(f"and {len(failures) - _FAILURES_SHOWN} more failures, in summary.json")
    for warning in result.summary.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)
    if traceback := result.summary.get("failure_traceback"):
        typer.echo(f"where the first one came from:\n{traceback}", err=True)
    # A plain line: a path in a table would be wrapped, and could not be opened from the terminal.
    if result.directory is not None and not result.unwritten:
        typer.echo(f"report: {result.directory / 'report.html'}")


@contextmanager
def endings(file: Path | None = None) -> Iterator[None]:
    """Turn what is the user's to mend into one message without a traceback, and the right exit code."""
    from sim.kernel.clock import Deadlock

    try:
        with errors_about(file):
            yield
    except UserError as error:
        stop("\n".join([str(error), *getattr(error, "__notes__", ())]), REFUSED)
    except Deadlock as error:
        stop("\n".join([f"the run failed: {error}", *getattr(error, "__notes__", ())]), FAILED)
    except KeyboardInterrupt as error:
        stop("interrupted before there were results", code_of(error))


def stop(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    app()
