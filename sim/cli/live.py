"""The command about runs on the wall clock: `coterie live`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from sim.cli import options
from sim.cli.console import StatusLine, Terminal
from sim.cli.exit_codes import FAILED, exit_on_errors, say, show, stop, stop_if_cut_short
from sim.cli.studies import app
from sim.run.interrupts import answering, raise_interrupted

if TYPE_CHECKING:
    from sim.run.running import RunResult
    from sim.scenario.scenario import Scenario


@app.command()
def live(
    file: options.ScenarioFile,
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    seed: options.Seed = None,
    out: Annotated[Path, Option(help="Folder for result directories.")] = Path("runs"),
    overwrite: Annotated[bool, Option("--overwrite", help="Replace earlier results at the end.")] = False,
    data_dir: options.DataDir = None,
    processes: Annotated[
        int | None, Option(min=1, max=256, help="Processes that clients share; else one for each core.")
    ] = None,
    raw: Annotated[
        bool, Option("--raw", help="Add no latency, no loss and no limits; jobs take the time they take.")
    ] = False,
    against: Annotated[
        bool, Option("--against", help="Simulate the same, and say how far that is from this.")
    ] = False,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Run a scenario on the wall clock: the same clients, in processes that talk over TCP.

    Results go to a directory as those of `coterie run` do. A scenario with a [sweep] runs once for each of
    its cells; with --against and three or more, the ranking of methods is compared, too.
    """
    with exit_on_errors(file):
        from sim.live.against import ranking, verdicts
        from sim.live.coordinator import ProcessFailed

        scenarios = _scenarios(file, overrides, unset, seed, not no_code)
        summaries = []
        for scenario in scenarios:
            settings: dict[str, Any] = {"processes": processes, "raw": raw, "held_against": against}
            try:
                with answering(raise_interrupted):
                    result = _shown(scenario, quiet, out=out, overwrite=overwrite, data_dir=data_dir,
                                    code=not no_code, **settings)  # fmt: skip
            except ProcessFailed as error:
                stop(f"the run failed: {error}", FAILED)
            show(result)
            if against:
                for what, found, holds in verdicts(result.summary):
                    say(f"{'holds' if holds else 'FAILS':5}  {what}: {found}")
            if result.summary["live"]["too_busy"]:
                say(
                    "this machine was too busy for a verdict: more than 5 % of jobs or messages were late",
                    err=True,
                )
            stop_if_cut_short(result)
            if (lost := result.summary.get("ended_by")) is not None:
                stop(f"the run failed: {lost}", FAILED)
            summaries.append(result.summary)
        if against and (ranked := ranking(summaries)) is not None:
            low, high = ranked["interval"] or (float("nan"), float("nan"))
            say(f"ranking of {len(summaries)} methods: rank correlation {ranked['rank_correlation']:.2f} "
                f"(95 % interval {low:.2f} to {high:.2f})")  # fmt: skip


def _scenarios(
    file: Path, overrides: list[str] | None, unset: list[str] | None, seed: int | None, code: bool
) -> list["Scenario"]:
    from sim.scenario.scenario import load_scenario

    scenario = load_scenario(file, overrides or (), seed, unset=unset or (), code=code)
    if scenario.sweep is None:
        return [scenario]
    from sim.studies.cells import plan

    planned = plan(file, overrides or (), unset=unset or (), code=code)
    return [
        load_scenario(planned.file, cell.overrides, cell.seed, unset=cell.unset, code=code)
        for cell in planned.cells
    ]


def _shown(scenario: "Scenario", quiet: bool, **settings: Any) -> "RunResult":
    """Run it, and show how far it is."""
    from sim.live.running import run_live

    console = Terminal(stderr=True)
    with StatusLine(console, quiet) as status:
        duration_s = scenario.run.duration

        def progress(time_s: float) -> None:
            status.update(f"{time_s:.0f} of {duration_s:g} s", time_s / (duration_s or 1.0), time_s)

        return run_live(scenario, notice=status.say, on_progress=progress, **settings)
