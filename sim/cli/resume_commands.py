"""Commands for an earlier run: `resume`, `fork`, `explain` and `explore`."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from sim.cli import options
from sim.cli.exit_codes import (
    FAILED,
    echo,
    exit_on_errors,
    list_pairs,
    run_with_progress,
    show_result,
    stop,
    stop_if_cut_short,
    stop_if_failed,
)
from sim.errors import UserError
from sim.results.store.output_dir import remove_hidden_folder, sync
from sim.run.interrupts import raise_interrupted, signals_handled_by

if TYPE_CHECKING:
    from sim.run.resume.resuming import ResumableRun
    from sim.scenario.scenario import Scenario

_WINDOWS = 8  # periods of training that `explain --made-of` lists by default


def resume(
    directory: Annotated[
        Path, Argument(metavar="RUN", help="Result directory of a run, even if it does not exist yet.")
    ],
    until: Annotated[
        str | None, Option(help='New virtual end time of the run: --until "20 min".', metavar="TIME")
    ] = None,
    anyway: options.Anyway = False,
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    checkpoint_every: options.CheckpointEvery = None,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Resume an interrupted or killed run from its last checkpoint, as if it had not stopped.

    --until extends a finished run, and keeps its results. Results of an interrupted run are replaced.

    A killed live run cannot continue: its results are written from the events that its processes reported.

    The copy of your code in the results is executed, unless you pass --no-code, which rejects it.
    """
    end_s = None if until is None else options.parse_duration(until)
    with exit_on_errors(), signals_handled_by(raise_interrupted):
        from sim.live.logs import logs_of_killed_runs
        from sim.run.resume.resuming import ResumableRun

        if folders := logs_of_killed_runs(directory):
            continuing = {"--until": end_s, "--checkpoint-every": checkpoint_every, "--anyway": anyway}
            for option in [option for option, value in continuing.items() if value not in (None, False)]:
                raise UserError(f"{option}: a live run cannot continue; remove {option} to write its results")
            if device is options.DeviceChoice.cuda:
                raise UserError("--device cuda: live runs compute on CPUs; must be auto or cpu")
            _write_results(folders, data_dir, not no_code)
            return
        earlier = ResumableRun.find(directory)
        if end_s is not None:
            earlier.require_extensible()
            earlier.require_later(end_s)  # first, as a churn event after it would be reported otherwise
        changes = [] if until is None else [f"run.duration={until}"]
        scenario = earlier.scenario(changes, code=not no_code)
        earlier.require_unfinished(scenario)
    settings = {"device": device.value, "data_dir": data_dir, "checkpoint_every_s": checkpoint_every}
    _continue(earlier, scenario, quiet, anyway=anyway, **settings)


def fork(
    directory: options.Run,
    at: Annotated[float, Option(help="Virtual time at which the fork starts to differ.", **options.TIME)],
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    from_toml: Annotated[
        Path | None,
        Option(help="TOML file with additional entries, such as churn; all must start after TIME."),
    ] = None,
    without: Annotated[
        list[str] | None,
        Option(help="Client that crashes right after TIME and does not return; may be repeated."),
    ] = None,
    anyway: options.Anyway = False,
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Fork a run: repeat it until TIME, and continue with changed settings.

    Changes must start after TIME. The fork continues from the last checkpoint at or before TIME (see
    `coterie run --checkpoint-at`), or is computed from the start.

    The copy of your code in the results is executed, unless you pass --no-code, which rejects it.
    """
    with exit_on_errors(), signals_handled_by(raise_interrupted):
        from sim.run.resume.resuming import ResumableRun

        earlier = ResumableRun.find(directory, at)
        scenario = earlier.scenario(
            overrides or (), unset or (), from_toml, without=without or (), code=not no_code
        )
    start = "" if earlier.checkpoint is None else f", from the checkpoint at {earlier.time_s:g} s"
    echo(f"fork of {earlier.name} at {at:g} s{start}", err=True)
    if earlier.checkpoint is None:
        echo(f"{directory} has no checkpoint at or before --at: the fork runs from the start", err=True)
    if not (overrides or unset or from_toml or without):
        echo("nothing is changed, so the fork repeats the run", err=True)
    settings = {"device": device.value, "data_dir": data_dir}
    _continue(earlier, scenario, quiet, anyway=anyway, **settings)


def explain(
    directory: options.Run,
    client: Annotated[str, Option(help="Number or name of the client: 4 or client-4.")],
    at: Annotated[
        float | None,
        Option(
            help="Virtual time; all events of that time are included. By default, the end of the run.",
            **options.TIME,
        ),
    ] = None,
    made_of: Annotated[
        bool,
        Option(
            "--made-of",
            help="Instead, print how much the training of each client contributed to the model of --client.",
        ),
    ] = False,
    windows: Annotated[
        int | None,
        Option(
            min=1,
            max=100,
            help=f"Number of equal periods of training that --made-of lists; by default {_WINDOWS}.",
        ),
    ] = None,
    data_dir: options.DataDir = None,
    no_code: options.NoCode = False,
) -> None:
    """Print a client's state, the event that it waits for, and its mailbox at a virtual time of a run.

    --made-of prints the lineage of its model: the shares of all clients' training in it.

    The run is replayed to that time from its log, without tensor work.

    The copy of your code in the results is executed, unless you pass --no-code, which rejects it.
    """
    if windows is not None and not made_of:
        raise options.needs_option("--windows", "--made-of")
    with exit_on_errors(), signals_handled_by(raise_interrupted):
        settings: dict[str, Any] = {"data_dir": data_dir, "code": not no_code}
        settings["notice"] = partial(echo, err=True)
        if made_of:
            from sim.run.resume.lineage import lineage_of
            from sim.run.resume.model_sources import model_source_lines
            from sim.world.participants import client_number

            found = lineage_of(directory, at, client, windows=windows or _WINDOWS, **settings)
            for line in model_source_lines(found, client_number(client, found.names)):
                echo(line)
            return
        from sim.run.resume.explain import explained_client

        rows = explained_client(directory, at, client, **settings)
    list_pairs(rows)


def explore(
    directory: options.Run,
    fork: Annotated[
        Path | None,
        Argument(
            metavar="FORK", help="Second run, with the same past, such as a fork of the run; shown beside it."
        ),
    ] = None,
    at: Annotated[
        float | None, Option(help="Virtual time that the page shows first.", **options.TIME)
    ] = None,
    client: Annotated[
        str | None, Option(help="Number or name of the client that the page shows first.", metavar="CLIENT")
    ] = None,
    no_replay: Annotated[
        bool,
        Option(
            "--no-replay",
            help="Leave out the contributions of clients' training to the models; executes no code.",
        ),
    ] = False,
    data_dir: options.DataDir = None,
    no_code: options.NoCode = False,
) -> None:
    """Write explore.html, a page in which you step through a run in virtual time; it needs no server.

    With FORK, both runs are shown side by side in step, with their first difference marked. The page is then
    written into the folder of FORK.

    If a run has over 500,000 messages, the page has all messages around --at, and only counts of the others.

    The run is replayed, without tensor work, for the lineage of its models. The copy of your code in the
    results is executed for the replay, unless you pass --no-code, which rejects it, or --no-replay.
    """
    with exit_on_errors(), signals_handled_by(raise_interrupted):
        from sim.run.resume.exploring import explore_run

        settings: dict[str, Any] = {
            "data_dir": data_dir,
            "code": not no_code,
            "notice": partial(echo, err=True),
        }
        try:
            settings |= {"beside": fork, "made_of": not no_replay}
            path = explore_run(directory, at_s=at, client=client, **settings)
        except OSError as error:
            stop(f"cannot write the page to {fork or directory}: {error.strerror}", FAILED)
    echo(path)


def _write_results(folders: list[Path], data_dir: Path | None, code: bool) -> None:
    """Write the results of killed live runs, and show them."""
    from sim.live.running import results_of_killed

    for folder in folders:
        result = results_of_killed(folder, data_dir=data_dir, code=code)
        show_result(result)
        stop_if_cut_short(result)


def _continue(earlier: "ResumableRun", scenario: "Scenario", quiet: bool, **settings: Any) -> None:
    """Continue a run to its end, and show its results."""
    for line in earlier.unusable:
        echo(f"not used: {line}", err=True)
    beside = earlier.path.parent  # the folder of the earlier run, also if that is hidden
    result = run_with_progress(scenario, quiet=quiet, out=beside, earlier=earlier, **settings)
    if earlier.fork_s is None and result.directory is not None and not result.unwritten:
        with suppress(OSError):  # remove files of killed processes once the new results are on disk
            sync(result.directory)
            for folder in earlier.attempts:
                remove_hidden_folder(folder)
    show_result(result)
    stop_if_cut_short(result)
    stop_if_failed(result)
