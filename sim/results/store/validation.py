"""Results that come from outside, to make a report of: refused where they are damaged or mixed up."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from sim.errors import UserError
from sim.results.store.run_directory import (
    SPECIAL_TABLES,
    SUMMARY_KEYS,
    TABLES,
    TRACE_HASH,
    RunDirectory,
    text_hash,
)

_SECONDS_MAX = 1e15  # no run lasts so long
_MAY_BE_NULL = {"peer", "type", "bytes", "detail", "message"}


class _Summary(BaseModel):
    """The types of what summary.json may hold; more keys are no harm, and any may be null."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    scenario: str | None = None
    protocol: str | None = None
    seed: int | None = None
    virtual_seconds: float | None = None
    planned_seconds: float | None = None
    wall_seconds: float | None = None
    trace_hash: str | None = None
    scenario_hash: str | None = None
    clients: dict[str, JsonValue] | None = None
    accuracy: dict[str, JsonValue] | None = None
    better_than_alone: float | None = None
    graph: dict[str, JsonValue] | None = None
    messages: dict[str, JsonValue] | None = None
    bytes_by_type: dict[str, list[int]] | None = None
    loss_reasons: dict[str, int] | None = None
    engine: dict[str, JsonValue] | None = None
    device_time: dict[str, float] | None = None
    clusters: list[int] | None = None
    client_names: list[str] | None = None
    coalitions: dict[str, JsonValue] | None = None
    fork: dict[str, JsonValue] | None = None
    places: dict[str, list[float]] | None = None
    failures: list[str] | None = None
    interrupted: bool | None = None


def load_checked(path: Path) -> RunDirectory:
    """The results in a directory, every file of which is there, whole, and what it should be.

    Raises UserError that names the file and what is wrong with it.
    """
    directory = RunDirectory.load(path)
    summary = _check_summary(directory)
    _check_scenario(directory, summary)
    if (directory.path / "provenance.json").exists():  # results of earlier versions have none
        directory.provenance()
    names = summary.client_names
    for table in [*TABLES, *[special for special in SPECIAL_TABLES if directory.has(special)]]:
        file = directory.table_path(table)
        try:
            _check_table(file, table, len(names) if names else None)
            _check_run(file, summary)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{file} is damaged, or no Parquet table: {reason}") from error
    return directory


@contextmanager
def fitting_together(directory: RunDirectory) -> Iterator[None]:
    """Refuse results whose files are each in order, but contradict each other or themselves."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{directory.path}: one of the tables is damaged: {reason}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"{directory.path}: the files do not fit together; were some changed, or taken from another run? "
            f"({type(error).__name__}: {error})"
        ) from error


def _check_summary(directory: RunDirectory) -> _Summary:
    file, summary = directory.path / "summary.json", directory.summary()
    try:
        checked = _Summary.model_validate(summary)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(f"{file} is damaged: {key}: {first['msg']}") from None
    names, clusters = checked.client_names, checked.clusters
    if names is not None and clusters is not None and len(names) != len(clusters):
        raise UserError(f"{file} is damaged: {len(names)} client_names, but {len(clusters)} clusters")
    missing = [key for key in SUMMARY_KEYS if key not in summary]
    if missing:
        raise UserError(f"{file} is damaged: it lacks {', '.join(missing)}")
    return checked


def _check_scenario(directory: RunDirectory, summary: _Summary) -> None:
    text = directory.scenario_text()
    if summary.scenario_hash not in (None, text_hash(text)):
        file = directory.path / "scenario.toml"
        raise UserError(
            f"{file}: is not the one that summary.json is about: it was changed, or is of another run"
        )


def _check_run(file: Path, summary: _Summary) -> None:
    """Whether a table is of the run that the summary is about; tables of earlier versions do not say."""
    found = (pq.read_schema(file).metadata or {}).get(TRACE_HASH.encode())
    trace_hash = None if found is None else found.decode("utf-8", "replace")
    is_earlier = trace_hash is None and summary.scenario_hash is None
    if not is_earlier and trace_hash != summary.trace_hash:
        states = "without a trace hash" if trace_hash is None else f"trace hash {trace_hash}"
        raise UserError(f"{file}: is of another run than summary.json: {states}, there {summary.trace_hash}")


def _check_table(file: Path, table: str, clients: int | None) -> None:
    """Read all of a table, a part after the other; the numbers in `graph` are those of so many clients."""
    content = pq.ParquetFile(file, page_checksum_verification=True)
    schema = (TABLES | SPECIAL_TABLES)[table]
    earlier = schema.remove(len(schema) - 1) if table == "events" else schema  # without messages' numbers
    if not (content.schema_arrow.equals(schema) or content.schema_arrow.equals(earlier)):
        raise UserError(
            f"{file}: has {_columns(content.schema_arrow)}; a table of {table} has {_columns(schema)}"
        )
    for part in content.iter_batches():
        for name, column in zip(part.schema.names, part.columns, strict=True):
            if column.null_count and name not in _MAY_BE_NULL:
                raise UserError(f"{file} is damaged: a row has no {name}")
            if name in ("time", "start", "end", "since"):
                if pc.all(pc.is_finite(column)).as_py() is False:
                    raise UserError(f"{file} is damaged: a row's {name} is not a finite number")
                if not _within(column, _SECONDS_MAX):
                    raise UserError(
                        f"{file} is damaged: a row's {name} is not between 0 and {_SECONDS_MAX:g} s"
                    )
            if name in ("source", "target", "client", "coalition") and not _within(column, clients):
                raise UserError(f"{file}: a {name} is no number of {clients} clients; is it of another run?")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema) or "no columns"


def _within(numbers: Any, count: float | None) -> bool:
    ends = pc.min_max(numbers).as_py()
    return ends["min"] is None or (ends["min"] >= 0 and ends["max"] < (math.inf if count is None else count))
