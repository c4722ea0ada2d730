"""Commands for runs in wall-clock time: `coterie live` and `coterie calibrate`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from sim.cli import options
from sim.cli.artifacts import app
from sim.cli.console import StatusLine, Terminal
from sim.cli.exit_codes import FAILED, echo, exit_on_errors, show_result, stop, stop_if_cut_short
from sim.errors import UserError
from sim.run.interrupts import raise_interrupted, signals_handled_by

if TYPE_CHECKING:
    from sim.live.running import LiveOptions, Machines
    from sim.run.options import RunOptions
    from sim.run.running import RunResult
    from sim.scenario.scenario import Scenario


@app.command()
def live(
    file: options.ScenarioFile,
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace earlier results when the run ends.")
    ] = False,
    data_dir: options.DataDir = None,
    processes: Annotated[
        int | None, Option(min=1, max=256, help="Processes that clients share; by default one per core.")
    ] = None,
    raw: Annotated[
        bool, Option("--raw", help="Do not emulate latency, loss or limits; jobs take their real time.")
    ] = False,
    against: Annotated[
        bool, Option("--against", help="Also simulate the scenario, and report the differences.")
    ] = False,
    hosts: Annotated[
        Path | None,
        Option(help="File that lists the machines of the run; each machine runs the same command."),
    ] = None,
    host: Annotated[str | None, Option(help="Name of this machine in --hosts.")] = None,
    certificates: Annotated[Path | None, Option(help="Folder of certificates for several machines.")] = None,
    make_certificates: Annotated[
        Path | None, Option(help="Write certificates for all --hosts to a new folder, and exit.")
    ] = None,
    quiet: options.Quiet = False,
    no_code: options.NoCode = False,
) -> None:
    """Run a scenario in wall-clock time: the same clients, in processes that communicate over TCP.

    Results go to a directory, as with `coterie run`. A scenario with a sweep runs once for each cell; with
    --against and three or more cells, the ranking of methods is also compared.
    """
    with exit_on_errors(file):
        from sim.live.coordinator import ProcessFailed
        from sim.live.running import LiveOptions, join_live
        from sim.run.options import RunOptions

        scenarios = _scenarios(file, overrides, unset, seed, not no_code)
        if make_certificates is not None:
            echo(_make_certificates(make_certificates, hosts))
            return
        machines = _machines(hosts, host, certificates, processes)
        try:
            with signals_handled_by(raise_interrupted):
                if machines is not None and not machines.coordinates:
                    for scenario in scenarios:
                        join_live(scenario, machines, raw=raw, data_dir=data_dir, code=not no_code)
                    return
                chosen = LiveOptions(
                    processes=processes, machines=machines, raw=raw, held_against=against, code=not no_code
                )
                results = RunOptions(out=out, overwrite=overwrite, data_dir=data_dir)
                _run_all(scenarios, quiet, results, chosen)
        except ProcessFailed as error:
            stop(f"the run failed: {error}", FAILED)


@app.command()
def calibrate(
    file: options.ScenarioFile,
    out: Annotated[Path, Option(help="The scenario file to write.")],
    overrides: options.Overrides = None,
    unset: options.Unset = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
    processes: Annotated[
        int | None, Option(min=1, max=256, help="Processes that compute at once; by default one per core.")
    ] = None,
    no_code: options.NoCode = False,
) -> None:
    """Measure this machine, and write a copy of the scenario with matching devices and network."""
    with exit_on_errors(file):
        import tomli_w

        from sim.live import calibrate as measuring
        from sim.scenario.scenario import load_scenario

        scenario = load_scenario(file, overrides or (), seed, unset=unset or (), code=not no_code)
        if out.exists():
            raise UserError(f"--out {out}: already exists; move it, or name another file")
        if not out.parent.is_dir():
            raise UserError(f"--out {out}: the folder {out.parent} does not exist")
        found = measuring.calibrate(scenario, data_dir, processes)
        contents = measuring.calibrated(scenario, found)
        try:
            out.write_text(tomli_w.dumps(contents), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--out {out} cannot be written: {error.strerror}") from error
        for section, keys in found.sections().items():
            echo(f"[{section}]")
            for key, value in keys.items():
                echo(f'{key} = "{value}"')
        echo(f"scenario: {out}")


def _run_all(scenarios: list["Scenario"], quiet: bool, options: "RunOptions", live: "LiveOptions") -> None:
    from sim.live.against import ranking

    summaries = []
    for scenario in scenarios:
        result = _run_with_progress(scenario, quiet, options, live)
        show_result(result)
        _print_verdicts(result.summary)
        stop_if_cut_short(result)
        if (lost := result.summary.get("ended_by")) is not None:
            stop(f"the run failed: {lost}", FAILED)
        summaries.append(result.summary)
    if live.held_against and (ranked := ranking(summaries)) is not None:
        low, high = ranked["interval"] or (float("nan"), float("nan"))
        found = f"rank correlation {ranked['rank_correlation']:.2f}, 95% interval {low:.2f} to {high:.2f}"
        echo(f"ranking of {len(summaries)} runs: {found}")


def _print_verdicts(summary: dict[str, Any]) -> None:
    for what, found, holds in summary.get("verdicts", ()):
        echo(f"{'holds' if holds else 'FAILS':5}  {what}: {found}")
    if caveat := summary.get("caveat"):
        echo(caveat)
    if summary["live"]["too_busy"]:
        echo("no verdict: this machine was too busy; over 5% of the jobs or messages were late", err=True)


def _machines(
    hosts: Path | None, host: str | None, certificates: Path | None, processes: int | None
) -> "Machines | None":
    """Return the machines of the run, or None for this machine alone. Raises UserError."""
    if hosts is None:
        if host is not None or certificates is not None:
            raise UserError(
                "--host and --certificates are for several machines: name the file of machines with --hosts"
            )
        return None
    from sim.live.hosts import read_hosts
    from sim.live.running import Machines

    found = read_hosts(hosts)
    names = [each.name for each in found]
    if host is None:
        raise UserError(f"--host: is required with --hosts; must be one of {', '.join(names)}")
    if host not in names:
        raise UserError(f"--host {host}: must be one of {', '.join(names)}")
    if certificates is None:
        raise UserError("--certificates: is required for several machines; --make-certificates writes them")
    machines = Machines(found, host, certificates)
    if processes not in (None, machines.processes):
        raise UserError(
            f"--processes {processes}: must be {machines.processes} or left out, as {hosts} sets the number "
            "of processes of each machine"
        )
    return machines


def _make_certificates(folder: Path, hosts: Path | None) -> str:
    from sim.errors import require_packages

    require_packages("sockets", "--make-certificates", "cryptography")
    from sim.live.certificates import make_certificates
    from sim.live.hosts import read_hosts
    from sim.live.placement import COORDINATOR, OWN_PROCESSES_MAX

    if hosts is None:
        raise UserError("--make-certificates: name the file of machines with --hosts")
    count = sum(host.processes for host in read_hosts(hosts)) + OWN_PROCESSES_MAX
    make_certificates(folder, [COORDINATOR, *[f"process-{number}" for number in range(count)]])
    return f"certificates are in {folder}: copy the folder to each machine over a private connection"


def _scenarios(
    file: Path, overrides: list[str] | None, unset: list[str] | None, seed: int | None, code: bool
) -> list["Scenario"]:
    from sim.scenario.scenario import load_scenario

    scenario = load_scenario(file, overrides or (), seed, unset=unset or (), code=code)
    if scenario.sweep is None:
        return [scenario]
    if seed is not None:
        raise UserError("--seed: the [sweep] of the scenario sets the seeds; use --set sweep.seeds=[1]")
    from sim.studies.cells import plan

    planned = plan(file, overrides or (), unset=unset or (), code=code)
    return [
        load_scenario(planned.file, cell.overrides, cell.seed, unset=cell.unset, code=code)
        for cell in planned.cells
    ]


def _run_with_progress(
    scenario: "Scenario", quiet: bool, options: "RunOptions", live: "LiveOptions"
) -> "RunResult":
    from sim.live.running import run_live

    console = Terminal(stderr=True)
    with StatusLine(console, quiet) as status:
        duration_s = scenario.run.duration

        def progress(time_s: float) -> None:
            status.update(f"{time_s:.0f} of {duration_s:g} s", time_s / (duration_s or 1.0), time_s)

        return run_live(scenario, replace(options, notice=status.print), replace(live, on_progress=progress))
