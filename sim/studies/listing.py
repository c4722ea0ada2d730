"""Which runs lie in a folder, for a list."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sim.errors import UserError
from sim.results.outcome import protocol
from sim.results.store import RunDirectory

COLUMNS = ("scenario", "protocol", "seed", "started", "result", "overrides", "state", "directory")
"""What is told of a run, and what filters and orders may name."""
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
    """Those rows whose columns hold, or with "=" are, what `where` says, in the order of a column. UserError.

    where: ``"protocol=cobo"``, ``"overrides~network.loss"``. sort: a column, with "-" before it the other way.
    """
    kept = list(rows)
    for condition in where:
        sign = (
            "="
            if "=" in condition and ("~" not in condition or condition.index("=") < condition.index("~"))
            else "~"
        )
        column, _, wanted = map(str.strip, condition.partition(sign))
        if sign not in condition or column not in COLUMNS:
            raise UserError(
                f"--where {condition}: must be column=value, or column~part of it; columns: {', '.join(COLUMNS)}"
            )
        kept = [
            row for row in kept if (str(row[column]) == wanted if sign == "=" else wanted in str(row[column]))
        ]
    if sort is not None:
        column = sort.removeprefix("-")
        if column not in COLUMNS:
            raise UserError(
                f"--sort {sort}: must be one of {', '.join(COLUMNS)}, with - before it the other way"
            )
        known = [row for row in kept if row[column] is not None]
        known.sort(key=lambda row: row[column], reverse=sort.startswith("-"))
        kept = known + [row for row in kept if row[column] is None]
    return kept
