"""Tables from outside: CSV or Parquet, read by pyarrow, refused in words.

Only who has such a table imports pyarrow and polars: every scenario imports this.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.files import input_file
from sim.files.input_file import InputFile, shown, too_large

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

_OTHER_LENGTH = re.compile(r"(Row #(?P<line>\d+): )?Expected (?P<wanted>\d+) columns, got (?P<there>\d+)")
CELLS_MAX = 3 * 10**8
"""Values of a table; more features than that are refused anyway."""
_CELL_BYTES = 80  # that a text in a table takes while it is read


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
        found = file.parsed(lambda content: _csv(file, content, text), "a table of text in UTF-8")
    names = [name.strip() for name in found.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise file.refusal(f"has the column {shown(twice)} twice; must have each once")
    if found.num_rows == 0:
        raise file.refusal("has no row; must have one at least")
    frame = pl.from_arrow(found.rename_columns(names))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.String).str.strip_chars(" \t\r\n" + text.strip))


def _csv(file: InputFile, content: bytes, text: TextFormat) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    if text.comment:
        prefix = text.comment.encode()
        lines = content.splitlines(keepends=True)
        content = b"".join([line for line in lines if not line.startswith(prefix)])
    cells = content.count(text.separator.encode()) + content.count(b"\n")
    if cells > CELLS_MAX:
        raise file.refusal(f"has about {cells:,} values; must have {CELLS_MAX:,} at most")
    file.require_room(cells * _CELL_BYTES + 3 * len(content))
    # Each column of each block is an object: of a table of many columns there are few blocks.
    block = max(2**20, len(content) // 16 if content.find(b"\n") > 2**14 else 0)
    reading = csv.ReadOptions(column_names=list(text.columns) or None, use_threads=False, block_size=block)
    parsing = csv.ParseOptions(delimiter=text.separator, newlines_in_values=True)
    try:
        with csv.open_csv(pa.BufferReader(content), reading, parsing) as head:
            kinds: dict[str, Any] = dict.fromkeys(head.schema.names, pa.string())
        converting = csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
        return csv.read_csv(pa.BufferReader(content), reading, parsing, converting)
    except pa.ArrowInvalid as error:
        if (found := _OTHER_LENGTH.search(str(error))) is None:
            raise
        wanted, there = int(found["wanted"]), int(found["there"])
        problem = f"has {there:,} values; must have {wanted:,}, one for each column"
        if there > wanted and text.separator == ",":
            problem += (
                " (a number with a decimal comma? Write a point, or separate values by another character, "
                'such as data.separator = ";")'
            )
        raise file.refusal(problem, f"line {found['line']}" if found["line"] else "a line") from None


def _parquet(file: InputFile, content: bytes, wanted: Sequence[str]) -> pa.Table:
    """The columns that are wanted, if all of these are there, or else all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(pa.BufferReader(content)) as opened:
        schema, there = opened.schema_arrow, opened.metadata
    require_bearable(file, there.num_rows, there.num_columns)
    names = list(wanted) if wanted and {*wanted} <= {*schema.names} else schema.names
    kinds = [require_plain(file, field.name, field.type) for field in schema if field.name in names]
    stored = sum(there.row_group(group).total_byte_size for group in range(there.num_row_groups))
    if stored > input_file.LIMIT_BYTES:
        raise file.refusal(too_large(input_file.LIMIT_BYTES, unpacked=True))
    incremental = _incremental(there)
    texts = [field.name for field in schema if is_text(field.type) and field.name not in incremental]
    # One after the other, texts that are there many times once: only then their lengths are known.
    with pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts) as opened:
        pieces, taken = [], 0
        # What begins as the text before it is stored without that beginning, of up to `stored` bytes.
        rows = max(1, min(2**16, input_file.LIMIT_BYTES // max(1, stored)))
        for batch in opened.iter_batches(rows if incremental else 2**16, columns=names):
            taken += sum(map(plain_bytes, batch.columns))
            if taken > input_file.LIMIT_BYTES:
                raise file.refusal(too_large(input_file.LIMIT_BYTES, unpacked=True))
            pieces.append(batch)
        file.require_room(4 * taken + _CELL_BYTES * there.num_rows * sum(map(is_text, kinds)))
        table = pa.Table.from_batches(pieces, opened.schema_arrow if not pieces else None)
    return pa.table({name: plain(file, name, table[name]) for name in names})


def _incremental(there: pq.FileMetaData) -> set[str]:
    """The columns of a Parquet file whose texts are stored as what differs from the text before."""
    groups = [there.row_group(number) for number in range(there.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    return {each.path_in_schema for each in columns if any("DELTA" in kind for kind in each.encodings)}


def is_text(kind: pa.DataType) -> bool:
    """Whether it is a type of texts, of Arrow's two."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def require_bearable(file: InputFile, rows: int, columns: int) -> None:
    """Refuse a table that takes next to no bytes in its file, of equal values, and too many in memory."""
    if rows * columns * 8 > input_file.LIMIT_BYTES:
        raise file.refusal(f"has {rows:,} rows of {columns} columns, which are too many")


def plain_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """The bytes that a column takes once each value stands there by itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        return sum(map(plain_bytes, column.chunks))
    if pa.types.is_null(column.type):  # which becomes texts without characters
        return 16 * len(column)
    if not pa.types.is_dictionary(column.type):
        return max(int(column.nbytes), 8 * len(column))
    if not is_text(column.type.value_type):
        return 8 * len(column)
    lengths = pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices)
    return 8 * len(column) + int(pc.sum(lengths).as_py() or 0)


def plain(file: InputFile, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts or of numbers; UserError for any other, and for texts that take too much memory."""
    import pyarrow as pa

    kind = require_plain(file, name, column.type)
    if is_text(kind) or pa.types.is_null(kind):
        if plain_bytes(column) > input_file.LIMIT_BYTES:
            raise file.refusal(too_large(input_file.LIMIT_BYTES, unpacked=True))
        return column.cast(pa.string())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_signed_integer(kind):
        return column.cast(pa.int64())
    return column.cast(pa.float64(), safe=False)


def require_plain(file: InputFile, name: str, kind: pa.DataType) -> pa.DataType:
    """The type of a column's values; UserError for what are neither texts nor numbers."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    others = (types.is_null, types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
    if not (is_text(kind) or any(is_one(kind) for is_one in others)):
        raise file.refusal(f"column {shown(name)} has the type {kind}; must be numbers or texts")
    return kind
