"""A list of the runs in a folder, for `coterie runs`."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.errors import UserError
from sim.results.outcome import protocol
from sim.results.store.run_directory import RunDirectory

COLUMNS = ("scenario", "protocol", "seed", "started", "result", "overrides", "state", "directory")
"""The columns of the list, which can be filtered and sorted by."""
Row = dict[str, Any]


def runs_in(folder: Path) -> list[Row]:
    """Every run in a folder and the folders in it, by name. UserError where there is no such folder."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder; --out of `coterie run` and `coterie sweep` names it, or ./runs"
        )
    found = []
    for summary in sorted([*folder.glob("summary.json"), *folder.glob("[!.]*/summary.json")]):
        with suppress(UserError):  # what is damaged, or not ours, is no run
            found.append(_row(RunDirectory.load(summary.parent)))
    return found


def _row(directory: RunDirectory) -> Row:
    summary = directory.summary()
    started = ""
    with suppress(UserError):
        started = str(directory.provenance().get("started") or "").replace("T", " ")[:16]
    name, result = _result(summary)
    return {
        "scenario": summary.get("scenario"),
        "protocol": protocol(summary),
        "seed": summary.get("seed"),
        "started": started,
        "measure": name,
        "result": result,
        "overrides": " ".join(
            each for each in map(str, summary.get("overrides") or ()) if "run.seed=" not in each
        ),
        "state": "finished"
        if summary.get("finished", True)
        else "interrupted"
        if summary.get("interrupted")
        else "failed",
        "directory": str(directory.path),
    }


def _result(summary: dict[str, Any]) -> tuple[str, float | None]:
    for name in ("accuracy", "loss", "distance"):
        found = summary.get(name)
        if isinstance(found, dict) and isinstance(found.get("mean"), int | float):
            return name, found["mean"]
    return "", None


def chosen(rows: Sequence[Row], where: Sequence[str], sort: str | None) -> list[Row]:
    """The rows that match all of `where`, sorted by a column. Raises UserError.

    where: ``"protocol=cobo"``, or ``"overrides~network.loss"`` if it contains that. sort: a column,
    descending with "-" before it.
    """
    kept = list(rows)
    for condition in where:
        match = re.fullmatch(r"\s*(\w+)\s*([=~])\s*(.*?)\s*", condition)
        if match is None or match[1] not in COLUMNS:
            allowed = f"column=value, or column~part of it; columns: {', '.join(COLUMNS)}"
            raise UserError(f"--where {condition}: must be {allowed}")
        column, sign, wanted = match.groups()
        kept = [
            row for row in kept if (wanted == str(row[column]) if sign == "=" else wanted in str(row[column]))
        ]
    if sort is None:
        return kept
    column = sort.removeprefix("-")
    if column not in COLUMNS:
        raise UserError(f"--sort {sort}: must be one of {', '.join(COLUMNS)}, with - before it the other way")
    known = [row for row in kept if row[column] is not None]
    known.sort(key=lambda row: row[column], reverse=sort.startswith("-"))
    return known + [row for row in kept if row[column] is None]
