"""How long CoBo's cross-device experiment takes, from a minute of it."""

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from benchmarks.gpu.parts import Effort, Row, in_gb, peak_bytes
from benchmarks.gpu.stand_ins import stand_ins
from benchmarks.utilisation import CLIENTS, CROSS_DEVICE, ITERATIONS
from protocols.cobo.settings import pair_probability
from sim.run.live.simulation import Simulation
from sim.run.setup.builder import built
from sim.scenario.scenario import load_scenario

TITLE = "CoBo, cross-device"
TEXT = f"""\
The scenario `cobo_cross_device` as it is ({CLIENTS} clients, ResNet-9, batches of 128, {ITERATIONS:,}
iterations), with images that are stand-ins, for some wall seconds. An iteration costs a share of its own and
a share for each pair of clients that it compares, of which there are ever fewer; with both, fitted, follows
how long all iterations take, measuring not counted. In the paper they took 28 hours on four V100."""

SECONDS = 25.0
EVERY = 5
SMALL = ["model.width=8", "model.groups=4", "training.batch_size=8", "data.test_samples=20"]


def rows(effort: Effort) -> Iterator[Row]:
    precisions = ("float32", "tf32", "bfloat16") if effort.device.type == "cuda" else ("float32",)
    for precision in precisions:
        yield _row(effort, precision)


def _row(effort: Effort, precision: str) -> Row:
    small = effort.share < 1
    given = [f"engine.precision={precision}", f"run.evaluate_every={EVERY} iterations"]
    scenario = load_scenario("cobo_cross_device", given + (SMALL if small else []))
    peak_bytes(effort.device)
    with stand_ins(50 if small else 500), built(scenario, None, str(effort.device)) as simulation:
        marks = _marks(simulation, SECONDS * effort.share)
        found = _fitted(marks)
        statistics = simulation.engine.statistics
        return {
            "precision": precision,
            "iterations": found[0],
            "iterations/s": found[1],
            "whole, hours": found[2],
            "s an iteration": found[3],
            "s a pair": found[4],
            "in flushes": statistics.seconds / (marks[-1][1] - marks[0][1]),
            "mean batch": statistics.mean_batch,
            "peak, GB": in_gb(peak_bytes(effort.device)),
        }


def _marks(simulation: Simulation, seconds: float) -> list[tuple[int, float, float]]:
    """Iterations until then, and when measuring began and ended, at each evaluation of the run."""
    marks: list[tuple[int, float, float]] = []
    evaluate, observer = simulation.observer.evaluate, simulation.observer

    def timed(*, at_end: bool = False) -> None:
        if at_end:
            return
        simulation.engine.flush()
        began = time.perf_counter()
        evaluate()
        marks.append((EVERY * len(marks), began, time.perf_counter()))
        if marks[-1][2] - marks[0][2] > seconds:
            simulation.loop.stop()

    observer.evaluate = timed  # type: ignore[method-assign]
    simulation.run()
    return marks


def _fitted(marks: list[tuple[int, float, float]]) -> tuple[int, float, float, float, float]:
    """Iterations, per second; hours of all; seconds of one without pairs, and of a pair."""
    pairs = CLIENTS * (CLIENTS - 1) / 2
    shares = [pair_probability(CROSS_DEVICE, t, CLIENTS) for t in range(1, ITERATIONS + 1)]
    compared = np.array(shares) * pairs
    took = np.array([after[1] - before[2] for before, after in pairwise(marks)])
    # The first ones warm up.
    work = np.array([[EVERY, compared[begin : begin + EVERY].sum()] for begin, *_ in marks[:-1]])
    used = slice(1, None) if len(took) > 3 else slice(None)
    of_one, of_pair = np.maximum(np.linalg.lstsq(work[used], took[used], rcond=None)[0], 0.0)
    hours = (ITERATIONS * of_one + compared.sum() * of_pair) / 3600
    return marks[-1][0], float(marks[-1][0] / took.sum()), float(hours), float(of_one), float(of_pair)
