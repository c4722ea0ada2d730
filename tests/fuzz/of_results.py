"""Result directories with damaged files, for `report` and for a run that finds them in its way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz import damage, tables
from tests.fuzz.case import Commands, Kind
from tests.fuzz.tables import shown
from tests.fuzz.values import TEXTS, odd_value

RESULTS = "finished-runs"  # beside the data: results of runs, each with the scenario that it came from
_TABLES = ("metrics", "graph", "events", "intervals")


@dataclass
class Results:
    """A result directory, and how its scenario is run once more, if it is."""

    directory: Path
    rerun: list[str]


class ResultDirectories(Kind):
    """Finished results with a spoiled table, summary or scenario, or with a file missing or replaced."""

    name = "result"

    def begin(self, folder: Path, rng: Random) -> Results:
        finished = sorted(path for path in Path("data", RESULTS).iterdir() if path.is_dir())
        source = rng.choice(finished)
        shutil.copytree(source, "runs", symlinks=True)
        shutil.copy(Path("runs", "scenario.toml"), "scenario.toml")
        Path("runs", "scenario.toml").unlink()
        directory = next(path for path in Path("runs").iterdir() if path.is_dir())
        rerun = ["run", "scenario.toml", "--quiet", *rng.choice(([], ["--overwrite"]))]
        return Results(directory, rerun if rng.random() < 0.2 else [])

    def change(self, state: Results, rng: Random) -> str:
        if not state.directory.is_dir():
            return "nothing is left to change"
        match rng.choice(("table",) * 4 + ("summary",) * 3 + ("bytes", "file", "swap")):
            case "table":
                return _spoil_table(state.directory / f"{rng.choice(_TABLES)}.parquet", rng)
            case "summary":
                return _spoil_summary(state.directory / "summary.json", rng)
            case "swap":
                return _swap(state.directory, rng)
            case how:
                path = rng.choice([*sorted(state.directory.iterdir()), state.directory])
                if how == "file" or not path.is_file():
                    return damage.of_file(path, rng)
                if not damage.can_be_read(path):
                    return "nothing"
                content, words = damage.of_bytes(path.read_bytes(), rng)
                path.write_bytes(content)
                return f"{path.name}: {words}"

    def commands(self, state: Results) -> Commands:
        return [*([state.rerun] if state.rerun else []), ["report", str(state.directory)]]


def _spoil_summary(path: Path, rng: Random) -> str:
    if not damage.can_be_read(path):
        return "nothing"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "nothing"
    if not isinstance(summary, dict) or not rng.randrange(15):
        path.write_text(json.dumps(odd_value(rng), default=str), encoding="utf-8", errors="replace")
        return "summary.json: something else"
    how = tables.change(summary, rng)
    path.write_text(json.dumps(summary, default=str), encoding="utf-8", errors="replace")
    return f"summary.json: {how}"


def _swap(directory: Path, rng: Random) -> str:
    one, other = (rng.choice(sorted(directory.glob("*.parquet")) or [directory / "x"]) for _ in range(2))
    if not (one.is_file() and other.is_file()) or one == other or one.is_symlink() or other.is_symlink():
        return "nothing"
    aside = directory / "swapped"  # not by reading them: one may have been made as large as a disk
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
    return f"{one.name} and {other.name} swapped"


def _spoil_table(path: Path, rng: Random) -> str:
    if not damage.can_be_read(path):
        return "nothing"
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError):
        return "nothing"
    how = rng.choice((_other_columns, _other_type, _other_values, _other_values, _other_rows))
    table, words = how(table, rng)
    pq.write_table(table, path)
    return f"{path.name}: {words}"


def _other_columns(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    if not table.column_names:
        return table, "nothing"
    name = rng.choice(table.column_names)
    match rng.choice(("without", "renamed", "more", "none")):
        case "without":
            return table.drop_columns([name]), f"without column {name}"
        case "renamed":
            names = [
                rng.choice(("x", "time", name.upper())) if own == name else own for own in table.column_names
            ]
            return table.rename_columns(names), f"columns {names}"
        case "more":
            return table.append_column("more", pa.nulls(len(table))), "one column more"
    return table.select([]), "no columns"


def _other_type(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    kinds = (
        pa.string(),
        pa.int64(),
        pa.float32(),
        pa.bool_(),
        pa.binary(),
        pa.timestamp("s"),
        pa.list_(pa.float64()),
    )
    if not table.column_names:
        return table, "nothing"
    place, kind = rng.randrange(table.num_columns), rng.choice(kinds)
    try:
        column = table.column(place).cast(kind, safe=False)
    except pa.ArrowException:
        column = pa.nulls(len(table), kind)
    name = table.column_names[place]
    return table.set_column(place, name, column), f"column {name} as {kind}"


def _other_values(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    if not table.num_columns or not len(table):
        return table, "nothing"
    place = rng.randrange(table.num_columns)
    values: list[Any] = table.column(place).to_pylist()
    kind, name = table.schema.field(place).type, table.column_names[place]
    if pa.types.is_floating(kind):
        value: Any = rng.choice((None, float("nan"), float("inf"), -1.0, 1e300, -1e300, 0.0, 1e9))
    elif pa.types.is_integer(kind):
        value = rng.choice((None, -1, 0, 2 ** (kind.bit_width - 2)))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        value = rng.choice((None, *TEXTS, "client-99", "crash", "busy", "</script><b>"))
    else:  # of a type that another change gave it
        value = None
    first, step = rng.randrange(len(values)), rng.choice((1, 3, len(values)))
    for row in range(first if step == len(values) else 0, len(values), step):
        values[row] = value
    return table.set_column(
        place, name, pa.chunked_array([pa.array(values, kind)])
    ), f"{name}: {shown(value)}"


def _other_rows(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    rows: dict[str, Callable[[], pa.Table]] = {
        "no rows": lambda: table.slice(0, 0),
        "one row": lambda: table.slice(0, 1),
        "half the rows": lambda: table.slice(0, len(table) // 2),
        "without the first half": lambda: table.slice(len(table) // 2),
        "every row twice": lambda: pa.concat_tables([table, table]),
        "upside down": lambda: table.take(pa.array(range(len(table) - 1, -1, -1), pa.int64())),
    }
    how = rng.choice(list(rows))
    return rows[how](), how
