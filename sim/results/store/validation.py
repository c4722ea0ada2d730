"""Checks results that a report is to be made of: damaged files, and files of different runs, are refused."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import TemplateError

from sim.errors import UserError
from sim.results.store.run_directory import (
    SPECIAL_TABLES,
    SUMMARY_KEYS,
    TABLES,
    TRACE_HASH,
    RunDirectory,
    text_hash,
)


def load_checked(path: Path) -> RunDirectory:
    """The results in a directory, every file of which is there, whole, and of the same run.

    Raises UserError that names the file and what is wrong with it.
    """
    directory = RunDirectory.load(path)
    summary, file = directory.summary(), directory.path / "summary.json"
    if missing := [key for key in SUMMARY_KEYS if key not in summary]:
        raise UserError(f"{file} is damaged: it lacks {', '.join(missing)}")
    if summary.get("scenario_hash") != text_hash(directory.scenario_text()):
        raise UserError(
            f"{directory.path / 'scenario.toml'}: is not the one that summary.json is about: it was changed, "
            "or is of another run"
        )
    directory.provenance()
    for table in [*TABLES, *filter(directory.has, SPECIAL_TABLES)]:
        file = directory.table_path(table)
        try:
            _check_table(file, table, summary["trace_hash"])
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{file} is damaged, or no Parquet table: {reason}") from error
    return directory


def _check_table(file: Path, table: str, trace_hash: str) -> None:
    """Whether a table has its columns, is of the summary's run, and is whole by its pages' checksums."""
    content = pq.ParquetFile(file.absolute(), page_checksum_verification=True)
    schema = (TABLES | SPECIAL_TABLES)[table]
    if not content.schema_arrow.equals(schema):
        raise UserError(
            f"{file}: has {_columns(content.schema_arrow)}; a table of {table} has {_columns(schema)}"
        )
    found = (content.schema_arrow.metadata or {}).get(TRACE_HASH.encode(), b"none").decode("utf-8", "replace")
    if found != trace_hash:
        raise UserError(
            f"{file}: is of another run than summary.json: trace hash {found}, there {trace_hash}"
        )
    for _ in content.iter_batches():
        pass  # reading is what verifies the checksums


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema) or "no columns"


@contextmanager
def fitting_together(directory: RunDirectory) -> Iterator[None]:
    """Refuse results whose files are each in order, but contradict each other or themselves."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of numbers that are no numbers
            yield
    except (
        *(pl.exceptions.PolarsError, pl.exceptions.PanicException, TemplateError),
        *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError),
    ) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{directory.path}: the files are damaged or do not fit together; were some changed, or taken "
            f"from another run? ({type(error).__name__}: {reason})"
        ) from error
