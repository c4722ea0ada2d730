"""List of the runs in a folder, for `coterie runs`."""

import re
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from sim.errors import UserError, one_line
from sim.results.measures import measure_called
from sim.results.outcome import cautions, protocol
from sim.results.store.formats import LaterFormat
from sim.results.store.output_dir import HIDDEN, is_under_way
from sim.results.store.run_directory import RunDirectory

COLUMNS = ("scenario", "protocol", "seed", "started", "result", "overrides", "state", "warnings", "directory")
"""Columns of the list, for filters and sorting."""
Row = dict[str, Any]


def runs_in(folder: Path) -> list[Row]:
    """Return the runs at and directly in a folder, by name. Raises UserError if the folder is missing.

    Running, killed and damaged runs are included, with the facts known about them.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder; name the --out folder of `coterie run` or `sweep`, by default ./runs"
        )
    return [_row(each) for each in [folder, *sorted(folder.iterdir())] if _is_run(each)]


def _is_run(folder: Path) -> bool:
    """Return True if a folder contains the first or the last files that a run writes."""
    if folder.name.startswith(".") and not HIDDEN.fullmatch(folder.name):
        return False
    has_started = all((folder / name).is_file() for name in ("scenario.toml", "provenance.json"))
    return has_started or (folder / "summary.json").is_file()


def _row(folder: Path) -> Row:
    directory, summary, state = RunDirectory(folder), dict[str, Any](), "damaged"
    if HIDDEN.fullmatch(folder.name):
        state = "running" if is_under_way(folder) else "killed"
    try:
        directory = RunDirectory.load(folder)
        directory.require_sizes()  # reading all files of many runs would take too long
        summary = directory.summary()
        failed = "interrupted" if summary["interrupted"] else "failed"
        state = "finished" if summary["finished"] else failed
    except LaterFormat:
        state = "of a later version"
    except UserError:
        pass
    provenance = _read_or_empty(directory.provenance)
    known = summary or _scenario_facts(directory)
    measured = summary or _measured_by_now(_read_or_empty(directory.progress))
    seed, (name, result) = known.get("seed"), _result(measured)
    overrides = known.get("overrides") or provenance.get("overrides")
    given = overrides if isinstance(overrides, list) else []
    return {
        "scenario": one_line(known.get("scenario") or ""),
        "protocol": one_line(protocol(known)) if known.get("protocol") else "",
        "seed": seed if isinstance(seed, int) else None,
        "started": one_line(provenance.get("started") or "").replace("T", " ")[:16],
        "measure": name,
        "result": result,
        "overrides": one_line(" ".join(each for each in map(str, given) if "run.seed=" not in each)),
        "state": state,
        "warnings": [one_line(each) for each in cautions(summary)] if summary else [],
        "directory": str(directory.path),
    }


def _read_or_empty(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    with suppress(UserError):
        return read()
    return {}


def _measured_by_now(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the last evaluation of a running run, in the format of a summary."""
    name = progress.get("measure", "accuracy")
    if not isinstance(name, str) or not name.isidentifier():
        return {}
    return {"measure": name, name: {"mean": progress.get("reached", progress.get("accuracy"))}}


def _scenario_facts(directory: RunDirectory) -> dict[str, Any]:
    """Return the facts of a run without a summary from its scenario."""
    try:
        table = tomllib.loads(directory.scenario_text())
        run, method = table["run"], table["protocol"]
        return {
            "scenario": run.get("name"),
            "seed": run.get("seed"),
            "protocol": method.get("name"),
            "alone": method.get("alone"),
        }
    except (UserError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return {}


def _result(summary: dict[str, Any]) -> tuple[str, float | None]:
    for name in map(str, (summary.get("measure"), "accuracy", "loss", "distance")):
        found = summary.get(name)
        if isinstance(found, dict) and isinstance(found.get("mean"), int | float):
            return name, found["mean"]
    return "", None


def _quality(row: Row) -> float:
    """Return the result of a run, so that higher is better."""
    result: float = row["result"]
    return result if measure_called(row["measure"]).higher_is_better else -result


def filter_and_sort_runs(rows: Sequence[Row], where: Sequence[str], sort: str | None) -> list[Row]:
    """Return the rows that match all of `where`, sorted by a column. Raises UserError.

    where: ``"protocol=cobo"`` for equality, ``"overrides~network.loss"`` for substrings. sort: a column,
    descending with the prefix "-". The column "result" is sorted from the worst run to the best one.
    """
    kept = list(rows)
    for condition in where:
        match = re.fullmatch(r"\s*(\w+)\s*([=~])\s*(.*?)\s*", condition)
        if match is None or match[1] not in COLUMNS:
            allowed = f"column=value or column~substring, where column is one of {', '.join(COLUMNS)}"
            raise UserError(f"--where {condition}: must be {allowed}")
        column, sign, wanted = match.groups()
        kept = [
            row for row in kept if (wanted == str(row[column]) if sign == "=" else wanted in str(row[column]))
        ]
    if sort is None:
        return kept
    column = sort.removeprefix("-")
    if column not in COLUMNS:
        raise UserError(
            f"--sort {sort}: must be one of {', '.join(COLUMNS)}; for the reverse order, add the prefix -"
        )
    known = [row for row in kept if row[column] is not None]
    known.sort(key=_quality if column == "result" else itemgetter(column), reverse=sort.startswith("-"))
    return known + [row for row in kept if row[column] is None]
