"""From a resolved scenario to a result directory: a function without globals."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocols.local import Local
from sim.build import build
from sim.errors import UserError
from sim.results.metrics import (
    ALL,
    accuracy_summary,
    bytes_to_target,
    graph_summary,
    share_better,
    time_to_target,
)
from sim.results.report import write_report
from sim.results.store import RunDirectory
from sim.results.trace import first_difference
from sim.scenario import Protocol, Scenario, digest, to_toml
from sim.settings import EvaluateEvery
from sim.simulation import Simulation
from sim.world.clock import Deadlock

Progress = Callable[[float, float, float | None, int, int, float], object]
"""progress(virtual_s, duration_s, mean_accuracy, clients_up, messages, updates_per_wall_s)."""

_PROGRESS_STEPS = 200


@dataclass(frozen=True)
class RunResult:
    """Where the results are, and what is in summary.json."""

    directory: Path
    summary: dict[str, Any]
    interrupted: bool


def run_scenario(
    scenario: Scenario,
    *,
    out: Path = Path("runs"),
    device: str = "auto",
    data_dir: Path | None = None,
    progress: Progress | None = None,
    log: Callable[[str], None] | None = None,
) -> RunResult:
    """Run a scenario and write its result directory under `out`.

    An interrupt (Ctrl-C) ends the run early and leaves a valid directory. Raises UserError for what can't be run, and
    Deadlock when every client waits for ever; the directory is written before that, too.
    """
    directory = RunDirectory.create(out, scenario.name, scenario.run.seed, digest(scenario))
    started = time.perf_counter()
    deadlock: Deadlock | None = None
    interrupted = False
    try:
        with _quiet_collector(), _threads(scenario.engine.threads):
            simulation = build(scenario, data_dir, device)
            with closing(simulation):
                _watch(simulation, progress, started, log)
                try:
                    interrupted = _run(simulation)
                except Deadlock as error:
                    deadlock = error
                alone = None
                if scenario.run.compare_alone and not (interrupted or deadlock):
                    alone, interrupted = _measure_alone(scenario, data_dir, device)
                summary = summarise(simulation, alone, time.perf_counter() - started, interrupted)
                if deadlock is not None:
                    summary["deadlock"] = str(deadlock)
                _write(directory, simulation, summary)
    except BaseException:
        directory.discard()
        raise
    if deadlock is not None:
        raise deadlock
    return RunResult(directory.path, summary, interrupted)


def verify(
    scenario: Scenario,
    result: RunResult,
    *,
    device: str = "auto",
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> str | None:
    """Run once more, in a new process with another hash seed, and describe the first difference; None if there is none.

    A process of its own shows what a second run in this one would hide: anything that depends on the order of sets,
    on addresses or on state left over. `progress` is not used: the other process is silent.
    """
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        command = [sys.executable, "-m", "sim.cli", "run", str(result.directory / "scenario.toml"), "--quiet"]
        command += ["--out", str(again), "--device", device]
        command += ["--data-dir", str(data_dir)] if data_dir is not None else []
        seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
        )
        found = [path for path in again.iterdir() if path.is_dir()]
        if done.returncode or len(found) != 1:
            raise UserError(f"the second run of {scenario.name} did not finish: {done.stderr.strip()}")
        second = RunDirectory.load(found[0])
        if second.summary()["trace_hash"] == result.summary["trace_hash"]:
            return None
        first = RunDirectory.load(result.directory)
        difference = first_difference(
            first.scan("events").collect().to_arrow(), second.scan("events").collect().to_arrow()
        )
        return difference or "the hashes differ, in messages that run.keep_messages = false did not keep"


def _run(simulation: Simulation) -> bool:
    """Run to the end, or to the first Ctrl-C: True if it was interrupted.

    The signal only asks the loop to stop, so that no event is cut in two and what was measured is consistent. A second
    Ctrl-C is a KeyboardInterrupt as usual.
    """
    interrupts: list[int] = []

    def stop(number: int, frame: object) -> None:
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)
        simulation.loop.stop()

    if threading.current_thread() is not threading.main_thread():
        simulation.run()  # only the main thread may set signal handlers, and only it is interrupted
        return False
    before = signal.signal(signal.SIGINT, stop)
    try:
        simulation.run()
    finally:
        signal.signal(signal.SIGINT, before)
    return bool(interrupts)


# --- while it runs --------------------------------------------------------------------------------------------


def _watch(
    simulation: Simulation, progress: Progress | None, started: float, log: Callable[[str], None] | None
) -> None:
    """Collect garbage at evaluations, and report progress at regular virtual times."""
    simulation.on_log = log
    simulation.on_evaluated = gc.collect
    duration_s = simulation.scenario.run.duration
    if progress is None:
        return

    def report() -> None:
        accuracy = simulation.metrics.mean("accuracy").values
        updates = simulation.engine.statistics.updates
        assert progress is not None
        progress(
            simulation.loop.time(),
            duration_s or 0.0,
            float(accuracy[-1]) if len(accuracy) else None,
            len(simulation.clients_up),
            simulation.network.counts.sent,
            updates / (time.perf_counter() - started),
        )

    if duration_s is None:

        def evaluated() -> None:
            gc.collect()
            report()

        simulation.on_evaluated = evaluated
        return
    for step in range(_PROGRESS_STEPS + 1):
        simulation.loop.call_at_observer(duration_s * step / _PROGRESS_STEPS, report)


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Collect cyclic garbage at evaluations only.

    When it is found decides which pending work is still wanted, hence what a batch consists of, hence the last bits of
    its results; so it must not depend on how many objects other code happens to allocate.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.freeze()  # what exists now is not looked at again: collections during the run stay short
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure_alone(
    scenario: Scenario, data_dir: Path | None, device: str
) -> tuple[dict[str, float] | None, bool]:
    """What each client reaches by local training in the same world: (measure by client, interrupted)."""
    run = scenario.run
    once = EvaluateEvery(run.duration, None if run.duration else run.iterations)
    alone = replace(
        scenario,
        run=run.model_copy(update={"keep_messages": False, "evaluate_every": once}),
        protocol=Protocol("local", Local, Local.Settings()),
    )
    with closing(build(alone, data_dir, device)) as simulation:
        if _run(simulation):
            return None, True
        return simulation.metrics.latest(simulation.measure), False


# --- results --------------------------------------------------------------------------------------------------


def summarise(
    simulation: Simulation, alone: dict[str, float] | None, wall_s: float, interrupted: bool
) -> dict[str, Any]:
    """The contents of summary.json; see docs/guide.md for the meaning of each key."""
    scenario, metrics, counts = simulation.scenario, simulation.metrics, simulation.network.counts
    up = [client.name for client in simulation.clients_up]
    measured = {name: value for name, value in metrics.latest(simulation.measure).items() if name in up}
    is_accuracy = simulation.measure == "accuracy"
    statistics = simulation.engine.statistics
    summary: dict[str, Any] = {
        "scenario": scenario.name,
        "protocol": scenario.protocol.label,
        "seed": scenario.run.seed,
        "virtual_seconds": simulation.loop.time(),
        "wall_seconds": wall_s,
        "trace_hash": simulation.trace.hash(),
        "clients": _client_counts(simulation),
        "accuracy": accuracy_summary(measured.values() if is_accuracy else []),
        "better_than_alone": share_better(measured, alone, higher_is_better=is_accuracy) if alone else None,
        "graph": _graph(simulation),
        "messages": {
            "sent": counts.sent,
            "delivered": counts.delivered,
            "lost": counts.lost,
            "dropped": counts.dropped,
            "in_flight": counts.in_flight,
            "bytes": counts.bytes,
        },
        "bytes_by_type": counts.by_type,
        "loss_reasons": dict(counts.reasons),
        "engine": {
            "jobs": statistics.jobs,
            "batches": statistics.batches,
            "mean_batch": statistics.mean_batch,
            "seconds": statistics.seconds,
            "updates": statistics.updates,
        },
        "device_time": dict(simulation.device_seconds()),
        "clusters": simulation.clusters,
        "client_names": [client.name for client in simulation.clients],
        "failures": [str(failure) for failure in simulation.supervisor.failures],
        "interrupted": interrupted,
    }
    if not is_accuracy:
        summary["distance"] = {"mean": float(np.mean(list(measured.values()))) if measured else None}
    if scenario.run.target_accuracy is not None:
        accuracy, target = metrics.mean("accuracy"), scenario.run.target_accuracy
        summary["target"] = {
            "accuracy": target,
            "seconds": time_to_target(accuracy, target),
            "bytes": bytes_to_target(accuracy, metrics.series(ALL, "bytes_sent"), target),
        }
    return summary


def _client_counts(simulation: Simulation) -> dict[str, int]:
    churn = simulation.churn
    return {
        "initial": sum(client.up_at_start for client in simulation.clients),
        "joined": churn.joined,
        "left": churn.left,
        "crashed": churn.crashed,
        "rejoined": churn.rejoined,
        "failed": churn.failed,
        "alive": len(simulation.clients_up),
    }


def _graph(simulation: Simulation) -> dict[str, float | None]:
    weights = simulation.metrics.weights()
    if simulation.clusters is None or not weights:
        return {"l1": None, "edge_precision": None, "edge_recall": None}
    alive = [client.index for client in simulation.clients_up]
    return graph_summary(weights, simulation.clusters, alive)


def _write(directory: RunDirectory, simulation: Simulation, summary: dict[str, Any]) -> None:
    directory.write_scenario(to_toml(simulation.scenario))
    directory.write_metrics(simulation.metrics)
    directory.write_events(simulation.trace)
    directory.write_intervals(simulation.intervals())
    directory.write_summary(summary)
    write_report(directory)
    directory.finalise()
