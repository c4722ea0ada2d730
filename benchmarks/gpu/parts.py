"""A part of the measurements, and storage of its rows during the run."""

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Effort:
    """Device and amount of work of a measurement.

    device: device to compare with the CPU. share: share of the full amount of work.
    """

    device: torch.device
    share: float = 1.0


@dataclass(frozen=True)
class Part:
    """A section of the page.

    rows: function that yields the rows. limit_s: wall-clock seconds at share 1.
    """

    title: str
    text: str
    rows: Callable[[Effort], Iterator[Row]]
    limit_s: float


def run(part: Part, effort: Effort, file: Path) -> None:
    """Measure a part; `file` always contains its rows so far, and its error if it fails."""
    found: dict[str, Any] = {"rows": [], "failed": None, "seconds": 0.0}
    started = time.perf_counter()
    try:
        for row in part.rows(effort):
            found["rows"].append(dict(row))
            print(f"{time.perf_counter() - started:4.0f} s  {shown(row)}", flush=True)
            _write(file, found, started)
    except Exception:
        found["failed"] = traceback.format_exc()
        print(found["failed"], flush=True)
    _write(file, found, started)


def _write(file: Path, found: dict[str, Any], started: float) -> None:
    found["seconds"] = time.perf_counter() - started
    file.write_text(json.dumps(found, indent=1), encoding="utf-8")


def shown(row: Row) -> str:
    """Return a row in one line."""
    return ", ".join(f"{name}: {cell(value)}" for name, value in row.items())


def cell(value: Any) -> str:
    """Return a value for a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value).strip().rpartition("\n")[2].replace("|", "/")


def peak_bytes(device: torch.device) -> int | None:
    """Return the peak memory of tensors since the previous call; None on a CPU, which has no such count."""
    if device.type != "cuda":
        return None
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return int(peak)


def in_gb(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / 1e9
