"""Input tables: CSV or Parquet, read by pyarrow and validated.

pyarrow and polars are imported in functions, since every scenario imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sim.files import input_file
from sim.files.input_file import InputFile, excerpt, too_large_message

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

_OTHER_LENGTH = re.compile(r"(Row #(?P<line>\d+): )?Expected (?P<wanted>\d+) columns, got (?P<there>\d+)")
CELLS_MAX = 3 * 10**8
"""Largest number of values in a table; larger than the limit for features."""
_CELL_BYTES = 80  # memory of a text value while a table is read


@dataclass(frozen=True)
class TextFormat:
    """Format of a table as text: separator, prefix of comment lines, and names of columns.

    columns: names for a file that does not name them in its first line. strip: characters removed from the
    ends of texts, in addition to white space.
    """

    separator: str
    comment: str
    columns: Sequence[str]
    strip: str


def read_table(
    file: InputFile, text: TextFormat, wanted: Sequence[str] = (), *, lists: bool = False
) -> pl.DataFrame:
    """Read the columns of a .parquet file, or of a text file, with all values as text (empty for null).

    Columns of a .parquet file are text or numbers (int64, float64). If it has all `wanted` columns, other
    columns may have any type. lists: whether columns may contain lists of text or numbers. Raises UserError.
    """
    import polars as pl

    if file.path.suffix == ".parquet":
        found = file.parsed(lambda content: _parquet(file, content, wanted, lists), "a Parquet table")
    else:
        found = file.parsed(lambda content: _csv(file, content, text), "a table of text in UTF-8")
    names = [name.strip() for name in found.column_names]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise file.refusal(f"has the column {excerpt(twice)} twice; column names must be unique")
    if found.num_rows == 0:
        raise file.refusal("has no rows; must have at least one")
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
        raise file.refusal(f"has about {cells:,} values; must have at most {CELLS_MAX:,}")
    file.require_room(cells * _CELL_BYTES + 3 * len(content))
    # Each column of each block is an object, so use few blocks for tables with many columns.
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
        wanted, count = int(found["wanted"]), int(found["there"])
        problem = f"has {count:,} value{'s' * (count != 1)}; must have {wanted:,}, one for each column"
        if count > wanted and text.separator == ",":
            problem += (
                " (if numbers have decimal commas, write decimal points, or separate values with another "
                'character, such as data.separator = ";")'
            )
        raise file.refusal(problem, f"line {found['line']}" if found["line"] else "a line") from None


def _parquet(file: InputFile, content: bytes, wanted: Sequence[str], lists: bool) -> pa.Table:
    """Read the wanted columns if all exist, else all columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(pa.BufferReader(content)) as opened:
        schema, metadata = opened.schema_arrow, opened.metadata
    require_table_fits(file, metadata.num_rows, metadata.num_columns)
    names = list(wanted) if wanted and {*wanted} <= {*schema.names} else schema.names
    kinds = [
        require_supported_type(file, field.name, field.type, lists) for field in schema if field.name in names
    ]
    stored = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if stored > input_file.LIMIT_BYTES:
        raise file.refusal(too_large_message(input_file.LIMIT_BYTES, unpacked=True))
    incremental = _delta_encoded_columns(metadata)
    texts = [field.name for field in schema if is_text(field.type) and field.name not in incremental]
    # Read columns one after the other, with dictionaries for repeated texts, to know their lengths.
    with pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts) as opened:
        pieces, taken = [], 0
        # A text is stored without its common prefix with the previous text, of up to `stored` bytes.
        rows = max(1, min(2**16, input_file.LIMIT_BYTES // max(1, stored)))
        for batch in opened.iter_batches(rows if incremental else 2**16, columns=names):
            taken += sum(map(size_without_dictionaries, batch.columns))
            if taken > input_file.LIMIT_BYTES:
                raise file.refusal(too_large_message(input_file.LIMIT_BYTES, unpacked=True))
            pieces.append(batch)
        file.require_room(4 * taken + _CELL_BYTES * metadata.num_rows * sum(map(is_text, kinds)))
        table = pa.Table.from_batches(pieces, opened.schema_arrow if not pieces else None)
    return pa.table({name: to_text_or_numbers(file, name, table[name], lists) for name in names})


def _delta_encoded_columns(metadata: pq.FileMetaData) -> set[str]:
    """Return the columns of a Parquet file that are stored as differences between successive texts."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    return {each.path_in_schema for each in columns if any("DELTA" in kind for kind in each.encodings)}


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's two text types."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def require_table_fits(file: InputFile, rows: int, columns: int) -> None:
    """Reject a table that is too large in memory. Its file can be small if many values are equal."""
    if rows * columns * 8 > input_file.LIMIT_BYTES:
        raise file.refusal(f"has {rows:,} rows of {columns} columns, too many to read; must have fewer")


def size_without_dictionaries(column: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes that a column takes when dictionary-encoded values are unpacked."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        return sum(map(size_without_dictionaries, column.chunks))
    if pa.types.is_null(column.type):  # converted to empty texts
        return 16 * len(column)
    if not pa.types.is_dictionary(column.type):
        return max(int(column.nbytes), 8 * len(column))
    if not is_text(column.type.value_type):
        return 8 * len(column)
    lengths = pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices)
    return 8 * len(column) + int(pc.sum(lengths).as_py() or 0)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's types of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def to_text_or_numbers(
    file: InputFile, name: str, column: pa.ChunkedArray, lists: bool = False
) -> pa.ChunkedArray:
    """Convert a column to text or numbers, or to lists of text or numbers.

    Whole numbers become text if some do not fit into int64. Raises UserError as `require_supported_type`
    does, for lists of such numbers, and if the text is too large for the memory.
    """
    import pyarrow as pa

    kind = require_supported_type(file, name, column.type, lists)
    if is_list(column.type):
        if pa.types.is_uint64(kind):
            try:
                return column.cast(pa.large_list(pa.int64()))
            except pa.ArrowInvalid as error:
                problem = (
                    f"has lists of whole numbers above {2**63 - 1:,}; must contain smaller ones, or text"
                )
                raise file.refusal(f"column {excerpt(name)} {problem}") from error
        whole = pa.types.is_integer(kind)
        inner = pa.string() if is_text(kind) else pa.int64() if whole else pa.float64()
        return column.cast(pa.large_list(inner), safe=False)
    if is_text(kind) or pa.types.is_null(kind):
        if size_without_dictionaries(column) > input_file.LIMIT_BYTES:
            raise file.refusal(too_large_message(input_file.LIMIT_BYTES, unpacked=True))
        return column.cast(pa.string())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_signed_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_uint64(kind):  # float64 would make different names equal
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            file.require_room(_CELL_BYTES * len(column))
            return column.cast(pa.string())
    return column.cast(pa.float64(), safe=False)


def require_supported_type(file: InputFile, name: str, kind: pa.DataType, lists: bool = False) -> pa.DataType:
    """Return the type of a column's values, or of the values in its lists. Raises UserError for other types.

    lists: whether the column may contain lists.
    """
    from pyarrow import types

    kind = kind.value_type if lists and is_list(kind) else kind
    kind = kind.value_type if types.is_dictionary(kind) else kind
    others = (types.is_null, types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
    if not (is_text(kind) or any(is_one(kind) for is_one in others)):
        raise file.refusal(f"column {excerpt(name)} has type {kind}; must contain numbers or text")
    return kind
