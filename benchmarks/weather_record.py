"""What each run of `benchmarks.weather` came to: kept, so that the tables can be measured in parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.weather_table import Outcome
from sim.errors import UserError


class Place(NamedTuple):
    """Which run: a line of the record."""

    data: str
    family: str
    method: str
    weather: str
    seed: int


class Entry(NamedTuple):
    """What one run came to, and the commit of the product that it was made with."""

    outcome: Outcome
    commit: str


Record = dict[Place, Entry]


def load(file: Path) -> Record:
    """The record in a file, empty where there is no file; UserError with the line that cannot be read."""
    record: Record = {}
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            place = Place(**entry["run"])
            outcome = Outcome(**entry["outcome"])
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"is no run of the weather table: {error}", file=file, line=number) from error
        graphs = {name: tuple(getattr(outcome, name)) for name in ("graph", "graph_of_others")}
        record[place] = Entry(replace(outcome, **graphs), entry["commit"])
    return record


def save(file: Path, record: Mapping[Place, Entry]) -> None:
    """Write a record, a line for each run, in an order that does not hang on that of measuring."""
    lines = [
        json.dumps({"run": place._asdict(), "commit": entry.commit, "outcome": asdict(entry.outcome)})
        for place, entry in sorted(record.items())
    ]
    new = file.with_name(f"{file.name}.new")
    new.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    new.replace(file)
