"""Agreement of a scenario on the device and on the CPU: the same events, nearly the same values."""

import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.parts import Effort, Row
from benchmarks.gpu.stand_ins import stand_ins
from sim.core.lives import group_by_architecture
from sim.core.simulation import Simulation
from sim.learning.engine import Engine, Vector
from sim.learning.engine.autotune import usable_cores
from sim.results.trace import Trace
from sim.run.setup.builder import building_process
from sim.scenario.scenario import load_scenario

TITLE = "Agreement"
TEXT = """\
Shortened scenarios run on the CPU and on the device, with the same seed; the images are placeholders.
*Events*
compares the messages and sessions of the trace, in order. They may differ after rounding differences if a
method bases decisions on computed values. *Start* states whether all initial models are equal bit by bit.
*Largest difference* and *median client* compare the parameters at the end: for each client, the largest
difference, divided by the client's largest value. The measure is averaged over the clients. *By the last
bit* is the largest difference on the CPU between this run and one in which some last bits of the initial
models are changed: the effect of rounding in this scenario. It is large with Adam, which
divides a gradient by its own size, however small that is."""

_PER_CLASS = 600
_AT_ONCE = 6  # processes on one device

SHORTENED = {
    "quickstart": ["run.duration=40 s", "churn=[]"],
    "gossip": ["run.duration=60 s"],
    "dpsgd_asynchronous": ["run.duration=60 s"],
    "dpsgd_synchronous": ["run.duration=60 s"],
    "fedavg": ["run.duration=60 s", "churn=[]"],
    "cobo_quadratics": ["run.iterations=100"],
    "cobo_cross_silo": ["run.iterations=40", "run.evaluate_every=20 iterations"],
    "federico": ["run.budget={steps=60}"],
    "l2c_churn": ["run.duration=30 s", "protocol.rounds=50", "churn=[]"],
    "l2c_synthetic": ["run.duration=30 s", "protocol.rounds=50"],
    "l2c_fashion_mnist": ["run.duration=1 min", "protocol.rounds=50"],
    "mapl_churn": ["run.duration=10 s", "churn=[]"],
    "mapl_few": ["run.budget={samples=1920}", "run.evaluate_every=5 iterations"],
    "personalized": ["run.budget={steps=30}"],
    "scool_churn": ["run.duration=20 s", "churn=[]"],
    "scool_non_iid": ["run.budget={steps=60}"],
    "scool_sbm": ["run.budget={steps=60}"],
    "cobo_cross_device": [
        "model.width=8",
        "model.groups=4",
        "training.batch_size=8",
        "run.iterations=6",
        "run.evaluate_every=3 iterations",
        "data.test_samples=20",
    ],
}


@dataclass(frozen=True)
class _Outcome:
    events: str
    start: dict[str, int]
    models: dict[str, np.ndarray]
    measure: str
    headline: float
    seconds: float
    way: str


def rows(effort: Effort) -> Iterator[Row]:
    """Yield a row for each finished scenario; each runs in a new process."""
    workers = max(1, min(_AT_ONCE, usable_cores()))
    device, chosen = str(effort.device), list(SHORTENED)[: max(1, round(effort.share * len(SHORTENED)))]
    with ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(partial(compared, device=device), chosen)


def compared(name: str, device: str) -> Row:
    """Run a scenario on both; return its row, or its error instead of values."""
    try:
        cpu, other = _ran(name, "cpu"), _ran(name, device)
        there = [client for client in cpu.models if client in other.models]
        apart = [_difference(cpu.models[client], other.models[client]) for client in there]
        with _last_bits_changed():
            changed = _ran(name, "cpu").models
        return {
            "scenario": name,
            "way": other.way,
            "events": cpu.events == other.events,
            "start": cpu.start == other.start,
            "largest difference": float(np.max(apart)),
            "median client": float(np.median(apart)),
            "by the last bit": max(
                _difference(cpu.models[c], changed[c]) for c in cpu.models if c in changed
            ),
            "measure": cpu.measure,
            "CPU": cpu.headline,
            "device": other.headline,
            "seconds, CPU": cpu.seconds,
            "seconds, device": other.seconds,
        }
    except Exception:
        return {"scenario": name, "failed": traceback.format_exc()}


@contextmanager
def _last_bits_changed() -> Iterator[None]:
    """Context in which an engine gets vectors with values changed by at most one bit."""
    vector, generator = Engine.vector, torch.Generator().manual_seed(0)

    def changed(engine: Engine, values: Tensor) -> Vector:
        bits = torch.randint(-1, 2, values.shape, generator=generator)
        return vector(engine, values * (1 + 2.0**-24 * bits.to(values.device)))

    with patch.object(Engine, "vector", changed):
        yield


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one - other).max() / max(np.abs(one).max(), 1e-30))


def _ran(name: str, device: str) -> _Outcome:
    scenario = load_scenario(name, SHORTENED[name])
    checksums: dict[str, int] = {}

    def noted(trace: Trace, time_s: float, actor: str, value: int) -> None:
        """Record only the start, outside of the trace: rounding would make all hashes differ."""
        if time_s == 0.0:
            checksums[actor] = value

    with (
        stand_ins(_PER_CLASS),
        patch.object(Trace, "checksum", noted),
        building_process(scenario, None, device) as run,
    ):
        simulation = run.simulation
        started = time.perf_counter()
        simulation.run()
        models = _models(simulation)
        seconds = time.perf_counter() - started
        measure = simulation.observer.measure.name
        latest = simulation.observer.metrics.latest(measure)
        headline = float(np.mean(list(latest.values())))
        way = ", ".join(simulation.engine.backends)
        return _Outcome(simulation.trace.hash(), checksums, models, measure, headline, seconds, way)


def _models(simulation: Simulation) -> dict[str, np.ndarray]:
    """Return the parameters of the clients that are up at the end, by name."""
    up = [client for client in simulation.clients if client.up and client.actor is not None]
    found: dict[str, np.ndarray] = {}
    for clients in group_by_architecture(up):
        rows = simulation.engine.rows([client.params for client in clients]).cpu().numpy()
        found |= {client.name: row for client, row in zip(clients, rows, strict=True)}
    return found
