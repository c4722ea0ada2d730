"""Projected duration of CoBo's cross-device experiment, from a minute of it."""

import time
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.gpu.parts import Effort, Row, in_gb, peak_bytes
from benchmarks.gpu.stand_ins import stand_ins
from benchmarks.utilisation import CLIENTS, ITERATIONS, pair_gradients
from sim.core.simulation import Simulation
from sim.run.setup.builder import building_process
from sim.scenario.scenario import load_scenario

TITLE = "CoBo, cross-device"
TEXT = f"""\
The unchanged scenario `cobo_cross_device` ({CLIENTS} clients, ResNet-9, batches of 128, {ITERATIONS:,}
iterations) runs for some seconds of wall-clock time, with placeholder images. Pairs of clients are
compared as rarely as in most of its iterations. The duration of the whole run is the time that all its
training steps and gradients of pairs take at this rate, without evaluations. The
paper reports 28 hours on four V100."""

SECONDS = 18.0
EVERY = 3
SAMPLING_SCALE = 0.05  # two pairs are compared in an iteration
SMALL = ["model.width=8", "model.groups=4", "training.batch_size=8", "data.test_samples=20"]


def rows(effort: Effort) -> Iterator[Row]:
    precisions = ("float32", "tf32", "bfloat16") if effort.device.type == "cuda" else ("float32",)
    for precision in precisions:
        yield _row(effort, precision)


def _row(effort: Effort, precision: str) -> Row:
    small = effort.share < 1
    given = [f"engine.precision={precision}", f"run.evaluate_every={EVERY} iterations"]
    given += ["protocol.constant_iterations=20000", f"protocol.sampling_scale={SAMPLING_SCALE}"]
    scenario = load_scenario("cobo_cross_device", given + (SMALL if small else []))
    peak_bytes(effort.device)
    with stand_ins(50 if small else 500), building_process(scenario, None, str(effort.device)) as run:
        simulation = run.simulation
        marks = _marks(simulation, SECONDS * effort.share)
        used = list(pairwise(marks))[1:] or list(pairwise(marks))  # the first ones warm up
        rate = EVERY * len(used) / sum(after[0] - before[1] for before, after in used)
        statistics = simulation.engine.statistics
        return {
            "precision": precision,
            "iterations": EVERY * (len(marks) - 1),
            "iterations/s": rate,
            "whole, hours": _whole_hours(rate),
            "in flushes": statistics.seconds / (marks[-1][0] - marks[0][0]),
            "mean batch": statistics.mean_batch,
            "peak, GB": in_gb(peak_bytes(effort.device)),
        }


def _marks(simulation: Simulation, seconds: float) -> list[tuple[float, float]]:
    """Return the start and end of each evaluation of the run."""
    marks: list[tuple[float, float]] = []
    evaluate, observer = simulation.observer.evaluate, simulation.observer

    def timed(*, at_end: bool = False) -> None:
        if at_end:
            return
        simulation.engine.flush()
        began = time.perf_counter()
        evaluate()
        marks.append((began, time.perf_counter()))
        if len(marks) > 2 and marks[-1][1] - marks[0][1] > seconds:
            simulation.loop.stop()

    observer.evaluate = timed  # type: ignore[method-assign]
    simulation.run()
    return marks


def _whole_hours(iterations_per_s: float) -> float:
    """Return the hours of all training steps and gradients of pairs, at the measured rate of iterations."""
    gradients_per_s = iterations_per_s * (CLIENTS + SAMPLING_SCALE * (CLIENTS - 1))  # two for each pair
    return (CLIENTS * ITERATIONS + pair_gradients(CLIENTS, ITERATIONS)) / gradients_per_s / 3600
