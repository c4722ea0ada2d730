"""Tables from outside: CSV or Parquet, read by pyarrow, refused in words.

Only who has such a table imports pyarrow and polars: every scenario imports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.files import input_file
from sim.files.input_file import InputFile, shown

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True)
class TextFormat:
    """How a table is written as text: what stands between values, which lines are none, the columns' names.

    columns: of a file that does not name them in its first line. strip: characters that are taken from the
    ends of texts, beside white space.
    """

    separator: str
    comment: str
    columns: Sequence[str]
    strip: str


def read_table(file: InputFile, text: TextFormat, wanted: Sequence[str] = ()) -> pl.DataFrame:
    """The columns of a .parquet file, or else of a file of text, whose values are all texts (null: empty).

    Columns of a .parquet file are texts or numbers (int64, float64); if it has all that are `wanted`, others
    may be anything. Raises UserError.
    """
    import polars as pl

    if file.path.suffix == ".parquet":
        found = file.parsed(lambda content: _parquet(file, content, wanted), "a Parquet table")
    else:
        found = file.parsed(lambda content: _csv(content, text), "a table of text in UTF-8")
    names = [name.strip() for name in found.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise file.refusal(f"has the column {shown(twice)} twice; must have each once")
    if found.num_rows == 0:
        raise file.refusal("has no row; must have one at least")
    frame = pl.from_arrow(found.rename_columns(names))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.String).str.strip_chars(" \t\r\n" + text.strip))


def _csv(content: bytes, text: TextFormat) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    if text.comment:
        prefix = text.comment.encode()
        lines = content.splitlines(keepends=True)
        content = b"".join([line for line in lines if not line.startswith(prefix)])
    reading = csv.ReadOptions(column_names=list(text.columns) or None, use_threads=False, block_size=2**20)
    parsing = csv.ParseOptions(delimiter=text.separator, newlines_in_values=True)
    with csv.open_csv(pa.BufferReader(content), reading, parsing) as head:
        kinds: dict[str, Any] = dict.fromkeys(head.schema.names, pa.string())
    converting = csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
    return csv.read_csv(pa.BufferReader(content), reading, parsing, converting)


def _parquet(file: InputFile, content: bytes, wanted: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sizes = pq.read_metadata(pa.BufferReader(content))
    require_bearable(file, sizes.num_rows, sizes.num_columns)
    table = pq.read_table(pa.BufferReader(content))
    names = wanted if wanted and {*wanted} <= {*table.column_names} else table.column_names
    return pa.table({name: plain(file, name, table[name]) for name in names})


def require_bearable(file: InputFile, rows: int, columns: int) -> None:
    """Refuse a table that takes next to no bytes in its file, of equal values, and too many in memory."""
    if rows * columns * 8 > input_file.LIMIT_BYTES:
        raise file.refusal(f"has {rows:,} rows of {columns} columns, which are too many")


def plain(file: InputFile, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts or of numbers; UserError for any other."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_signed_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    raise file.refusal(f"column {shown(name)} has the type {kind}; must be numbers or texts")
