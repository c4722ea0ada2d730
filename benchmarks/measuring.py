"""What the benchmarks share: interleaved repetitions, medians, Markdown, and a description of the machine."""

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import TypeVar

import torch

Measured = TypeVar("Measured")
Say = Callable[[str], None]
"""Reports progress, a line at a time."""


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Effort:
    """How thoroughly to measure.

    repetitions: of each measurement. share: of the full amount of work in each. size_max: the largest number
    of actors or clients. device: where models are trained.
    """

    repetitions: int
    share: float
    size_max: int
    device: torch.device = CPU

    def sizes(self, *sizes: int) -> list[int]:
        """Those of `sizes` that are not too large."""
        return [size for size in sizes if size <= self.size_max]


FULL = Effort(repetitions=5, share=1.0, size_max=100_000)
QUICK = Effort(repetitions=2, share=0.1, size_max=100)


def interleaved(
    contenders: Mapping[str, Callable[[], Measured]], repetitions: int
) -> dict[str, list[Measured]]:
    """What each contender measured, `repetitions` times, after one time that does not count.

    They take turns, so that whatever else the machine does disturbs all of them alike. The garbage collector
    is off while one measures, as it is while a scenario runs.
    """
    for measure in contenders.values():
        measure()
    measured: dict[str, list[Measured]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, measure in contenders.items():
            gc.collect()
            gc.disable()
            try:
                measured[name].append(measure())
            finally:
                gc.enable()
    return measured


def median_ratio(rates: Iterable[float], references: Iterable[float]) -> float:
    """Median over the repetitions of rate / reference, each pair measured in the same turn."""
    return statistics.median(rate / reference for rate, reference in zip(rates, references, strict=True))


def per_second(rates: Sequence[float]) -> str:
    """The median of some rates, for a table."""
    rate = statistics.median(rates)
    return f"{rate / 1000:,.1f}k" if rate >= 1000 else f"{rate:.{0 if rate >= 10 else 1}f}"


def times(ratio: float) -> str:
    """A ratio, for a table."""
    digits = 0 if ratio >= 10 else 1 if ratio >= 1 else 2
    return f"{ratio:.{digits}f}x"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its first column to the left, the others to the right."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])


def steps_per_second(take_steps: Callable[[], int], seconds: float, device: torch.device) -> float:
    """Steps per second of wall time, over as many calls as take `seconds`; each returns the steps taken."""
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        steps += take_steps()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return steps / elapsed


def machine(device: torch.device) -> str:
    """Processor, memory, system and the versions that matter, as a Markdown list."""
    # Not every system tells its load.
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    versions = ", ".join(f"{name} {_version(name)}" for name in ("torch", "numpy", "simpy", "gossipy-dfl"))
    return "\n".join(
        [
            f"- {_processor()}, {os.cpu_count()} logical cores, {_memory()} of memory",
            f"- {platform.system()} {platform.release()}, Python {platform.python_version()}",
            f"- {versions}; torch used {torch.get_num_threads()} thread(s)",
            f"- load average when the benchmarks started: {load}",
            *([f"- {torch.cuda.get_device_name(device)}"] if device.type == "cuda" else []),
        ]
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or a processor without a name
        return platform.processor() or platform.machine()


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return "an unknown amount"


def peak_memory_bytes() -> int:
    """The most memory that this process has held; 0 where the system does not tell.

    From /proc where there is one, since on Linux `ru_maxrss` begins with what the parent process held.
    """
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    try:
        import resource
    except ImportError:  # on Windows
        return 0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024
