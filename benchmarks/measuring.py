"""Functions of all benchmarks: interleaved repetitions, medians, Markdown, description of the machine."""

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
"""Function that reports progress, one line at a time."""


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Effort:
    """Amount of work of a measurement.

    repetitions: of each measurement. share: share of the full amount of work in each. size_max: the largest
    number of actors or clients. device: device on which models are trained.
    """

    repetitions: int
    share: float
    size_max: int
    device: torch.device = CPU

    def sizes(self, *sizes: int) -> list[int]:
        """Return the given sizes that are not too large."""
        return [size for size in sizes if size <= self.size_max]


FULL = Effort(repetitions=5, share=1.0, size_max=100_000)
QUICK = Effort(repetitions=2, share=0.1, size_max=100)


def interleaved(
    contenders: Mapping[str, Callable[[], Measured]], repetitions: int
) -> dict[str, list[Measured]]:
    """Return the measurements of each contender, `repetitions` of each, after one that does not count.

    The contenders take turns, so that other load on the machine affects all of them equally. The garbage
    collector is off during a measurement, as in a run of a scenario.
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
    """Return the median over the repetitions of rate / reference, each pair measured in the same turn."""
    return statistics.median(rate / reference for rate, reference in zip(rates, references, strict=True))


def per_second(rates: Sequence[float]) -> str:
    """Return the median of some rates, for a table."""
    rate = statistics.median(rates)
    return f"{rate / 1000:,.1f}k" if rate >= 1000 else f"{rate:.{0 if rate >= 10 else 1}f}"


def times(ratio: float) -> str:
    """Return a ratio, for a table."""
    digits = 0 if ratio >= 10 else 1 if ratio >= 1 else 2
    return f"{ratio:.{digits}f}x"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with its first column aligned left and the others right."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])


def steps_per_second(take_steps: Callable[[], int], seconds: float, device: torch.device) -> float:
    """Return the steps per second of wall-clock time over calls that take `seconds` in total."""
    steps, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        steps += take_steps()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return steps / elapsed


def machine(device: torch.device) -> str:
    """Return processor, memory, system and relevant versions as a Markdown list."""
    # Some systems do not report their load.
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
    """Return the peak memory of this process; 0 if the system does not report it.

    The value comes from /proc if it exists, because `ru_maxrss` on Linux starts with the memory of the
    parent.
    """
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    try:
        import resource
    except ImportError:  # on Windows
        return 0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024
