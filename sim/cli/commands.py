"""The command `coterie`. Exit codes: 0 success, 1 failed run, 2 invalid input, 128 + n ended by signal n.

A run with results counts as failed if clients or servers failed permanently, or if no final model is finite.

Modules that import torch are imported inside the commands that need them; the other commands start faster.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from sim.cli import options
from sim.cli.exit_codes import (
    FAILED,
    echo,
    exit_code_of_interrupt,
    exit_on_errors,
    list_pairs,
    run_with_progress,
    show_result,
    stop,
    stop_if_cut_short,
    stop_if_failed,
)
from sim.cli.export import export
from sim.cli.init import init
from sim.cli.pretrain import pretrain
from sim.cli.resume_commands import explain, explore, fork, resume
from sim.errors import NotVerified, UserError, require_packages
from sim.run.interrupts import raise_interrupted, signals_handled_by

if TYPE_CHECKING:
    from sim.run.running import RunResult
    from sim.scenario.scenario import Scenario

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class WorkerKind(StrEnum):
    threads = "threads"
    ray = "ray"


class ListedKind(StrEnum):
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
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Simulate decentralized collaborative learning."""


@app.command()
def run(
    file: options.ScenarioFile,
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace earlier results when the run ends.")
    ] = False,
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    on: Annotated[
        WorkerKind, Option(help="Workers that compute parts of batches: local threads, or Ray.")
    ] = WorkerKind.threads,
    address: options.Address = None,
    verify: Annotated[bool, Option("--verify", help="Run twice and compare the traces.")] = False,
    checkpoint_every: options.CheckpointEvery = None,
    checkpoint_at: Annotated[
        list[float] | None,
        Option(
            help="Virtual time of a checkpoint for later forks; you can repeat the option.", **options.TIME
        ),
    ] = None,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
    trace: options.Trace = False,
    track: options.Track = None,
    tensorboard: options.TensorBoard = False,
) -> None:
    """Run a scenario, and write results, tables and a report to a new directory.

    Your code that the scenario names, such as protocol.name or model.name = "my_file.py:Class", is executed,
    unless you pass --no-code, which rejects it.
    """
    scenario = _load(file, overrides, seed, unset, no_code)
    if scenario.sweep is not None:
        echo(f"{file}: the [sweep] is ignored, and one run starts; coterie sweep runs the sweep", err=True)
    with exit_on_errors(file):
        tracked = options.trackers(track, tensorboard, trace)
        _require_before_end(scenario, checkpoint_at or ())
    chosen: dict[str, Any] = {
        "out": out,
        "overwrite": overwrite,
        "device": device.value,
        "data_dir": data_dir,
        "checkpoint_every_s": checkpoint_every,
        "checkpoints_s": checkpoint_at or (),
    }
    with _workers(on, address) as workers:
        result = run_with_progress(scenario, file, quiet=quiet, **chosen, **workers)
    show_result(result)
    if result.directory is not None and not result.unwritten:
        with exit_on_errors(file):
            _write_exports(result.directory, trace, tracked)
    stop_if_cut_short(result)
    if verify:
        _verify(scenario, result, quiet, chosen)
    stop_if_failed(result)


@app.command()
def check(
    file: options.ScenarioFile,
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
    no_code: options.NoCode = False,
) -> None:
    """Check a scenario, its protocol and its data without running it, and print its size.

    For a sweep, also check one run for each combination of values, except those that only --full has, and the
    data of each seed.

    Your code that the scenario names, such as protocol.name or model.name = "my_file.py:Class", is executed,
    unless you pass --no-code, which rejects it.
    """
    with exit_on_errors(file):
        from sim.cli.checking import checked_scenario, checked_sweep
        from sim.learning.data.kept import keeping_last_data
        from sim.studies.cells import StatedScenario

        stated = StatedScenario(file, overrides or (), unset or (), not no_code)
        is_study = stated.of_runs()[1] is not None
    scenario = None if is_study else _load(file, overrides, seed, unset, no_code)
    with exit_on_errors(file), keeping_last_data():
        if scenario is None or scenario.sweep is not None:
            rows, notices = checked_sweep(stated, scenario, seed, data_dir)
        else:
            rows, notices = checked_scenario(scenario, data_dir)
    for notice in dict.fromkeys(notices):
        echo(f"{file}: {notice}", err=True)
    typer.echo(f"{file}: ok")
    for name, what in rows:
        typer.echo(f"  {name:<10}{what}")


@app.command()
def report(
    directory: options.Run,
    trace: options.Trace = False,
    track: options.Track = None,
    tensorboard: options.TensorBoard = False,
) -> None:
    """Write report.html of a result directory again."""
    with exit_on_errors():
        tracked = options.trackers(track, tensorboard, trace)
        from sim.results.report.page import write_report
        from sim.results.store.run_directory import load_checked

        with signals_handled_by(raise_interrupted):
            run = load_checked(directory)
            try:
                path = write_report(run)
            except OSError as error:
                stop(f"cannot write the report to {directory}: {error.strerror}", FAILED)
        typer.echo(path)
        _write_exports(directory, trace, tracked)


@app.command()
def watch(
    directory: Annotated[Path, Argument(help="Folder with results.")] = Path("runs"),
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 for any free port.")] = 8642,
) -> None:
    """Show runs and sweeps in progress on a page that only this machine can open; Ctrl-C ends it."""
    with exit_on_errors():
        require_packages("watch", "watch", "starlette", "uvicorn")
        from sim.cli.watch import listening_socket, watch_server

        with (
            listening_socket(directory, port) as listening,
            signals_handled_by(raise_interrupted),
            suppress(KeyboardInterrupt),
        ):
            host, number = listening.getsockname()
            typer.echo(f"http://{host}:{number}/")
            # Ctrl-C may come before the server awaits this coroutine.
            warnings.filterwarnings("ignore", "coroutine 'Server.serve' was never awaited")
            watch_server(directory).run(sockets=[listening])


@app.command("list")
def list_(
    what: Annotated[ListedKind, Argument(help="The kind of names to list.")],
    spaces: Annotated[
        bool, Option("--spaces", help="With protocols: list the settings that `coterie tune` searches.")
    ] = False,
) -> None:
    """List the names that scenarios can use."""
    with exit_on_errors():
        if spaces and what is not ListedKind.protocols:
            raise UserError(f"--spaces: only protocols have search spaces, not {what}")
        if spaces:
            from sim.studies.tuning.listing import space_lines

            typer.echo("\n".join(space_lines()))
            return
        listing = _listing(what)
    list_pairs(listing.items())


@app.command()
def schema(
    scenario: Annotated[
        Path | None,
        Argument(help="Scenario; the schema then includes the keys of your code that the scenario names."),
    ] = None,
    no_code: options.NoCode = False,
) -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from sim.scenario.editor_schema import for_editors
    from sim.scenario.protocol_lookup import list_settings
    from sim.scenario.schema import scenario_schema

    users = () if scenario is None else _load(scenario, None, None, None, no_code).plugins
    with exit_on_errors():
        from sim.scenario.plugin_tables import own_tables

        typer.echo(json.dumps(for_editors(scenario_schema(list_settings(), own_tables(users))), indent=2))


for _command in (resume, fork, explain, explore, export, pretrain, init):
    app.command()(_command)


@contextmanager
def _workers(on: WorkerKind, address: str | None) -> Iterator[dict[str, Any]]:
    """Return the setting of `run_scenario` for the workers; empty for the default."""
    if on is WorkerKind.threads:
        options.refuse_address(address)
        yield {}
        return
    with exit_on_errors():
        require_packages("ray", "--on ray", "ray")
        from sim.run.on_ray import workers_on_ray
    with workers_on_ray(address) as make:
        yield {"workers": make}


def _write_exports(path: Path, trace: bool, trackers: Sequence[str]) -> None:
    """Write exports of a run's results, and print their paths. Raises UserError."""
    if not (trace or trackers):
        return
    from sim.results.store.run_directory import RunDirectory

    directory = RunDirectory.load(path)
    try:
        if trace:
            from sim.results.perfetto import write_perfetto

            echo(f"trace: {write_perfetto(directory)}")
        for tracker in trackers:
            from sim.results.trackers import TrackerFailed, write_for

            try:
                echo(f"{tracker}: {write_for(tracker, directory)}")
            except TrackerFailed as error:
                stop(str(error), FAILED)
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror}") from error


def _load(
    file: Path, overrides: Sequence[str] | None, seed: int | None, unset: Sequence[str] | None, no_code: bool
) -> "Scenario":
    with exit_on_errors(file):
        from sim.scenario.scenario import load_scenario

        scenario = load_scenario(file, overrides or (), seed, unset=unset or (), code=not no_code)
    for notice in scenario.notices:
        echo(f"{file}: {notice}", err=True)
    return scenario


def _require_before_end(scenario: "Scenario", checkpoints_s: Sequence[float]) -> None:
    """Raise UserError for a checkpoint after the end of the run, which is never written."""
    from actors.settings.units import DURATION

    end_s = scenario.run.duration
    if end_s is not None and max(checkpoints_s, default=0.0) > end_s:
        late, end = DURATION.format(max(checkpoints_s)), DURATION.format(end_s)
        raise UserError(
            f"--checkpoint-at {late} is after the end of the run; must be at most run.duration ({end})"
        )


def _listing(what: ListedKind) -> dict[str, str]:
    if what is ListedKind.protocols:
        from sim.scenario.protocol_lookup import list_protocols

        return list_protocols()
    if what is ListedKind.scenarios:
        from sim.scenario.reading import scenario_files, scenario_question

        found = {str(path): scenario_question(path) for path in scenario_files()}
        if not found:
            raise UserError(f"found no scenario in {Path('scenarios').absolute()} or in coterie's source")
        return found
    from sim.learning.data.kinds import Data
    from sim.learning.models.kinds import Model
    from sim.learning.partitions.kinds import PartitionKind
    from sim.scenario.refusals import kind_descriptions

    return kind_descriptions(
        {ListedKind.datasets: Data, ListedKind.models: Model, ListedKind.partitions: PartitionKind}[what]
    )


def _verify(scenario: "Scenario", result: "RunResult", quiet: bool, chosen: dict[str, Any]) -> None:
    """Run the scenario again with these `RunOptions`, and compare the traces."""
    from sim.run.options import RunOptions
    from sim.run.verifying import verify

    if not quiet:
        echo("verifying: running the scenario again, in a separate process", err=True)
    try:
        difference = verify(scenario, result, RunOptions(**chosen))
    except KeyboardInterrupt as error:
        stop(
            "interrupted before the end of the second run; the run is not verified",
            exit_code_of_interrupt(error),
        )
    except NotVerified as error:
        stop(f"not verified: the second run could not be compared: {error}", FAILED)
    if difference is not None:
        stop(f"the second run differs: {difference}", FAILED)
    echo("verified: the second run has the same trace")
