"""Counts of Python bytecodes and frames per update, which do not depend on the load of the machine."""

import sys
from collections import Counter
from contextlib import closing
from types import CodeType, FrameType
from typing import Any, NamedTuple

from benchmarks import whole_run
from benchmarks.measuring import Effort, Say, table
from benchmarks.profiling import OTHER, PARTS, part_of_file
from sim.core.observer import Observer
from sim.learning.engine import Engine

CLIENTS = 100
PERIODS = (15, 30)  # the first message of each pair costs more, and later periods have fewer first messages
_LEFT_OUT = (Engine._run.__code__, Observer.evaluate.__code__)

TEXT = f"""\
Asynchronous gossip as above with logistic regression and {CLIENTS} clients: the table gives the bytecodes
that Python executes for each update, and the frames that it enters or resumes, outside the engine's flushes
and the observer's evaluations. The counts depend on the release of Python, but not on the machine."""


class Counts(NamedTuple):
    """Updates of a run, and its bytecodes and frames by part of the program."""

    updates: int
    bytecodes: Counter[str]
    frames: Counter[str]

    @property
    def bytecodes_per_update(self) -> float:
        """Bytecodes executed for each update."""
        return self.bytecodes.total() / self.updates

    @property
    def frames_per_update(self) -> float:
        """Frames entered or resumed for each update."""
        return self.frames.total() / self.updates


class _Tracer:
    """Count executed code by code object, except for excluded functions and their callees."""

    def __init__(self) -> None:
        self.bytecodes: Counter[CodeType] = Counter()
        self.frames: Counter[CodeType] = Counter()
        self._is_left_out = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._is_left_out:
            return None
        frame.f_trace_lines = False
        if frame.f_code in _LEFT_OUT:
            self._is_left_out = True
            return self._until_its_end
        self.frames[frame.f_code] += 1
        frame.f_trace_opcodes = True
        return self._count

    def _count(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.bytecodes[frame.f_code] += 1
        return self._count

    def _until_its_end(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._is_left_out = False
        return self._until_its_end


def count(clients: int, periods: int) -> Counts:
    """Count the bytecodes and frames of a run from its building to its end."""
    simulation, tracer = (
        whole_run.built(whole_run.scenario("logistic-regression", clients, periods)),
        _Tracer(),
    )
    before = sys.gettrace()
    with closing(simulation):
        sys.settrace(tracer)
        try:
            simulation.run()
        finally:
            sys.settrace(before)
    by_part = []
    for counted in (tracer.bytecodes, tracer.frames):
        found: Counter[str] = Counter()
        for code, number in counted.items():
            found[part_of_file(code.co_filename) or OTHER] += number
        by_part.append(found)
    return Counts(simulation.engine.statistics.updates, *by_part)


def measure(effort: Effort, say: Say) -> str:
    """Return the section on bytecodes, in Markdown."""
    counts = [count(CLIENTS, periods) for periods in PERIODS]
    names = dict.fromkeys([*[part for _, part in PARTS], OTHER])
    rows = [[name, *[f"{each.bytecodes[name] / each.updates:,.0f}" for each in counts]] for name in names]
    rows.append(["bytecodes", *[f"{each.bytecodes_per_update:,.0f}" for each in counts]])
    rows.append(["frames", *[f"{each.frames_per_update:.0f}" for each in counts]])
    for number, periods in enumerate(PERIODS, 1):
        say(f"bytecodes, {periods} periods: {rows[-2][number]}, {rows[-1][number]} frames")
    head = ["part of the program", *[f"{periods} periods" for periods in PERIODS]]
    return "\n\n".join(["## Bytecodes", TEXT, table(head, rows)])
