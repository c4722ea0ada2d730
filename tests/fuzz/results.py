"""Result directories with damaged files, for `report` and for a run that finds them in its way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz import spoil
from tests.fuzz.case import Commands
from tests.fuzz.values import TEXTS, odd_value

RESULTS = "finished-runs"  # beside the data: results of runs, each with the scenario that it came from
_TABLES = ("metrics", "graph", "events", "intervals")


def results(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Finished results with a spoiled table, summary or scenario, or with a file missing or replaced."""
    source = rng.choice(sorted(path for path in Path("data", RESULTS).iterdir() if path.is_dir()))
    shutil.copytree(source, "runs", symlinks=True)
    Path("runs", "scenario.toml").rename("scenario.toml")
    directory = next(path for path in Path("runs").iterdir() if path.is_dir())
    rerun = ["run", "scenario.toml", "--quiet", *rng.choice(([], ["--overwrite"]))]
    commands = [rerun] if rng.random() < 0.2 else []
    words = [_spoiled(directory, rng) for _ in range(changes)]
    return words, [*commands, ["report", str(directory)]]


def _spoiled(directory: Path, rng: Random) -> str:
    if not directory.is_dir():
        return "nothing is left to change"
    path = rng.choice([*sorted(directory.iterdir()), directory])
    match rng.choice(("table",) * 4 + ("summary",) * 3 + ("bytes", "file", "swap")):
        case "table":
            return _spoil_table(directory / f"{rng.choice(_TABLES)}.parquet", rng)
        case "summary":
            return _spoil_summary(directory / "summary.json", rng)
        case "swap":
            return _swap(directory, rng)
        case "bytes" if spoil.can_be_read(path):
            content, how = spoil.damaged_bytes(path.read_bytes(), rng)
            path.write_bytes(content)
            return f"{path.name}: {how}"
    return spoil.replace_file(path, rng)


def _spoil_summary(path: Path, rng: Random) -> str:
    try:
        summary = json.loads(path.read_text(encoding="utf-8")) if spoil.can_be_read(path) else None
    except ValueError:
        return "nothing"
    if summary is None:
        return "nothing"
    how = "something else"
    if isinstance(summary, dict) and rng.randrange(15):
        how = spoil.damaged_table(summary, rng)
    else:
        summary = odd_value(rng)
    path.write_text(json.dumps(summary, default=str), encoding="utf-8", errors="replace")
    return f"summary.json: {how}"


def _swap(directory: Path, rng: Random) -> str:
    files = [path for path in sorted(directory.glob("*.parquet")) if spoil.can_be_read(path)]
    if len(files) < 2:
        return "nothing"
    one, other = rng.sample(files, 2)
    aside = one.rename(directory / "swapped")
    other.rename(one)
    aside.rename(other)
    return f"{one.name} and {other.name} swapped"


def _spoil_table(path: Path, rng: Random) -> str:
    try:
        table = pq.read_table(path) if spoil.can_be_read(path) else None
    except (pa.ArrowException, OSError):
        table = None
    if table is None or not table.num_columns:
        return "nothing"
    how = rng.choice((_other_columns, _other_type, _other_values, _other_values, _other_rows))
    table, words = how(table, rng)
    pq.write_table(table, path)
    return f"{path.name}: {words}"


def _other_columns(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    name, new = rng.choice(table.column_names), rng.choice(("x", "time", "ACTOR"))
    found = {
        f"without column {name}": table.drop_columns([name]),
        f"column {name} as {new}": table.rename_columns(
            [new if n == name else n for n in table.column_names]
        ),
        "one column more": table.append_column("more", pa.nulls(len(table))),
        "no columns": table.select([]),
    }
    how = rng.choice(list(found))
    return found[how], how


def _other_type(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    kinds = (pa.string(), pa.int64(), pa.float32(), pa.bool_(), pa.binary(), pa.timestamp("s"))
    place, kind = rng.randrange(table.num_columns), rng.choice((*kinds, pa.list_(pa.float64())))
    try:
        column = table.column(place).cast(kind, safe=False)
    except pa.ArrowException:
        column = pa.nulls(len(table), kind)
    name = table.column_names[place]
    return table.set_column(place, name, column), f"column {name} as {kind}"


def _other_values(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    if not len(table):
        return table, "nothing"
    place = rng.randrange(table.num_columns)
    values: list[Any] = table.column(place).to_pylist()
    kind, name, value = table.schema.field(place).type, table.column_names[place], None
    if pa.types.is_floating(kind):
        value = rng.choice((None, float("nan"), float("inf"), -1.0, 1e300, -1e300, 0.0, 1e9))
    elif pa.types.is_integer(kind):
        value = rng.choice((None, -1, 0, 2 ** (kind.bit_width - 2)))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        value = rng.choice((None, *TEXTS, "client-99", "crash", "busy", "</script><b>"))
    first, step = rng.randrange(len(values)), rng.choice((1, 3, len(values)))
    for row in range(first if step == len(values) else 0, len(values), step):
        values[row] = value
    column = pa.chunked_array([pa.array(values, kind)])
    return table.set_column(place, name, column), f"{name}: {spoil.shown(value)}"


def _other_rows(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    found = {
        "no rows": table.slice(0, 0),
        "one row": table.slice(0, 1),
        "half the rows": table.slice(0, len(table) // 2),
        "without the first half": table.slice(len(table) // 2),
        "every row twice": pa.concat_tables([table, table]),
        "upside down": table.take(pa.array(range(len(table) - 1, -1, -1), pa.int64())),
    }
    how = rng.choice(list(found))
    return found[how], how
