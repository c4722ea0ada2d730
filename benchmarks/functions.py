"""Cost of a method's functions: gossip with int8 messages, by `apply`, compared with plain gossip."""

import gc
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import Effort, Say, interleaved, median_ratio, per_second, table
from benchmarks.whole_run import MODELS, PERIODS, built, run, scenario
from sim.learning.evaluation import measure_models
from sim.scenario.scenario import Scenario

INT8 = Path(__file__).parents[1] / "docs" / "examples" / "int8_gossip.py"
PERIODS_COUNTED = 10  # of the count of opcodes, which is slow and the same every time

TEXT = f"""\
The whole runs from above are compared with the same runs with messages of one byte per parameter
(`docs/examples/int8_gossip.py`). There, `apply` converts every sent model into levels, and all received
levels into a model: two more functions for each training step. Otherwise, both do the same work: as
many pushes to the same peers at the same times, merges, training steps and evaluations. Rates are per
second of CPU time. *Opcodes* are the instructions that Python executes for an update, counted in a run of
{PERIODS_COUNTED} periods. They are not a time, but they are the same on every machine under any load. They
exclude the work inside torch and numpy."""


def measure(effort: Effort, say: Say) -> str:
    """Return the section on functions of a method, in Markdown."""
    rows = []
    for label, model in MODELS.items():
        for clients in effort.sizes(*PERIODS):
            periods = max(2, round(PERIODS[clients] * effort.share))
            protocols = {"plain": "gossip", "int8": f"{INT8}:Int8Gossip"}
            contenders = {
                name: partial(run, scenario(model, clients, periods, protocol=protocol))
                for name, protocol in protocols.items()
            }
            runs = interleaved(contenders, effort.repetitions)
            plain, int8 = ([found.updates_per_cpu_s for found in runs[name]] for name in contenders)
            counted = [
                opcodes(scenario(model, clients, min(periods, PERIODS_COUNTED), protocol=protocol))
                for protocol in protocols.values()
            ]
            ratio, counts = f"{median_ratio(int8, plain):.2f}x", [f"{count:,.0f}" for count in counted]
            say(f"int8 messages, {label}, {clients:,} clients: {ratio} of plain gossip; opcodes {counts}")
            rows.append([label, f"{clients:,}", f"{periods}", per_second(plain), per_second(int8), ratio])
            rows[-1] += [*counts, f"{counted[0] / counted[1]:.2f}x"]
    head = ["model", "clients", "periods", "plain, updates/s", "int8, updates/s", "int8 to plain"]
    head += ["plain, opcodes", "int8, opcodes", "plain to int8"]
    return "\n\n".join(["## Functions of a method", TEXT, table(head, rows)])


def opcodes(chosen: Scenario) -> float:
    """Return the opcodes that Python executes for each update of a run, without evaluations."""
    executed = 0

    def count(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal executed
        executed += event == "opcode"
        return count

    def enter(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    def uncounted(*arguments: Any) -> Any:
        sys.settrace(None)
        try:
            return measure_models(*arguments)
        finally:
            sys.settrace(enter)

    simulation, before = built(chosen), sys.gettrace()
    gc.disable()  # as while a scenario runs
    with closing(simulation), patch("sim.core.observer.measure_models", uncounted):
        sys.settrace(enter)
        try:
            simulation.run()
        finally:
            sys.settrace(before)
            gc.enable()
    return executed / simulation.engine.statistics.updates
