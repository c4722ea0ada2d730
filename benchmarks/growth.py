"""What an update costs from 10 to 10,000 clients, in time and memory, and how much of it is tensor work."""

import gc
import multiprocessing
import resource
import time
from functools import partial
from statistics import median
from typing import NamedTuple

import torch

from benchmarks import whole_run
from benchmarks.measuring import Effort, Say, interleaved, table

MODEL = "mlp"
STEPS, PERIODS = 5, 4  # after each merge, and of virtual time: 20 steps of each client on average
MANY_STEPS, MANY_STEPS_PERIODS = 10, 40

GROWTH_TEXT = f"""\
The same asynchronous gossip with the MLP 64-100-10, {STEPS} steps after each merge and {PERIODS} periods:
{STEPS * PERIODS} steps of each client on average. Each run has a process of its own, whose peak memory is
given. *Wall time* is that of everything: building the simulation, running it, and measuring all models on
the test digits at the start and at the end. *Per update* is the run alone, without the measuring, as in the
section before; an *update* is one step. *Growth* is the time per update compared with 100 clients.
*Models, per client* is what the engine's memory of vectors grew to."""

OUTSIDE_TEXT = f"""\
100 clients, MLP, {MANY_STEPS} steps after each message: the share of the wall time that is not spent in the
engine's flushes, in which all training and mixing is computed."""


class Cost(NamedTuple):
    """Of one run: wall seconds, seconds of the run alone, updates, peak memory of the process, of vectors."""

    wall_s: float
    run_s: float
    updates: int
    peak_bytes: int
    vectors_bytes: int

    @property
    def per_update_s(self) -> float:
        """Seconds of the run alone per update."""
        return self.run_s / self.updates


def run(clients: int, threads: int) -> Cost:
    """One run in this process."""
    gc.disable()
    torch.set_num_threads(threads)
    chosen = whole_run.scenario(MODEL, clients, PERIODS, steps=STEPS)
    started = time.perf_counter()
    simulation = whole_run.built(chosen)
    done = whole_run.timed(simulation)
    wall_s = time.perf_counter() - started
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Cost(wall_s, done.seconds, done.updates, peak_bytes, simulation.engine.bytes_held)


def measure(effort: Effort, say: Say) -> str:
    """The sections on growth and on the share of tensor work, in Markdown."""
    costs: dict[int, list[Cost]] = {}
    for clients in effort.sizes(10, 100, 1_000, 10_000):
        for _ in range(effort.repetitions):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                costs.setdefault(clients, []).append(pool.apply(run, (clients, torch.get_num_threads())))
        wall_s = median([cost.wall_s for cost in costs[clients]])
        say(f"growth, {clients:,} clients: {wall_s:.1f} s")
    reference_s = median([cost.per_update_s for cost in costs[100]])
    rows = [_row(clients, of, reference_s) for clients, of in costs.items()]
    head = ["clients", "updates", "wall time, s", "per update, us", "growth", "peak memory, MiB"]
    head += ["models, per client, KiB"]
    sections = ["## Growth", GROWTH_TEXT, table(head, rows)]
    return "\n\n".join([*sections, "## Outside tensor work", OUTSIDE_TEXT, _outside(effort)])


def _row(clients: int, costs: list[Cost], reference_s: float) -> list[str]:
    per_update_s = median([cost.per_update_s for cost in costs])
    return [
        f"{clients:,}",
        f"{costs[0].updates:,}",
        f"{median([cost.wall_s for cost in costs]):.1f}",
        f"{per_update_s * 1e6:.0f}",
        f"{per_update_s / reference_s:.2f}x",
        f"{max(cost.peak_bytes for cost in costs) / 2**20:,.0f}",
        f"{costs[0].vectors_bytes / 2**10 / clients:,.0f}",
    ]


def _outside(effort: Effort) -> str:
    periods = max(2, round(MANY_STEPS_PERIODS * effort.share))
    chosen = whole_run.scenario(MODEL, 100, periods, steps=MANY_STEPS)
    runs = interleaved({"run": partial(whole_run.run, chosen)}, effort.repetitions)["run"]
    rate = median([found.updates_per_s for found in runs])
    share = median([found.outside for found in runs])
    return f"Updates per second: {rate:,.0f}; outside tensor work: {share:.0%}."
