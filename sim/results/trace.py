"""Trace of a run: all events in order, with one hash over them.

Recording an entry costs one tuple and one append. Blocks of entries are converted to fixed-size binary
records, and the bytes of the records are hashed. Records contain 64-bit digests of texts (names, message
types, reasons), so that equal hashes mean equal texts. Kept entries go to a file in tables of `ROWS` rows,
so that the memory of a run does not grow with its messages.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

MESSAGE_EVENTS = ("sent", "delivered", "lost", "dropped")
LIFECYCLE_EVENTS = ("start", "join", "leave", "crash", "rejoin", "failed", "restarted", "stop")
CHECKSUM = "checksum"
EVENTS = (*MESSAGE_EVENTS, *LIFECYCLE_EVENTS, CHECKSUM)

EVENTS_COLUMNS = (
    ("time", pa.float64(), "virtual seconds"),
    (
        "event",
        pa.string(),
        "for a message `sent`, `delivered`, `lost` or `dropped`; for a client `join`, `leave`, `crash`, "
        "`rejoin`, ...; or `checksum`",
    ),
    ("actor", pa.string(), "the client, or a message's sender"),
    ("peer", pa.string(), "a message's receiver"),
    ("type", pa.string(), "a message's class"),
    ("bytes", pa.int64(), "a message's simulated size"),
    (
        "detail",
        pa.string(),
        "the cause of a loss, `duplicate` for a copy that the network sent, the state with which a client "
        "rejoined, or a model's checksum",
    ),
    ("message", pa.int64(), "the number of the message, constant from its sending to its end"),
)
"""Columns of events.parquet: name, type and meaning. A column without a value in an event is null."""
EVENTS_SCHEMA = pa.schema([(name, kind) for name, kind, _ in EVENTS_COLUMNS])

Entry = tuple[float, int, str, str | None, str | None, int, str | int, int]
"""Record of an event: time, index in EVENTS, and the other columns of EVENTS_SCHEMA.

Null is an empty text or None, 0 bytes, or message 0. The detail of a checksum is its number.
"""
_CODES = {event: code for code, event in enumerate(EVENTS)}
_FIELDS = {
    "time": "<f8",
    "event": "u1",
    "actor": "<u8",
    "peer": "<u8",
    "type": "<u8",
    "bytes": "<i8",
    "detail": "<u8",
}
_DTYPE = np.dtype(list(_FIELDS.items()))
# Kept columns of an entry: texts by number, checksums, and message numbers (0 for none).
_NUMBERS = {"actor": "<i4", "peer": "<i4", "type": "<i4", "message": "<i8"}
_ROW = np.dtype(list((_FIELDS | _NUMBERS).items()))
_BLOCK = 2048  # entries per conversion to records
ROWS = 1 << 16
"""Rows per table."""
_MASK_64 = (1 << 64) - 1


class _TextNumbers(dict[str | None, int]):
    """Numbers of the texts so far, in order of their first use; 0 stands for None."""

    def __init__(self) -> None:
        super().__init__({None: 0})
        self._digests = np.zeros(1, np.uint64)

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def numbers(self, texts: tuple[str | None, ...]) -> np.ndarray:
        return np.array(list(map(self.__getitem__, texts)), np.int32)

    def digests(self, numbers: np.ndarray) -> np.ndarray:
        """Return 64-bit digests of the texts with these numbers; 0 stands for None."""
        known = len(self._digests)
        if known < len(self):
            new = [blake2b(str(text).encode(), digest_size=8).digest() for text in list(self)[known:]]
            self._digests = np.concatenate([self._digests, np.frombuffer(b"".join(new), "<u8")])
        return self._digests[numbers]


class AddressedMessage(Protocol):
    """A message with the attributes that the trace uses."""

    @property
    def sender(self) -> str: ...

    @property
    def receiver(self) -> str: ...


class EventsSink(Protocol):
    """Destination of a trace's rows, such as a file."""

    @property
    def path(self) -> Path: ...

    def write(self, rows: pa.Table) -> None: ...

    def close(self, metadata: dict[str, str]) -> None: ...


class Trace:
    """Trace of a run. With `keep_messages=False`, messages are hashed but not kept.

    Lifecycle events and checksums are always kept: they are few, and the report needs lifecycle events.
    """

    def __init__(self, *, keep_messages: bool = True) -> None:
        self.keep_messages = keep_messages
        self.kept: EventsSink | None = None
        """Destination of rows, in blocks of `ROWS` and on `flush`; None for memory."""
        self._tables: list[pa.Table] = []
        self._blake = blake2b(digest_size=16)
        self._recent: list[Entry] = []  # entries not yet converted
        self._rows = np.empty(ROWS, _ROW)
        self._filled = 0  # rows in use
        self._texts = _TextNumbers()
        self._converted = 0  # entries converted to records
        self.lifecycles: list[tuple[float, str, str, str]] = []  # (time_s, actor, event, detail)

    def __len__(self) -> int:
        """Return the number of recorded entries, kept or not."""
        return self._converted + len(self._recent)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} entries, {self.hash()}>"

    def message(
        self,
        event: str,
        time_s: float,
        envelope: AddressedMessage,
        type_name: str,
        size_bytes: int,
        reason: str = "",
        number: int = 0,
    ) -> None:
        """Record an event of a message: `event` is one of `MESSAGE_EVENTS`, `size_bytes` its simulated size.

        number: identifies the message, above 0; part of the table, but not of the hash.
        """
        self.record(
            (time_s, _CODES[event], envelope.sender, envelope.receiver, type_name, size_bytes, reason, number)
        )

    def lifecycle(self, time_s: float, actor: str, event: str, detail: str = "") -> None:
        """Record an arrival or departure: `event` is one of `LIFECYCLE_EVENTS`, `detail` a rejoin's state."""
        self.record((time_s, _CODES[event], actor, None, None, 0, detail, 0))
        self.lifecycles.append((time_s, actor, event, detail))

    def checksum(self, time_s: float, actor: str, value: int) -> None:
        """Record the checksum of an actor's parameters; `value` is taken modulo 2^64."""
        self.record((time_s, _CODES[CHECKSUM], actor, None, None, 0, value & _MASK_64, 0))

    def add_row(
        self,
        *,
        time: float,
        event: str,
        actor: str,
        peer: str | None,
        type: str | None,
        bytes: int | None,
        detail: str | None,
        message: int | None,
    ) -> None:
        """Record a row of another trace's table; the arguments are its columns."""
        text = detail or ""
        value = int(text, 16) if event == CHECKSUM else text
        self.record((time, _CODES[event], actor, peer, type, bytes or 0, value, message or 0))
        if event in LIFECYCLE_EVENTS:
            self.lifecycles.append((time, actor, event, text))

    def record(self, entry: Entry) -> None:
        """Record an entry; all other methods call this method."""
        self._recent.append(entry)
        if len(self._recent) >= _BLOCK:
            self._convert()

    def hash(self) -> str:
        """Return the hash of all entries so far, 32 hexadecimal digits. Recording may continue."""
        self._convert()
        return self._blake.hexdigest()

    def to_table(self) -> pa.Table:
        """Return the rows in memory, in order, with the columns of `EVENTS_SCHEMA`."""
        assert self.kept is None
        self.flush()
        return pa.concat_tables([EVENTS_SCHEMA.empty_table(), *self._tables])

    def flush(self) -> None:
        """Write all rows recorded so far."""
        self._convert()
        if self._filled:
            self._write_rows()

    def _write_rows(self) -> None:
        write = self._tables.append if self.kept is None else self.kept.write
        write(self._table(self._rows[: self._filled]))
        self._filled = 0

    def _table(self, rows: np.ndarray) -> pa.Table:
        texts, events = pl.Series(list(self._texts), dtype=pl.String), pl.Series(EVENTS)
        is_message, is_checksum = rows["event"] < len(MESSAGE_EVENTS), rows["event"] == _CODES[CHECKSUM]
        reasons = pl.Series([text or None for text in self._texts], dtype=pl.String)
        details = reasons.gather(np.where(is_checksum, 0, rows["detail"]).astype(np.uint32))
        if is_checksum.any():
            found = [f"{checksum:016x}" for checksum in rows["detail"][is_checksum].tolist()]
            details = details.scatter(np.flatnonzero(is_checksum), found)
        columns = {
            "time": rows["time"],
            "event": events.gather(rows["event"]),
            **{name: texts.gather(rows[name]) for name in ("actor", "peer", "type")},
            "bytes": pl.Series(rows["bytes"]).set(pl.Series(~is_message), None),
            "detail": details,
            "message": pl.Series(rows["message"]).set(pl.Series(rows["message"] == 0), None),
        }
        return pl.DataFrame(columns).to_arrow().cast(EVENTS_SCHEMA)

    def _convert(self) -> None:
        """Convert the recent entries to records, hash them, and keep the selected rows."""
        if not self._recent:
            return
        texts = self._texts
        times, codes, actors, peers, types, sizes, details, numbers = zip(*self._recent, strict=True)
        records, rows = np.empty(len(times), _DTYPE), np.empty(len(times), _ROW)
        records["time"] = rows["time"] = times
        records["event"] = rows["event"] = codes
        for field, named in (("actor", actors), ("peer", peers), ("type", types)):
            rows[field] = texts.numbers(named)
            records[field] = texts.digests(rows[field])
        records["bytes"] = rows["bytes"] = sizes
        if details.count("") == len(details):  # the usual case
            rows["detail"] = texts[""]
            records["detail"] = texts.digests(rows["detail"])
        else:
            found = [each if type(each) is int else texts[each] for each in details]
            rows["detail"] = np.array(found, np.uint64)
            is_text = rows["event"] != _CODES[CHECKSUM]
            records["detail"] = rows["detail"]
            records["detail"][is_text] = texts.digests(rows["detail"][is_text])
        rows["message"] = numbers
        self._blake.update(records.tobytes())
        self._keep(rows if self.keep_messages else rows[rows["event"] >= len(MESSAGE_EVENTS)])
        self._converted += len(times)
        self._recent.clear()

    def _keep(self, rows: np.ndarray) -> None:
        while len(rows):
            fitting = rows[: len(self._rows) - self._filled]
            self._rows[self._filled : self._filled + len(fitting)] = fitting
            self._filled += len(fitting)
            rows = rows[len(fitting) :]
            if self._filled == len(self._rows):
                self._write_rows()


def first_difference(first: pa.Table, second: pa.Table) -> str | None:
    """Describe the first entry, with its virtual time, that differs between two traces; None if equal.

    Traces recorded without messages can have different hashes and no difference here.
    """
    common = min(len(first), len(second))
    one, other = (pl.DataFrame(pl.from_arrow(table.slice(0, common))) for table in (first, second))
    differs = [(one[name].ne_missing(other[name])).arg_true() for name in one.columns]
    position = min([rows[0] for rows in differs if len(rows)], default=common)
    if position == len(first) == len(second):
        return None
    return (
        f"entry {position + 1:,} differs:\n"
        f"  first run:  {_describe(first, position)}\n"
        f"  second run: {_describe(second, position)}"
    )


def _describe(table: pa.Table, position: int) -> str:
    if position >= len(table):
        return "has no such entry"
    entry = table.slice(position, 1).to_pylist()[0]
    words = [f"t = {entry['time']!r} s: {entry['actor']} {entry['event']}"]
    if entry["peer"] is not None:
        words.append(f"{entry['type']} to {entry['peer']}, {entry['bytes']:,} B")
    if entry["detail"] is not None:
        words.append(f"({entry['detail']})")
    return " ".join(words)
