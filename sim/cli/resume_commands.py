"""The commands about an earlier run: `resume`, `fork` and `explain`."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from sim.cli import options
from sim.cli.exit_codes import (
    exit_on_errors,
    list_pairs,
    run_shown,
    say,
    show,
    stop_if_cut_short,
    stop_if_failed,
)
from sim.errors import UserError
from sim.results.store.output_dir import forget, sync
from sim.run.interrupts import answering, raise_interrupted

if TYPE_CHECKING:
    from sim.run.resume.resuming import ResumableRun
    from sim.scenario.scenario import Scenario


def resume(
    directory: Annotated[
        Path, Argument(metavar="RUN", help="Result directory of a run, or what it would be called.")
    ],
    until: Annotated[
        str | None, Option(help='Virtual time at which it ends instead: --until "20 min".', metavar="TIME")
    ] = None,
    anyway: options.Anyway = False,
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    checkpoint_every: options.CheckpointEvery = None,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Go on with a run that was interrupted or killed, from its last checkpoint, as if it had not been.

    A run that has ended is prolonged by --until, and stays. Results of a run that was cut short are replaced.

    Of a killed live run, which cannot go on, the results are what its processes told until then.

    The copy of your code that its results have is executed, unless --no-code refuses it.
    """
    end_s = None if until is None else options.duration(until)
    with exit_on_errors(), answering(raise_interrupted):
        from sim.live.logs import left_of_live
        from sim.run.resume.resuming import ResumableRun

        if told := left_of_live(directory):
            if end_s is not None:
                raise UserError("--until: a live run cannot go on; leave it out to keep what was told")
            _put_together(told, data_dir, not no_code)
            return
        earlier = ResumableRun.find(directory)
        if end_s is not None:
            earlier.require_prolongable()
            earlier.require_later(end_s)  # else a churn behind it is what would be complained about
        changes = [] if until is None else [f"run.duration={until}"]
        scenario = earlier.scenario(changes, code=not no_code)
        earlier.require_some_left(scenario)
    settings = {"device": device.value, "data_dir": data_dir, "checkpoint_every_s": checkpoint_every}
    _go_on(earlier, scenario, quiet, anyway=anyway, **settings)


def fork(
    directory: options.Run,
    at: Annotated[float, Option(help="Virtual time after which it differs.", **options.TIME)],
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    from_toml: Annotated[
        Path | None,
        Option(
            help="TOML file with entries that are added, of churn and the like; all begin later than TIME."
        ),
    ] = None,
    anyway: options.Anyway = False,
    data_dir: options.DataDir = None,
    device: options.Device = options.DeviceChoice.auto,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Give a run another future: the same until TIME, and then with what is changed.

    What is changed must begin after TIME. It goes on from the last checkpoint that is not after TIME, see
    `coterie run --checkpoint-at`, or is computed from the start.

    The copy of your code that its results have is executed, unless --no-code refuses it.
    """
    with exit_on_errors(), answering(raise_interrupted):
        from sim.run.resume.resuming import ResumableRun

        earlier = ResumableRun.find(directory, at)
        scenario = earlier.scenario(overrides or (), unset or (), from_toml, code=not no_code)
    if earlier.checkpoint is None:
        say(f"{directory} has no checkpoint until then: it is computed from the start", err=True)
    settings = {"device": device.value, "data_dir": data_dir}
    _go_on(earlier, scenario, quiet, anyway=anyway, **settings)


def explain(
    directory: options.Run,
    at: Annotated[float, Option(help="Virtual time, after all that happens then.", **options.TIME)],
    client: Annotated[int, Option(min=0, help="Number of the client.")],
    data_dir: options.DataDir = None,
    no_code: options.NoCode = False,
) -> None:
    """Say what a client holds, waits for and has in its mailbox at a moment of a run.

    The run is replayed to that moment from its log, without tensor work.

    The copy of your code that its results have is executed, unless --no-code refuses it.
    """
    with exit_on_errors(), answering(raise_interrupted):
        from sim.run.resume.explain import explained_client

        rows = explained_client(
            directory, at, client, data_dir=data_dir, code=not no_code, notice=partial(say, err=True)
        )
    list_pairs(rows)


def _put_together(folders: list[Path], data_dir: Path | None, code: bool) -> None:
    """Write the results of killed live runs, and show them."""
    from sim.live.running import put_together

    for folder in folders:
        result = put_together(folder, data_dir=data_dir, code=code)
        show(result)
        stop_if_cut_short(result)


def _go_on(earlier: "ResumableRun", scenario: "Scenario", quiet: bool, **settings: Any) -> None:
    """Run the rest of a run, and show its results."""
    for line in earlier.unusable:
        say(f"not used: {line}", err=True)
    beside = earlier.path.parent  # what it was, hidden or not
    result = run_shown(scenario, quiet=quiet, out=beside, earlier=earlier, **settings)
    if earlier.fork_s is None and result.directory is not None and not result.unwritten:
        with suppress(OSError):  # what killed processes left goes once a power cut can take no results
            sync(result.directory)
            for folder in earlier.attempts:
                forget(folder)
    show(result)
    stop_if_cut_short(result)
    stop_if_failed(result)
