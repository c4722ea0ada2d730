"""How many training steps per second a whole simulation of asynchronous gossip manages."""

import dataclasses
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.measuring import Effort, Say, interleaved, median_ratio, per_second, table, times
from sim.build.simulation import build
from sim.learning.datasets import Dataset, load_dataset
from sim.learning.evaluation import measure_models
from sim.scenario import Scenario, load_scenario

MODELS = {"logistic regression 64-10": "logistic-regression", "MLP 64-100-10": "mlp"}
PERIODS = {100: 20, 1_000: 5}  # of virtual time in one full measurement, by number of clients
EVALUATE_EVERY = 5  # periods
COPIES = 12  # of the 1,438 training digits: 1,000 clients with 16 each need 16,000

SCENARIO = """\
[run]
duration = "{periods} s"
evaluate_every = "{evaluate_every} s"

[clients]
count = {clients}
topology = {{ kind = "k-regular", degree = 20 }}

[data]
name = "digits"
partition = {{ kind = "iid", samples_per_client = 16 }}

[model]
name = "{model}"

[training]
learning_rate = 0.1
batch_size = 16

[protocol]
name = "gossip"
period = "1 s"

[network]
latency = {{ kind = "uniform", low = "0 s", high = "100 ms" }}
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = {{ kind = "uniform", low = "10 ms", high = "20 ms" }}

[engine]
deferred = {deferred}
"""

TEXT = f"""\
Asynchronous push gossip (`protocol.name = "gossip"`) in a random 20-regular graph: once per period every
client sends its model to one neighbour, which merges it with its own and takes one step of SGD on its 16
digits. A message takes up to 10 % of the period, a step 1 to 2 %. Timed is what `coterie run` does between
building the simulation and writing the results: actors, network, devices, trace and training. Left out are
its collections of garbage, and the measuring of accuracy on the test digits, whose cost is a matter of how
often one looks: here at the start, every {EVALUATE_EVERY} periods and at the end, when all that is pending is
computed, too. The training digits are repeated {COPIES} times, so that there are enough for all.

*Deferred* is the default; *at once* (`engine.deferred = false`) computes each job, alone, as soon as it is
submitted. *Mean batch* is the number of jobs (training steps and merges) in a call of the deferred engine;
*outside* is the share of the deferred run's time that is not spent in the engine's flushes."""


class Run(NamedTuple):
    """What one run showed; `outside` is the share of the time outside the engine's flushes."""

    updates_per_s: float
    mean_batch: float
    outside: float


def scenario(model: str, clients: int, periods: int, *, deferred: bool) -> Scenario:
    """The validated scenario."""
    text = SCENARIO.format(
        model=model,
        clients=clients,
        periods=periods,
        evaluate_every=min(EVALUATE_EVERY, periods),
        deferred=str(deferred).lower(),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "benchmark.toml")
        path.write_text(text, encoding="utf-8")
        return load_scenario(path)


def repeated(*args: Any, **options: Any) -> Dataset:
    """A data set with COPIES of each training sample."""
    dataset = load_dataset(*args, **options)
    x, y = (part.repeat(COPIES, *[1] * (part.dim() - 1)) for part in (dataset.train_x, dataset.train_y))
    return dataclasses.replace(dataset, train_x=x, train_y=y)


class Stopwatch:
    """Wall seconds spent in a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        started = time.perf_counter()
        result = self.function(*args)
        self.seconds += time.perf_counter() - started
        return result


def run(chosen: Scenario) -> Run:
    """Build and run it; only the run is timed, without the measuring of models."""
    with patch("sim.build.learning.load_dataset", repeated):
        simulation = build(chosen, device="cpu")
    measuring = Stopwatch(measure_models)
    with closing(simulation), patch("sim.simulation.measure_models", measuring):
        started = time.perf_counter()
        simulation.run()
        seconds = time.perf_counter() - started - measuring.seconds
    statistics = simulation.engine.statistics
    return Run(statistics.updates / seconds, statistics.mean_batch, 1 - statistics.seconds / seconds)


def measure(effort: Effort, say: Say) -> str:
    """The section on whole runs, in Markdown."""
    rows = []
    for label, model in MODELS.items():
        for clients in effort.sizes(*PERIODS):
            periods = max(2, round(PERIODS[clients] * effort.share))
            runs = interleaved(
                {
                    "deferred": partial(run, scenario(model, clients, periods, deferred=True)),
                    "at once": partial(run, scenario(model, clients, periods, deferred=False)),
                },
                effort.repetitions,
            )
            deferred, at_once = ([found.updates_per_s for found in of] for of in runs.values())
            ratio = times(median_ratio(deferred, at_once))
            batch = median(found.mean_batch for found in runs["deferred"])
            outside = median(found.outside for found in runs["deferred"])
            rates = [per_second(deferred), per_second(at_once)]
            rows.append(
                [label, f"{clients:,}", f"{periods}", *rates, ratio, f"{batch:.0f}", f"{outside:.0%}"]
            )
            say(f"whole run, {label}, {clients:,} clients: {rates[0]} updates/s, {ratio} of at once")
    head = ["model", "clients", "periods", "deferred, updates/s", "at once, updates/s", "deferred to at once"]
    return "\n\n".join(["## Whole run", TEXT, table([*head, "mean batch", "outside"], rows)])
