"""Sampling profile of a whole run, by part of the program."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from benchmarks import growth, whole_run
from benchmarks.measuring import Effort, Say, interleaved, table
from sim.core.observer import Observer
from sim.learning.engine import Engine
from sim.scenario.scenario import Scenario

ROOT = Path(__file__).parent.parent
INTERVAL_S = 0.001  # of CPU time, between two samples; the kernel's clock may tick more slowly
PARTS = (
    ("sim/learning/", "jobs and the pending graph"),
    ("sim/core/client_training.py", "jobs and the pending graph"),
    ("sim/kernel/random.py", "network, random numbers, membership"),
    ("sim/kernel/", "event loop and tasks"),
    ("sim/world/devices/device.py", "devices"),
    ("sim/world/devices/slowness.py", "devices"),
    ("sim/world/timeline.py", "devices"),
    ("sim/world/", "network, random numbers, membership"),
    ("actors/codec.py", "sizes of messages"),
    ("actors/", "actors and mailboxes"),
    ("protocols/", "the protocol itself"),
    ("sim/", "trace and observer"),
)
"""Start of a file's path (the first match counts) and the part of the program that it belongs to."""
TENSORS, OTHER = "tensor work: the engine's flushes", "other"

TEXT = """\
The whole runs from the previous sections, including the run with 10 local steps, are sampled every few
milliseconds of CPU time.
The table gives the share of this time in each part of the program, without the evaluations of models by the
observer. A sample counts for the innermost function of coterie, including the functions of Python, numpy or
torch that it calls. It represents the CPU time since the previous sample, because a long
call into torch is interrupted only at its end."""


class Sampler:
    """Sampler of CPU seconds by part of the program, which samples the running code when a timer fires."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._last_s = 0.0
        self._striking = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample the code inside the block; only in the main thread."""
        before = signal.signal(signal.SIGPROF, self._strike)
        self._last_s = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, before)

    def shares(self) -> dict[str, float]:
        """Return the share of the time in each part."""
        total = self.seconds.total()
        return {part: seconds / total for part, seconds in self.seconds.items()}

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._striking:  # Python lets the next one interrupt this
            return
        self._striking = True
        now_s = time.process_time()
        self._count(part_of(frame), now_s - self._last_s)
        self._last_s = now_s
        self._striking = False

    def _count(self, part: str | None, seconds: float) -> None:
        if part is not None:
            self.seconds[part] += seconds


def part_of(frame: FrameType | None) -> str | None:
    """Return the part of the program of a frame and its callers; None in an evaluation outside flushes."""
    innermost = None
    while frame is not None:
        if frame.f_code is Engine._run.__code__:
            return TENSORS
        if frame.f_code is Observer.evaluate.__code__:
            return None
        innermost = innermost or part_of_file(frame.f_code.co_filename)
        frame = frame.f_back
    return innermost or OTHER


@cache
def part_of_file(filename: str) -> str | None:
    """Return the part of the program that a file belongs to; None for all other files."""
    path = Path(filename)
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).as_posix()
    return next((part for beginning, part in PARTS if name.startswith(beginning)), None)


def profile(chosen: Scenario, repetitions: int) -> dict[str, float]:
    """Return the share of the time of some equal runs in each part of the program."""
    sampler = Sampler()

    def sampled() -> None:
        simulation = whole_run.built(chosen)
        with closing(simulation), sampler.running():
            simulation.run()

    interleaved({"profile": sampled}, repetitions)
    return sampler.shares()


def measure(effort: Effort, say: Say) -> str:
    """Return the section on the time by part of the program, in Markdown."""
    runs: dict[str, Scenario] = {}
    for label, model in whole_run.MODELS.items():
        for clients in effort.sizes(*whole_run.PERIODS):
            periods = max(2, round(whole_run.PERIODS[clients] * effort.share))
            runs[f"{label}, {clients:,}"] = whole_run.scenario(model, clients, periods)
    periods = max(2, round(growth.MANY_STEPS_PERIODS * effort.share))
    many = whole_run.scenario(growth.MODEL, 100, periods, steps=growth.MANY_STEPS)
    runs[f"MLP 64-100-10, 100, {growth.MANY_STEPS} steps"] = many
    found = {}
    for label, chosen in runs.items():
        found[label] = profile(chosen, effort.repetitions)
        say(f"profile, {label}: {found[label].get(TENSORS, 0):.0%} tensor work")
    parts = dict.fromkeys([TENSORS, *[part for _, part in PARTS], OTHER])
    rows = [[part, *[f"{shares.get(part, 0):.0%}" for shares in found.values()]] for part in parts]
    return "\n\n".join(["## Time by part of the program", TEXT, table(["part of the program", *found], rows)])
