"""Training steps per second of a whole simulation of asynchronous gossip, compared with gossipy."""

import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch.func import grad, vmap

from benchmarks import gossipy
from benchmarks.measuring import Effort, Say, interleaved, median_ratio, per_second, table, times
from sim.core.simulation import Simulation
from sim.files.data_folder import DataFolder
from sim.learning.data.kinds import DATASETS
from sim.learning.evaluation import measure_models
from sim.learning.models.kinds import MODELS as MODEL_KINDS
from sim.learning.objectives import cross_entropy
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario, load_scenario

MODELS = {"logistic regression 64-10": "logistic-regression", "MLP 64-100-10": "mlp"}
PERIODS = {100: 100, 1_000: 20}  # of virtual time in one full measurement, by number of clients
EVALUATE_EVERY = 5  # periods
SAMPLES, LEARNING_RATE = 16, 0.1
LOCKSTEPS = 20
GOSSIPY_SHARE, AT_ONCE_SHARE = 4, 10  # of the periods: the rates do not depend on it, and the runs are slow

SCENARIO = """\
[run]
duration = "{periods} s"
evaluate_every = "{evaluate_every} s"

[clients]
count = {clients}
topology = {{ kind = "k-regular", degree = {degree} }}

[data]
name = "digits"
partition = {{ kind = "benchmarks.whole_run:shared_out", overlap = true }}

[model]
name = "{model}"

[training]
learning_rate = {learning_rate}
batch_size = {batch_size}

[protocol]
name = "{protocol}"
period = "1 s"
local_steps = {local_steps}

[network]
latency = {{ kind = "uniform", low = "0 s", high = "100 ms" }}
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = {{ kind = "uniform", low = "10 ms", high = "20 ms" }}

[engine]
deferred = {deferred}
workers = 1
"""

TEXT = f"""\
Asynchronous push gossip (`protocol.name = "gossip"`) in a random 20-regular graph: once per period, every
client sends its model to one neighbor, which merges it with its own and takes one step of SGD on its 16
digits. A message takes up to 10% of the period, and a step 1 to 2%. The timed part
of `coterie run` starts after building the simulation and ends before writing the results: actors, network,
devices, trace and training. It excludes garbage collections and evaluations on the test digits: their cost
depends on their frequency. Here they take place at the start, every {EVALUATE_EVERY} periods and at the
end, where all pending work is also computed. The training digits are dealt repeatedly until all clients have
their samples.

*gossipy* (gossipy-dfl) runs the same protocol: as many clients, a fourth of the periods, pushes to a random
neighbor in a 20-regular graph, a merge and one step, 16 digits, delays up to 10% of a period, and no
evaluations. Its set-up is not timed. *Lockstep* is an upper bound without any simulation: one call of
`vmap(grad(loss))` and one update of all models for each step.

*Deferred* is the default; *at once* (`engine.deferred = false`) computes each job alone when it is
submitted, for a tenth of the periods. *Mean batch* is the number of jobs in a call of the deferred engine;
*outside* is the share of the deferred run's time outside the engine's batched computation."""


class Run(NamedTuple):
    """Measurements of one run: wall-clock and CPU seconds, those of flushes, updates, jobs per call."""

    seconds: float
    cpu_s: float
    updates: int
    mean_batch: float
    flush_s: float

    @property
    def updates_per_s(self) -> float:
        """Training steps per second."""
        return self.updates / self.seconds

    @property
    def updates_per_cpu_s(self) -> float:
        """Training steps per second of CPU time, which depends less on other load."""
        return self.updates / self.cpu_s

    @property
    def outside(self) -> float:
        """Share of the time outside the engine's flushes."""
        return 1 - self.flush_s / self.seconds


def scenario(
    model: str,
    clients: int,
    periods: int,
    *,
    deferred: bool = True,
    steps: int = 1,
    protocol: str = "gossip",
) -> Scenario:
    """Return the validated scenario; `steps` training steps follow each merge."""
    text = SCENARIO.format(
        model=model,
        protocol=protocol,
        clients=clients,
        periods=periods,
        batch_size=SAMPLES,
        degree=min(20, clients - 1),
        local_steps=steps,
        learning_rate=LEARNING_RATE,
        evaluate_every=min(EVALUATE_EVERY, periods),
        deferred=str(deferred).lower(),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "benchmark.toml")
        path.write_text(text, encoding="utf-8")
        return load_scenario(path)


DIGITS = DATASETS["digits"].model_validate({"name": "digits", "partition": "iid"})


def shared_out(rng: np.random.Generator, labels: np.ndarray, clients: int) -> np.ndarray:
    """Return SAMPLES training digits for each client, by number [clients, SAMPLES]: shuffled and repeated."""
    places = np.arange(clients * SAMPLES) % len(labels)
    return rng.permutation(len(labels))[places].reshape(clients, SAMPLES)


class Stopwatch:
    """Wall-clock and CPU seconds of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = self.cpu_s = 0.0

    def __call__(self, *args: Any, **more: Any) -> Any:
        started, cpu_started = time.perf_counter(), time.process_time()
        result = self.function(*args, **more)
        self.seconds += time.perf_counter() - started
        self.cpu_s += time.process_time() - cpu_started
        return result


def built(chosen: Scenario) -> Simulation:
    """Return the simulation, ready to run."""
    return build(chosen, device="cpu")


def run(chosen: Scenario) -> Run:
    """Build and run the simulation; only the run is timed, without evaluations."""
    return timed(built(chosen))


def timed(simulation: Simulation) -> Run:
    """Run the simulation to the end, and close it."""
    measuring, running = Stopwatch(measure_models), Stopwatch(simulation.run)
    with closing(simulation), patch("sim.core.observer.measure_models", measuring):
        running()
    seconds, cpu_s = running.seconds - measuring.seconds, running.cpu_s - measuring.cpu_s
    statistics = simulation.engine.statistics
    return Run(seconds, cpu_s, statistics.updates, statistics.mean_batch, statistics.seconds)


def lockstep(model: str, clients: int) -> float:
    """Return the steps per second of all clients' models with one vmapped call per step and no simulation."""
    dataset = DIGITS.load(clients, 0, DataFolder())
    rows = shared_out(np.random.default_rng(0), dataset.train_y, clients)
    x, y = (torch.from_numpy(part[rows]) for part in (dataset.train_x, dataset.train_y))
    section = MODEL_KINDS[model].model_validate({"name": model})
    network = section.architecture(dataset.input_shape, DIGITS.classes)
    one = network.unflatten(network.initial(torch.Generator().manual_seed(0)))
    params = {name: value.expand(clients, *value.shape).clone() for name, value in one.items()}

    def loss(own: dict[str, torch.Tensor], own_x: torch.Tensor, own_y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(network, own, own_x, own_y)

    gradient = vmap(grad(loss))
    started = time.perf_counter()
    for _ in range(LOCKSTEPS):
        for name, of_all in gradient(params, x, y).items():
            params[name].sub_(of_all, alpha=LEARNING_RATE)
    return clients * LOCKSTEPS / (time.perf_counter() - started)


def measure(effort: Effort, say: Say) -> str:
    """Return the section on whole runs, in Markdown."""
    rows = []
    for label, model in MODELS.items():
        for clients in effort.sizes(*PERIODS):
            row = _row(model, clients, max(2, round(PERIODS[clients] * effort.share)), effort.repetitions)
            rows.append([label, *row])
            say(f"whole run, {label}, {clients:,} clients: {row[2]} updates/s, {row[4]} of gossipy")
    head = ["model", "clients", "periods", "deferred, updates/s", "gossipy, updates/s", "to gossipy"]
    head += ["at once, updates/s", "to at once", "lockstep, steps/s", "to lockstep", "mean batch", "outside"]
    return "\n\n".join(["## Whole run", TEXT, table(head, rows)])


def _row(model: str, clients: int, periods: int, repetitions: int) -> list[str]:
    contenders: dict[str, Callable[[], Any]] = {
        "deferred": partial(run, scenario(model, clients, periods, deferred=True)),
        "at once": partial(run, scenario(model, clients, max(2, periods // AT_ONCE_SHARE), deferred=False)),
        "lockstep": partial(lockstep, model, clients),
    }
    if gossipy.is_installed():
        contenders["gossipy"] = partial(
            gossipy.updates_per_s, model, clients, max(2, periods // GOSSIPY_SHARE)
        )
    runs = interleaved(contenders, repetitions)
    deferred = [found.updates_per_s for found in runs["deferred"]]
    others = {
        "gossipy": runs.get("gossipy"),
        "at once": [found.updates_per_s for found in runs["at once"]],
        "lockstep": runs["lockstep"],
    }
    cells = [f"{clients:,}", f"{periods}", per_second(deferred)]
    for rates in others.values():
        cells += ["-", "-"] if rates is None else [per_second(rates), times(median_ratio(deferred, rates))]
    batch = median(found.mean_batch for found in runs["deferred"])
    outside = median(found.outside for found in runs["deferred"])
    return [*cells, f"{batch:.0f}", f"{outside:.0%}"]
