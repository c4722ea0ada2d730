"""Tables of a run, read by column name.

Another version of coterie may have written a table: missing columns are null, and unknown ones are left out.
Essential columns must exist.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from sim.files.input_file import InputFile
from sim.results.metrics import COALITIONS_COLUMNS, GRAPH_COLUMNS, METRICS_COLUMNS
from sim.results.trace import EVENTS_COLUMNS

COLUMNS = {
    "metrics": METRICS_COLUMNS,
    "graph": GRAPH_COLUMNS,
    "events": EVENTS_COLUMNS,
    "intervals": (
        ("actor", pa.string(), "the client"),
        ("start", pa.float64(), "virtual seconds"),
        ("end", pa.float64(), "virtual seconds"),
        ("state", pa.string(), "state of the client's device: `busy` or `down`"),
    ),
    "coalitions": COALITIONS_COLUMNS,
    "energy": (
        ("actor", pa.string(), "the client or the server"),
        ("part", pa.string(), "`busy` or `idle` for its device, `sent` or `received` for its messages"),
        ("type", pa.string(), "a message's class; null for a device"),
        ("seconds", pa.float64(), "virtual seconds of the device in this state; null for messages"),
        ("bytes", pa.int64(), "sent or delivered bytes; null for a device"),
        ("joules", pa.float64(), "the energy; null if its constants are unknown"),
        ("cost", pa.float64(), "the price of this energy, in the currency of the summary; null if unknown"),
        ("co2_grams", pa.float64(), "grams of CO2 equivalent; null if unknown"),
    ),
    "parent": (
        ("time", pa.float64(), "virtual seconds, of an evaluation later than the fork"),
        ("actor", pa.string(), "a client of the parent run"),
        ("name", pa.string(), "the metric by which clients are judged: `accuracy`, `distance`, `loss`"),
        ("value", pa.float64(), "the value in the parent run"),
    ),
}
"""Columns of each table: name, type and meaning."""
_SCHEMAS = {
    table: pa.schema([(name, kind) for name, kind, _ in columns]) for table, columns in COLUMNS.items()
}
SPECIAL_TABLES = {table: _SCHEMAS[table] for table in ("coalitions", "energy", "parent")}
"""Tables that only some runs have."""
TABLES = {table: schema for table, schema in _SCHEMAS.items() if table not in SPECIAL_TABLES}
INTERVALS_SCHEMA = TABLES["intervals"]
# Columns of the first release; later ones are optional, since earlier results lack them.
_NEEDED: Mapping[str, Sequence[str]] = {
    "metrics": ("time", "actor", "name", "value"),
    "graph": ("time", "source", "target", "weight"),
    "events": ("time", "event", "actor", "peer", "type"),
    "intervals": ("actor", "start", "end", "state"),
    "coalitions": ("time", "client", "coalition"),
    "energy": ("actor", "part", "type", "seconds", "bytes", "joules", "cost", "co2_grams"),
    "parent": ("time", "actor", "name", "value"),
}


def require_columns(file: Path, table: str, schema: pa.Schema) -> None:
    """Raise UserError if a file lacks an essential column, or a column has an unsuitable type."""
    found = InputFile("", file)
    found.require_columns(schema.names, _NEEDED[table])
    for wanted in _SCHEMAS[table]:
        positions = schema.get_all_field_indices(wanted.name)
        if len(positions) > 1:
            raise found.refusal(f"has {len(positions)} columns {wanted.name}; must have one")
        if positions and not _fits(kind := schema.field(positions[0]).type, wanted.type):
            raise found.refusal(f"column {wanted.name} has type {kind}; must be {wanted.type}")


def with_columns_of_table(rows: pl.LazyFrame, table: str) -> pl.LazyFrame:
    """Return rows with the columns of a table, in order; missing columns are null."""
    found, wanted = rows.collect_schema(), pl.DataFrame(pl.from_arrow(_SCHEMAS[table].empty_table())).schema
    if found == wanted:
        return rows
    return rows.select(
        [
            (pl.col(name).cast(kind) if name in found else pl.lit(None, kind)).alias(name)
            for name, kind in wanted.items()
        ]
    )


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether every value of one type is also a value of another type."""
    kind = found.value_type if pa.types.is_dictionary(found) else found
    if kind.equals(wanted) or pa.types.is_null(kind):
        return True
    if _is_number(kind) and _is_number(wanted):
        return bool(np.can_cast(kind.to_pandas_dtype(), wanted.to_pandas_dtype(), "safe"))
    return _is_text(kind) and _is_text(wanted)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
