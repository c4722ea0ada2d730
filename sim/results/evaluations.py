"""Evaluations of a run, reported while it runs or read from its results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.results.metrics import ALL

if TYPE_CHECKING:
    from sim.results.store.run_directory import RunDirectory


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: all rows of `metrics.parquet` at its time.

    time: virtual seconds. measured: by name, such as "accuracy", the value of each measured client or server;
    nan if its model is not finite. totals: sums over the run so far, such as "bytes_sent".
    """

    time: float
    measured: Mapping[str, Mapping[str, float]]
    totals: Mapping[str, float]

    @classmethod
    def of(cls, time_s: float, rows: Iterable[tuple[str, str, float]]) -> Evaluation:
        """Return the evaluation with these measurements, (actor, name, value)."""
        measured: dict[str, dict[str, float]] = {}
        totals: dict[str, float] = {}
        for actor, name, value in rows:
            if actor == ALL:
                totals[name] = value
            else:
                measured.setdefault(name, {})[actor] = value
        return cls(time_s, measured, totals)

    def scalars(self) -> dict[str, float]:
        """Return numbers for trackers: "accuracy/mean", "/min" and "/max", and totals as "all/bytes_sent".

        They cover finite values; names without finite values are left out.
        """
        found: dict[str, float] = {}
        for name, by_actor in self.measured.items():
            if values := list(filter(math.isfinite, by_actor.values())):
                mean = math.fsum(values) / len(values)
                found |= {f"{name}/mean": mean, f"{name}/min": min(values), f"{name}/max": max(values)}
        return found | {f"{ALL}/{name}": each for name, each in self.totals.items() if math.isfinite(each)}


def evaluations(directory: RunDirectory) -> Iterator[Evaluation]:
    """Yield the evaluations in a results folder, in order. Raises UserError."""
    frame = directory.scan("metrics").collect()
    for part in frame.partition_by("time", maintain_order=True) if len(frame) else ():
        rows = zip(*[part[column].to_list() for column in ("actor", "name", "value")], strict=True)
        yield Evaluation.of(part["time"][0], rows)
