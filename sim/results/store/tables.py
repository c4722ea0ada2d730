"""The tables of a run, and reading them by the names of their columns.

Another version of coterie may have written a table: a column that it lacks is null, and one that it has more
is left out. Columns without which a row says nothing must be there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from sim.files.input_file import InputFile
from sim.results.metrics import COALITIONS_SCHEMA, GRAPH_SCHEMA, METRICS_SCHEMA
from sim.results.trace import EVENTS_SCHEMA

INTERVALS_SCHEMA = pa.schema(
    [("actor", pa.string()), ("start", pa.float64()), ("end", pa.float64()), ("state", pa.string())]
)
TABLES = {
    "metrics": METRICS_SCHEMA,
    "graph": GRAPH_SCHEMA,
    "events": EVENTS_SCHEMA,
    "intervals": INTERVALS_SCHEMA,
}
SPECIAL_TABLES = {"coalitions": COALITIONS_SCHEMA, "parent": METRICS_SCHEMA}
"""Tables that only some runs have."""
_SCHEMAS = TABLES | SPECIAL_TABLES
# All of these were in the first release. What comes later is not needed, since earlier results lack it.
_NEEDED: Mapping[str, Sequence[str]] = {
    "metrics": ("time", "actor", "name", "value"),
    "graph": ("time", "source", "target", "weight"),
    "events": ("time", "event", "actor", "peer", "type"),
    "intervals": ("actor", "start", "end", "state"),
    "coalitions": ("time", "client", "coalition"),
    "parent": ("time", "actor", "name", "value"),
}


def require_columns(file: Path, table: str, there: pa.Schema) -> None:
    """UserError for a file that lacks a column that is needed, or has one of a type that does not fit."""
    found = InputFile("", file)
    found.require_columns(there.names, _NEEDED[table])
    for wanted in _SCHEMAS[table]:
        positions = there.get_all_field_indices(wanted.name)
        if len(positions) > 1:
            raise found.refusal(f"has {len(positions)} columns {wanted.name}; must have one")
        if positions and not _fits(kind := there.field(positions[0]).type, wanted.type):
            raise found.refusal(f"column {wanted.name} has the type {kind}; must be {wanted.type}")


def by_name(rows: pl.LazyFrame, table: str) -> pl.LazyFrame:
    """The rows with the columns of a table, in their order; null where a column is missing."""
    there, wanted = rows.collect_schema(), pl.DataFrame(pl.from_arrow(_SCHEMAS[table].empty_table())).schema
    if there == wanted:
        return rows
    return rows.select(
        [
            (pl.col(name).cast(kind) if name in there else pl.lit(None, kind)).alias(name)
            for name, kind in wanted.items()
        ]
    )


def _fits(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type is one of another type as well."""
    kind = there.value_type if pa.types.is_dictionary(there) else there
    if kind.equals(wanted) or pa.types.is_null(kind):
        return True
    if _is_number(kind) and _is_number(wanted):
        return bool(np.can_cast(kind.to_pandas_dtype(), wanted.to_pandas_dtype(), "safe"))
    return _is_text(kind) and _is_text(wanted)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
