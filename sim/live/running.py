"""Live runs of a scenario in wall-clock time over sockets, with the same tables as other runs."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sim.errors import UserError
from sim.live.against import ComparedRunData, caveat, compare_with_simulation, verdicts
from sim.live.coordinator import LiveRun, run_processes_for_coordinator
from sim.live.hosts import Host, addresses_on, hosts_by_process
from sim.live.logs import has_begun, remove_logs, wait_for_writers
from sim.live.parts import MergedEvents, Outcome, merge
from sim.live.placement import Placement, place_actors, require_live
from sim.live.tokens import read_token
from sim.live.worker import ProcessOrder
from sim.results.store.output_dir import remove_hidden_folder
from sim.results.store.run_directory import RunDirectory
from sim.run.code_warnings import warnings_about_results
from sim.run.local_baseline import record_final_metrics, train_alone
from sim.run.options import RunOptions
from sim.run.save.saving import RunResult, create_directory, save
from sim.run.setup.builder import PreparedRun, building_process
from sim.run.summary import summarise
from sim.scenario.resolved import digest
from sim.scenario.scenario import Scenario, load_scenario

LATE_MESSAGE_S = 0.015
LATE_JOB_SHARE = 0.05
FORGIVEN_S = 0.001
"""Delay from which an event that counts at its planned time is recorded as forgiven."""
TOO_LATE = 0.05
"""Share of late jobs, or of late messages, above which a machine is too busy for a verdict."""


@dataclass(frozen=True)
class Machines:
    """Several machines. hosts: all of them; the first runs the coordinator. own: the name of this machine.

    certificates: a folder from `make_certificates`, or a copy with the keys of this machine.
    """

    hosts: tuple[Host, ...]
    own: str
    certificates: Path

    @property
    def coordinates(self) -> bool:
        return self.own == self.hosts[0].name

    @property
    def processes(self) -> int:
        """Number of processes that clients share, on all machines."""
        return sum(host.processes for host in self.hosts)

    def local_processes(self, who: Placement) -> list[str]:
        return [name for name, host in hosts_by_process(self.hosts, who).items() if host.name == self.own]

    def completed(self, assignment: ProcessOrder) -> ProcessOrder:
        """Return the assignment with the addresses and the secret of these machines. Raises UserError."""
        addresses, secret = addresses_on(self.hosts, assignment.placement), read_token(self.certificates)
        certificates = self.certificates.absolute()
        return replace(assignment, addresses=addresses, secret=secret, certificates=certificates)


_READ = ("out", "overwrite", "device", "data_dir", "notice")
"""Fields of `RunOptions` that live runs use; other fields must have their defaults."""


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """Options of a live run, in addition to its `RunOptions`.

    processes: the number of processes for clients that neither crash nor join later; None: one per core.
    machines: for several machines. raw: the network adds no delays, and jobs take their real time.
    held_against: True to compare the run with its simulation. code: True to execute Python that the scenario
    names. on_progress: callback with the seconds of the run so far.
    """

    processes: int | None = None
    machines: Machines | None = None
    raw: bool = False
    held_against: bool = False
    code: bool = True
    on_progress: Callable[[float], object] = lambda time_s: None


def run_live(scenario: Scenario, options: RunOptions, live: LiveOptions) -> RunResult:
    """Run a scenario in several processes, and write the results in the same tables as a simulated run.

    Raises UserError for an invalid scenario or option, and ProcessFailed.
    """
    _refuse_simulation_options(options)
    started = time.perf_counter()
    data_dir, machines, notice = options.data_dir, live.machines, options.notice
    with _prepared(scenario, live.processes, machines, data_dir) as (prepared, scenario, who):
        directory = create_directory(scenario, options.out, "cpu", options.overwrite)
        try:
            file = (directory.path / "scenario.toml").absolute()
            assignment = _process_order(scenario, who, file, data_dir, live.code, live.raw)
            if machines is not None:
                assignment = machines.completed(assignment)
            assert scenario.run.duration is not None
            processes = LiveRun(
                assignment,
                scenario.run.duration,
                here=None if machines is None else machines.local_processes(who),
                on_ready=lambda: notice(_announcement(who, scenario, live.raw)) if notice else None,
                on_progress=live.on_progress,
            )
            processes.run()
            outcome = Outcome.read(directory.path)
            against_simulation = live.held_against
            summary = _summary(prepared, directory, outcome, started, scenario, data_dir, against_simulation)
            result = _saved(prepared, scenario, directory, summary, overwrite=options.overwrite)
        except BaseException:
            if not has_begun(directory.path):
                directory.discard()
            raise
    if result.directory is not None and not result.unwritten:
        remove_logs(result.directory)
    return replace(result, signal=processes.signal)


def _refuse_simulation_options(options: RunOptions) -> None:
    """Raise UserError for options that only simulations have: all except those that `run_live` reads."""
    for option in fields(options):
        if option.name not in _READ and getattr(options, option.name) != option.default:
            raise UserError(f"{option.name} is an option of simulations, not of live runs; remove it")
    if options.device not in ("auto", "cpu"):
        raise UserError(f"--device {options.device}: live runs compute on CPUs; must be auto or cpu")


def results_of_killed(folder: Path, *, data_dir: Path | None = None, code: bool = True) -> RunResult:
    """Write the results of a live run with a killed coordinator, from its processes' logs. Raises UserError.

    folder: the hidden folder of the run, which is removed. Waits for processes that still write.
    """
    started = time.perf_counter()
    wait_for_writers(folder)
    outcome = Outcome.read(folder)
    scenario = load_scenario(folder / "scenario.toml", code=code)
    with building_process(scenario, data_dir, "cpu") as prepared:
        directory = create_directory(scenario, folder.parent, "cpu")
        try:
            summary = _summary(prepared, directory, outcome, started, scenario, data_dir, False)
            summary["finished"] = False
            lost = [*outcome.lost, "the coordinator was killed"]
            summary |= {"ended_by": "; ".join(lost)}
            result = _saved(prepared, scenario, directory, summary, overwrite=False)
        except BaseException:
            directory.discard()
            raise
    if result.directory is not None and not result.unwritten:
        remove_hidden_folder(folder)
    return result


def _saved(
    prepared: PreparedRun,
    scenario: Scenario,
    directory: RunDirectory,
    summary: dict[str, Any],
    *,
    overwrite: bool,
) -> RunResult:
    simulation, meter = prepared.simulation, prepared.meter
    energy = None if meter is None else meter.table(simulation)
    return save(directory, scenario, simulation, summary, energy=energy, overwrite=overwrite)


def _summary(
    prepared: PreparedRun,
    directory: RunDirectory,
    outcome: Outcome,
    started_s: float,
    scenario: Scenario,
    data_dir: Path | None,
    held_against: bool,
) -> dict[str, Any]:
    """Fill a simulation with the results of a live run, and return its summary."""
    simulation = prepared.simulation
    directory.keep_events(simulation.trace)
    merged = merge(simulation, outcome)
    alone = train_alone(simulation) if scenario.run.compare_alone else None
    record_final_metrics(simulation, alone)
    summary = summarise(scenario, simulation, alone, time.perf_counter() - started_s, outcome.interrupted)
    summary["messages"]["in_flight"] = merged.in_flight
    if prepared.meter is not None:
        prepared.meter.recount(merged.events)
        summary["energy"] = prepared.meter.summary(simulation)
    folder = f"{directory.path.absolute()}/"  # renamed at the end
    lines = [line for part in outcome.parts for line in part.facts["live"].get("code_warnings", ())]
    warnings = [*dict.fromkeys(line.replace(folder, "") for line in lines)]
    warnings += warnings_about_results(simulation)
    summary |= {"live": live_summary_entry(outcome, merged), "warnings": warnings}
    summary["finished"] = not (outcome.lost or outcome.interrupted)
    if held_against and summary["finished"]:
        process_by_actor = {name: process for process, names in outcome.processes.items() for name in names}
        summary["against"] = compare_with_simulation(
            ComparedRunData.of(simulation, merged.events), scenario, data_dir, process_by_actor
        )
        summary["verdicts"] = verdicts(summary)
        summary["caveat"] = caveat(summary["live"])
    if outcome.lost:
        summary["ended_by"] = "; ".join(outcome.lost)
    return summary


def join_live(
    scenario: Scenario,
    machines: Machines,
    *,
    raw: bool = False,
    data_dir: Path | None = None,
    code: bool = True,
) -> None:
    """Run the processes of this machine, for a coordinator on another machine.

    Raises UserError, and ProcessFailed.
    """
    with _prepared(scenario, None, machines, data_dir) as (_, scenario, who), TemporaryDirectory() as folder:
        directory = create_directory(scenario, Path(folder), "cpu")
        file = directory.path / "scenario.toml"
        assignment = machines.completed(_process_order(scenario, who, file, data_dir, code, raw))
        run_processes_for_coordinator(
            assignment, [name for name in machines.local_processes(who) if name in who.first]
        )


@contextmanager
def _prepared(
    scenario: Scenario, processes: int | None, machines: Machines | None, data_dir: Path | None
) -> Iterator[tuple[PreparedRun, Scenario, Placement]]:
    """Return a run for the results, the scenario of all processes, and the placement.

    Raises UserError.
    """
    require_live(scenario)
    with building_process(scenario, data_dir, "cpu") as prepared:
        simulation = prepared.simulation
        run = scenario.run.model_copy(update={"name": f"{scenario.name.removesuffix('-live')}-live"})
        clients = [client.name for client in simulation.clients]
        servers = [server.name for server in simulation.servers]
        count = (processes or os.cpu_count() or 1) if machines is None else machines.processes
        who = place_actors(clients, servers, simulation.events, count)
        yield prepared, replace(prepared.scenario, run=run), who


def _process_order(
    scenario: Scenario, who: Placement, file: Path, data_dir: Path | None, code: bool, raw: bool
) -> ProcessOrder:
    return ProcessOrder(
        scenario=file,
        digest=digest(scenario),
        data_dir=None if data_dir is None else data_dir.absolute(),
        code=code,
        placement=who,
        secret=secrets.token_bytes(32),
        raw=raw,
    )


def _announcement(who: Placement, scenario: Scenario, raw: bool) -> str:
    count = sum(len(names) for names in who.actors.values())
    world = (
        "with the network and devices of this machine" if raw else "with the scenario's network and devices"
    )
    return f"{count} actors in {len(who.actors)} processes, {world}, for {scenario.run.duration:g} s"


def live_summary_entry(outcome: Outcome, merged: MergedEvents) -> dict[str, Any]:
    """Return the summary's entry for a live run; docs/live.md explains each key."""
    parts, raw = outcome.parts, outcome.raw
    lives = [part.facts["live"] for part in parts if part.facts["live"]]

    def listed(key: str) -> list[Any]:
        return [each for part in parts for each in part.lists.get(key, ())]

    messages, jobs = np.array(listed("late_messages")), np.array(listed("late_jobs"))
    lengths = np.array(listed("job_lengths"))
    overrun = jobs > np.maximum(LATE_JOB_SHARE * lengths, 0.001)
    late_jobs = float(overrun.mean()) if len(jobs) else 0.0
    late_messages = float((messages > LATE_MESSAGE_S).mean()) if len(messages) else 0.0
    return {
        "processes": {name: list(names) for name, names in outcome.processes.items()},
        "raw": raw,
        "messages_between": len(messages),
        "delivered_late_s": _percentiles(messages),
        "jobs_late_s": _percentiles(jobs),
        "forgiven": {}
        if raw
        else {"messages": _late_event_totals(messages), "jobs": _late_event_totals(jobs)},
        "late_messages": late_messages,
        "overrun_jobs": late_jobs,
        "too_busy": not raw and max(late_jobs, late_messages) > TOO_LATE,
        "stalls": listed("stalls"),
        "blocked": sorted(listed("blocked"), key=lambda each: -each[1])[:10],
        "overflows": sum(each["overflows"] for each in lives),
        "memory": [part.lists.get("memory", []) for part in parts],
        "frames": sum(each["frames"]["sent"] for each in lives),
        "frame_bytes": sum(each["frames"]["bytes"] for each in lives),
        "refused": sum(each["frames"]["refused"] + sum(each["refused"].values()) for each in lives),
        "cpu_s": sum(each["cpu_s"] for each in lives),
        "load": os.getloadavg()[0],
        "untold_sendings": merged.untold,
        "contradicted_ends": merged.twice,
        "ended_by_crashes": merged.settled,
    }


def _late_event_totals(late_s: np.ndarray) -> dict[str, float]:
    """Return the number of late events that count at their planned time, and their total delay in seconds."""
    forgiven_s = late_s[late_s > FORGIVEN_S]
    return {"count": len(forgiven_s), "seconds": float(forgiven_s.sum())}


def _percentiles(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    found = np.percentile(values, [50, 95, 99, 100])
    return dict(zip(("median", "p95", "p99", "max"), found.tolist(), strict=True))
