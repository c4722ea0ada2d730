"""Cost of an update from 10 to 10,000 clients in time and memory, and its share of tensor work."""

import gc
import multiprocessing
import time
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import torch

from benchmarks import whole_run
from benchmarks.measuring import Effort, Say, interleaved, median_ratio, peak_memory_bytes, table

MODEL = "mlp"
STEPS, PERIODS = 5, 4  # after each merge, and of virtual time: 20 steps of each client on average
MANY_STEPS, MANY_STEPS_PERIODS = 10, 40

GROWTH_TEXT = f"""\
The same asynchronous gossip runs with the MLP 64-100-10, {STEPS} steps after each merge and {PERIODS}
periods: {STEPS * PERIODS} steps of each client on average. Each run has its own process, and the table
gives its peak memory. *Wall time* covers everything: building the simulation, running it, and evaluating
all models on the test digits at the start and at the end. *Per update* is the time of the run alone, without
evaluations, as in the previous section; an *update* is one step. *Growth* is the time per update compared
with 100 clients, in the same repetition. *Models, per client* is the final size of the engine's memory
of vectors."""

OUTSIDE_TEXT = f"""\
100 clients, MLP, {MANY_STEPS} steps after each message: the share of the wall-clock time outside the
engine's flushes, which compute all training and mixing."""


class Cost(NamedTuple):
    """Wall-clock seconds of a run, those without evaluations, updates, and peak memory."""

    wall_s: float
    run_s: float
    updates: int
    peak_bytes: int
    vectors_bytes: int

    @property
    def per_update_s(self) -> float:
        """Seconds per update, without evaluations."""
        return self.run_s / self.updates


def run(clients: int, threads: int) -> Cost:
    """Run once in this process."""
    gc.disable()
    torch.set_num_threads(threads)
    chosen = whole_run.scenario(MODEL, clients, PERIODS, steps=STEPS)
    started = time.perf_counter()
    simulation = whole_run.built(chosen)
    done = whole_run.timed(simulation)
    wall_s = time.perf_counter() - started
    return Cost(wall_s, done.seconds, done.updates, peak_memory_bytes(), simulation.engine.bytes_held)


def run_in_new_process(clients: int) -> Cost:
    """Run once in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, (clients, torch.get_num_threads()))


def measure(effort: Effort, say: Say) -> str:
    """Return the sections on growth and on the share of tensor work, in Markdown."""
    sizes = effort.sizes(10, 100, 1_000, 10_000)
    measured = interleaved(
        {str(clients): partial(run_in_new_process, clients) for clients in sizes}, effort.repetitions
    )
    reference = [cost.per_update_s for cost in measured["100"]]
    rows = []
    for clients in sizes:
        costs = measured[str(clients)]
        rows.append(_row(clients, costs, reference))
        say(f"growth, {clients:,} clients: {median([cost.wall_s for cost in costs]):.1f} s")
    head = ["clients", "updates", "wall time, s", "per update, us", "growth", "peak memory, MiB"]
    head += ["models, per client, KiB"]
    sections = ["## Growth", GROWTH_TEXT, table(head, rows)]
    return "\n\n".join([*sections, "## Time outside tensor work", OUTSIDE_TEXT, _outside(effort)])


def _row(clients: int, costs: Sequence[Cost], reference: Sequence[float]) -> list[str]:
    """Return a row of the table.

    reference: seconds per update with 100 clients, in the same turns.
    """
    per_update = [cost.per_update_s for cost in costs]
    return [
        f"{clients:,}",
        f"{costs[0].updates:,}",
        f"{median([cost.wall_s for cost in costs]):.1f}",
        f"{median(per_update) * 1e6:.0f}",
        f"{median_ratio(per_update, reference):.2f}x",
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
