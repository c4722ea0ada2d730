"""Running a scenario on the wall clock and over sockets, with the results of any run."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.live.against import Found, against, caveat, verdicts
from sim.live.coordinator import LiveRun, take_part
from sim.live.hosts import Host, addresses_on, host_of
from sim.live.logs import has_begun, remove_logs, wait_for_writers
from sim.live.parts import Merged, Outcome, merge
from sim.live.placement import Placement, place_actors, require_live
from sim.live.tokens import read_token
from sim.live.worker import ProcessOrder
from sim.results.store.output_dir import forget
from sim.results.store.run_directory import RunDirectory
from sim.run.local_baseline import record_ending, train_alone
from sim.run.mistakes import mistakes_in_results
from sim.run.options import DEFAULT, RunOptions
from sim.run.save.saving import RunResult, create_directory, save
from sim.run.setup.builder import built
from sim.run.summary import summarise
from sim.scenario.resolved import digest
from sim.scenario.scenario import Scenario, load_scenario

LATE_MESSAGE_S = 0.015
LATE_JOB_SHARE = 0.05
FORGIVEN_S = 0.001
"""What is later than this and still counts from its planned time is counted as forgiven."""
TOO_LATE = 0.05
"""The share of late jobs, or of late messages, from which a host is too busy for a verdict."""


@dataclass(frozen=True)
class Machines:
    """Several machines. hosts: all of them; the first has the coordinator. own: this one's name.

    certificates: a folder that `make_certificates` has made, or a copy with the keys of this machine.
    """

    hosts: tuple[Host, ...]
    own: str
    certificates: Path

    @property
    def coordinates(self) -> bool:
        return self.own == self.hosts[0].name

    @property
    def processes(self) -> int:
        """Processes that clients share, on all machines."""
        return sum(host.processes for host in self.hosts)

    def here(self, who: Placement) -> list[str]:
        return [name for name, host in host_of(self.hosts, who).items() if host.name == self.own]

    def told(self, assignment: ProcessOrder) -> ProcessOrder:
        """The assignment with the addresses and the secret of these machines. UserError."""
        places, secret = addresses_on(self.hosts, assignment.placement), read_token(self.certificates)
        return replace(assignment, addresses=places, secret=secret, certificates=self.certificates.absolute())


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """How a scenario is run live, beside its `RunOptions`.

    processes: among which clients are spread that neither crash nor come later; None: one for each core.
    machines: where there are several. raw: the network adds nothing, and jobs take the time that they take.
    held_against: whether the run is compared with its simulation. code: whether Python that the scenario
    names is executed. on_progress: called with the seconds of the run so far.
    """

    processes: int | None = None
    machines: Machines | None = None
    raw: bool = False
    held_against: bool = False
    code: bool = True
    on_progress: Callable[[float], object] = lambda time_s: None


def run_live(scenario: Scenario, options: RunOptions, live: LiveOptions) -> RunResult:
    """Run a scenario in several processes, and write its results in the same tables as a run's.

    Raises UserError for what cannot be run, or is no option of live runs, and ProcessFailed.
    """
    _require_of_live_runs(options)
    started = time.perf_counter()
    data_dir, machines, notice = options.data_dir, live.machines, options.notice
    with _prepared(scenario, live.processes, machines, data_dir) as (simulation, scenario, who):
        directory = create_directory(scenario, options.out, "cpu", options.overwrite)
        try:
            file = (directory.path / "scenario.toml").absolute()
            assignment = _assignment(scenario, who, file, data_dir, live.code, live.raw)
            if machines is not None:
                assignment = machines.told(assignment)
            assert scenario.run.duration is not None
            processes = LiveRun(
                assignment,
                scenario.run.duration,
                here=None if machines is None else machines.here(who),
                on_ready=lambda: notice(_announcement(who, scenario, live.raw)) if notice else None,
                on_progress=live.on_progress,
            )
            processes.run()
            outcome = Outcome.read(directory.path)
            against_simulation = live.held_against
            summary = _summary(
                simulation, directory, outcome, started, scenario, data_dir, against_simulation
            )
            result = save(directory, scenario, simulation, summary, overwrite=options.overwrite)
        except BaseException:
            if not has_begun(directory.path):
                directory.discard()
            raise
    if result.directory is not None and not result.unwritten:
        remove_logs(result.directory)
    return replace(result, signal=processes.signal)


def _require_of_live_runs(options: RunOptions) -> None:
    """UserError for options that only simulations have."""
    simulated = ("hooks", "on_evaluation", "checkpoint_every_s", "checkpoints_s", "anyway")
    for name in simulated:
        if getattr(options, name) != getattr(DEFAULT, name):
            raise UserError(f"{name}: is an option of simulations, not of live runs; leave it out")
    if options.device not in ("auto", "cpu"):
        raise UserError(f"--device {options.device}: live runs compute on CPUs; must be auto or cpu")


def put_together(folder: Path, *, data_dir: Path | None = None, code: bool = True) -> RunResult:
    """The results of a live run whose coordinator was killed, from what its processes told. UserError.

    folder: its hidden one, which goes away. Waits for processes that still tell.
    """
    started = time.perf_counter()
    wait_for_writers(folder)
    outcome = Outcome.read(folder)
    scenario = load_scenario(folder / "scenario.toml", code=code)
    with built(scenario, data_dir, "cpu") as prepared:
        simulation = prepared.simulation
        directory = create_directory(scenario, folder.parent, "cpu")
        try:
            summary = _summary(simulation, directory, outcome, started, scenario, data_dir, False)
            summary["finished"] = False
            lost = [*outcome.lost, "the coordinator was ended"]
            result = save(directory, scenario, simulation, summary | {"ended_by": "; ".join(lost)})
        except BaseException:
            directory.discard()
            raise
    if result.directory is not None and not result.unwritten:
        forget(folder)
    return result


def _summary(
    simulation: Simulation,
    directory: RunDirectory,
    outcome: Outcome,
    started_s: float,
    scenario: Scenario,
    data_dir: Path | None,
    held_against: bool,
) -> dict[str, Any]:
    """Fill a simulation with what a live run has found; its summary."""
    directory.keep_events(simulation.trace)
    merged = merge(simulation, outcome)
    alone = train_alone(simulation) if scenario.run.compare_alone else None
    record_ending(simulation, alone)
    summary = summarise(scenario, simulation, alone, time.perf_counter() - started_s, outcome.interrupted)
    summary["messages"]["in_flight"] = merged.in_flight
    folder = f"{directory.path.absolute()}/"  # has another name when it is finished
    told = [line for part in outcome.parts for line in part.facts["live"].get("mistakes", ())]
    warnings = [*dict.fromkeys(line.replace(folder, "") for line in told)]
    warnings += mistakes_in_results(simulation)
    summary |= {"live": figures(outcome, merged), "warnings": warnings}
    summary["finished"] = not (outcome.lost or outcome.interrupted)
    if held_against and summary["finished"]:
        process_of = {name: process for process, names in outcome.processes.items() for name in names}
        summary["against"] = against(Found.of(simulation, merged.events), scenario, data_dir, process_of)
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
    """Run the processes of this machine, for a coordinator on another one. UserError, ProcessFailed."""
    with _prepared(scenario, None, machines, data_dir) as (_, scenario, who), TemporaryDirectory() as folder:
        directory = create_directory(scenario, Path(folder), "cpu")
        place = directory.path / "scenario.toml"
        assignment = machines.told(_assignment(scenario, who, place, data_dir, code, raw))
        take_part(assignment, [name for name in machines.here(who) if name in who.first])


@contextmanager
def _prepared(
    scenario: Scenario, processes: int | None, machines: Machines | None, data_dir: Path | None
) -> Iterator[tuple[Simulation, Scenario, Placement]]:
    """A simulation to be filled, the scenario as all processes have it, and who is where. UserError."""
    require_live(scenario)
    with built(scenario, data_dir, "cpu") as prepared:
        simulation = prepared.simulation
        run = scenario.run.model_copy(update={"name": f"{scenario.name.removesuffix('-live')}-live"})
        clients = [client.name for client in simulation.clients]
        servers = [server.name for server in simulation.servers]
        count = (processes or os.cpu_count() or 1) if machines is None else machines.processes
        who = place_actors(clients, servers, simulation.events, count)
        yield simulation, replace(prepared.scenario, run=run), who


def _assignment(
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
    world = "as the network and the devices of this machine are" if raw else "in the scenario's world"
    return f"{count} actors in {len(who.actors)} processes, {world}, for {scenario.run.duration:g} s"


def figures(outcome: Outcome, merged: Merged) -> dict[str, Any]:
    """What the summary says of a live run as such; docs/live.md has the meaning of each key."""
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
        "forgiven": {} if raw else {"messages": _forgiven(messages), "jobs": _forgiven(jobs)},
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


def _forgiven(late_s: np.ndarray) -> dict[str, float]:
    """How many were late and count from their planned time all the same, and by how many seconds in all."""
    forgiven_s = late_s[late_s > FORGIVEN_S]
    return {"count": len(forgiven_s), "seconds": float(forgiven_s.sum())}


def _percentiles(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    found = np.percentile(values, [50, 95, 99, 100])
    return dict(zip(("median", "p95", "p99", "max"), found.tolist(), strict=True))
