"""Figures (numbers and tables) of a run, and of its repetition: equal, within chance, or different."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import polars as pl
from scipy import stats

from sim.errors import UserError, one_line
from sim.results.store.run_directory import RunDirectory
from sim.results.text import counted
from sim.studies.artifacts.verdict import Verdict

_NOT_SIMULATED = {
    *("format", "scenario", "overrides", "wall_seconds", "engine", "fork"),
    *("notices", "warnings", "failures", "failure_traceback", "interrupted", "finished"),
}
"""Keys of a summary about texts, about the machine, or about the execution of the run."""
_TABLES = ("metrics", "graph")
_LEVEL, _SEEDS = 0.99, 3
"""Level of the intervals over seeds, and the smallest number of seeds for one."""


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of a run.

    low, high: range in which the repeated value may lie by chance; None if only the same value is
    accepted. place: position of its first different value in a table.
    """

    name: str
    published: Any
    reproduced: Any
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    place: str = ""

    def __str__(self) -> str:
        around = "" if self.low is None else f", range by chance {self.low:.6g} to {self.high:.6g}"
        name = f"{self.name}, {self.place}" if self.place else self.name
        return f"{name}: published {self.published}, reproduced {self.reproduced}{around}: {self.verdict}"


def compare_figures(
    published: RunDirectory,
    reproduced: RunDirectory,
    others: Sequence[Mapping[str, Any]],
    *,
    tolerance: float,
) -> list[ComparedFigure]:
    """Return the figures of a run, each compared with the figure of the repetition.

    Runs with equal traces must have equal figures. Otherwise, the main figures may differ by as much as
    between two seeds. They must be equal if the same code ran with the same libraries on the same kind of
    machine. The allowed range contains all values within `tolerance`, relative to the published figure, and
    the prediction interval of a new seed. The interval is computed from `others`, the published summaries of
    runs that differ only in the seed.
    """
    first, second = published.summary(), reproduced.summary()
    same_trace = first["trace_hash"] == second["trace_hash"]
    by_chance = not same_trace and conditions_of_values(published) != conditions_of_values(reproduced)
    trace = Verdict.equal if same_trace else Verdict.chance if by_chance else Verdict.different
    figures = [ComparedFigure("trace_hash", first["trace_hash"], second["trace_hash"], trace)]
    names = (
        values_by_path(first).keys() | values_by_path(second).keys() if same_trace else main_figures(first)
    )
    of_first, of_second = values_by_path(first), values_by_path(second)
    for name in sorted(names):
        one, two = of_first.get(name), of_second.get(name)
        if one == two:
            figures.append(ComparedFigure(name, one, two, Verdict.equal))
        elif not by_chance or not (_is_number(one) and _is_number(two)):
            figures.append(ComparedFigure(name, one, two, Verdict.different))
        else:
            figures.append(
                _is_within_chance(
                    name, one, two, [values_by_path(each).get(name) for each in others], tolerance
                )
            )
    if same_trace:
        figures += [_compare_table(table, published, reproduced) for table in _TABLES]
    return figures


def conditions_of_values(run: RunDirectory) -> tuple[Any, Any]:
    """Return what determines the last digits of a run's values: code, libraries, data, and processor."""
    provenance = run.provenance()
    machine = provenance.get("machine")
    return provenance.get("made_by"), machine.get("cpu") if isinstance(machine, dict) else None


def main_figures(summary: Mapping[str, Any]) -> list[str]:
    """Return the names of the figures that appear in tables."""
    measure = summary.get("measure") or "accuracy"
    wanted = [f"{measure}.mean", f"{measure}.worst_decile", "loss.mean", "better_than_alone", "graph.l1"]
    wanted += ["messages.bytes", "work.steps.mean", "virtual_seconds"]
    found = values_by_path(summary)
    return [name for name in wanted if found.get(name) is not None]


def values_by_path(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the simulated values of a summary by their paths; a list is one value."""
    return dict(_leaves({key: value for key, value in summary.items() if key not in _NOT_SIMULATED}, ()))


def _leaves(value: Any, above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield ".".join(above), value
        return
    for key, item in value.items():
        yield from _leaves(item, (*above, str(key)))


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_within_chance(
    name: str, one: float, two: float, others: Sequence[Any], tolerance: float
) -> ComparedFigure:
    known = np.array([each for each in others if _is_number(each)], dtype=np.float64)
    low, high = one - tolerance * abs(one), one + tolerance * abs(one)
    if len(known) >= _SEEDS and known.std() > 0:
        middle = float(known.mean())
        quantile = float(stats.t.ppf((1 + _LEVEL) / 2, len(known) - 1))
        reach = quantile * float(known.std(ddof=1)) * math.sqrt(1 + 1 / len(known))
        low, high = min(low, middle - reach), max(high, middle + reach)
    verdict = Verdict.chance if low <= two <= high else Verdict.different
    return ComparedFigure(name, one, two, verdict, low, high)


def _rows(run: RunDirectory, table: str) -> pl.DataFrame:
    """Return all rows of a table. Raises UserError if they cannot be read."""
    try:
        return run.scan(table).collect()
    except pl.exceptions.PolarsError as error:
        raise UserError(one_line(f"is damaged: {error}", 200), run.table_path(table)) from None


def _compare_table(table: str, published: RunDirectory, reproduced: RunDirectory) -> ComparedFigure:
    """Compare all rows of a table."""
    one, two = _rows(published, table), _rows(reproduced, table)
    name, rows, other_rows = f"{table}.parquet", counted(one.height, "row"), counted(two.height, "row")
    if one.equals(two):
        return ComparedFigure(name, rows, other_rows, Verdict.equal)
    height = min(one.height, two.height)
    differs = [one[key][:height].ne_missing(two[key][:height]) for key in one.columns]
    row = pl.select(pl.any_horizontal(*differs)).to_series().arg_max() if height else None
    if row is None or not any(each[row] for each in differs):  # the longer table has more rows
        return ComparedFigure(name, rows, other_rows, Verdict.different, place=f"equal up to row {height:,}")
    column = next(key for key, each in zip(one.columns, differs, strict=True) if each[row])
    keys = [
        key for key in one.columns if key not in (column, "value", "weight") and one[key][row] is not None
    ]
    at = ", ".join(f"{key} {one[key][row]}" for key in keys)
    place = f"row {row + 1:,} ({at}), {column}"
    return ComparedFigure(name, one[column][row], two[column][row], Verdict.different, place=place)
