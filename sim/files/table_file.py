"""Tables from outside: CSV or Parquet, read by pyarrow within limits, refused in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sim.files import input_file
from sim.files.input_file import InputFile, shown

CELLS_MAX = 2**26
"""No table may have more values: numbers take 8 bytes each, once they are read."""


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


def read_table(file: InputFile, text: TextFormat) -> pl.DataFrame:
    """The columns of a .parquet file, or else of a file of text, whose values are all texts (null: empty).

    Columns of a .parquet file are texts or numbers (float64). Raises UserError.
    """
    if file.path.suffix == ".parquet":
        found = file.parsed(lambda content: _parquet(file, content), "a Parquet table")
    else:
        found = file.parsed(lambda content: _csv(content, text), "a table of text in UTF-8")
    _require_bounds(file, found.num_rows, found.num_columns)
    names = [name.strip() for name in found.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise file.refusal(f"has the column {shown(twice)} twice; must have each once")
    if found.num_rows == 0:
        raise file.refusal("has no row; must have one at least")
    frame = pl.from_arrow(found.rename_columns(names))
    assert isinstance(frame, pl.DataFrame)
    characters = " \t\r\n" + text.strip
    return frame.with_columns(pl.col(pl.String).str.strip_chars(characters))


def _csv(content: bytes, text: TextFormat) -> pa.Table:
    if text.comment:
        prefix = text.comment.encode()
        lines = content.splitlines(keepends=True)
        content = b"".join([line for line in lines if not line.startswith(prefix)])
    reading = pyarrow.csv.ReadOptions(
        column_names=list(text.columns) or None, use_threads=False, block_size=2**20
    )
    names = list(text.columns) or _head(content, text)
    parsing = pyarrow.csv.ParseOptions(delimiter=text.separator, newlines_in_values=True)
    kinds: dict[str, Any] = dict.fromkeys(
        names, pa.string()
    )  # what is a number is found out later, of all rows
    converting = pyarrow.csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
    return pyarrow.csv.read_csv(pa.BufferReader(content), reading, parsing, converting)


def _head(content: bytes, text: TextFormat) -> list[str]:
    options = pyarrow.csv.ParseOptions(delimiter=text.separator, newlines_in_values=True)
    with pyarrow.csv.open_csv(pa.BufferReader(content), parse_options=options) as reader:
        return list(reader.schema.names)


def _parquet(file: InputFile, content: bytes) -> pa.Table:
    parquet = pq.ParquetFile(pa.BufferReader(content))
    described = parquet.metadata
    _require_bounds(file, described.num_rows, described.num_columns)
    size = sum(described.row_group(group).total_byte_size for group in range(described.num_row_groups))
    if size > input_file.LIMIT_BYTES:
        raise file.too_large(", unpacked")
    # Texts as places in a list of different ones, as most files have them: written out they may be any size.
    texts = [column.name for column in parquet.schema if column.physical_type == "BYTE_ARRAY"]
    table = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts).read()
    if sum(map(_text_bytes, table.columns)) > input_file.LIMIT_BYTES:
        raise file.too_large(", unpacked")
    return pa.table({name: _plain(file, name, table[name]) for name in table.column_names})


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of a column of texts, written out; 0 of any other."""
    if not pa.types.is_dictionary(column.type):
        return 0
    lengths = [pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
    return sum(pc.sum(each).as_py() or 0 for each in lengths)


def _plain(file: InputFile, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts or of numbers."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    raise file.refusal(f"column {shown(name)} has the type {kind}; must be numbers or texts")


def _require_bounds(file: InputFile, rows: int, columns: int) -> None:
    if rows * columns > CELLS_MAX:
        raise file.refusal(
            f"has {rows:,} rows of {columns:,} columns; must have {CELLS_MAX:,} values at most"
        )
