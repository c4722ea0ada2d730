"""The trace: everything that happened in a run, in order, with one hash over all of it.

Entries are kept as they come and made into fixed-size binary records many at a time, so that recording costs
one tuple and one append. The records' bytes are hashed. Texts (names, message types, reasons) stand in them
as 64-bit digests of their own, so that equal hashes mean equal texts. What is to be kept goes on as tables of
so many rows each, to a file, so that the memory of a run does not grow with its messages.
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

EVENTS_SCHEMA = pa.schema(
    [
        ("time", pa.float64()),  # virtual seconds
        ("event", pa.string()),
        ("actor", pa.string()),  # of a message: its sender
        ("peer", pa.string()),  # of a message: its receiver; else null
        ("type", pa.string()),  # message type; else null
        ("bytes", pa.int64()),  # simulated size of a message; else null
        # Why a message was lost, what a client came back with, or a checksum in hexadecimal; else null.
        ("detail", pa.string()),
        # Of a message: the same number from its sending to its end; else null.
        ("message", pa.int64()),
    ]
)
"""The columns of events.parquet."""

Entry = tuple[float, int, str, str | None, str | None, int, str | int, int]
"""What is recorded of an event: its time, its place in EVENTS, then the other columns of EVENTS_SCHEMA.

Where those are null, it has no text or None, 0 bytes, or the message 0. A checksum's detail is its number.
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
# What is kept of an entry: texts by their numbers, a checksum as such, and the message's number, 0 for none.
_NUMBERS = {"actor": "<i4", "peer": "<i4", "type": "<i4", "message": "<i8"}
_ROW = np.dtype(list((_FIELDS | _NUMBERS).items()))
_BLOCK = 2048  # entries that are made into records at once
ROWS = 1 << 16
"""Rows that are handed on together."""
_MASK_64 = (1 << 64) - 1


class _Texts(dict[str | None, int]):
    """The number of each text so far, in the order of their first use; 0 is that of none."""

    def __init__(self) -> None:
        super().__init__({None: 0})
        self._digests = np.zeros(1, np.uint64)

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def numbers(self, texts: tuple[str | None, ...]) -> np.ndarray:
        return np.array(list(map(self.__getitem__, texts)), np.int32)

    def digests(self, numbers: np.ndarray) -> np.ndarray:
        """64-bit digests of the texts with these numbers; 0 stands for none."""
        known = len(self._digests)
        if known < len(self):
            new = [blake2b(str(text).encode(), digest_size=8).digest() for text in list(self)[known:]]
            self._digests = np.concatenate([self._digests, np.frombuffer(b"".join(new), "<u8")])
        return self._digests[numbers]


class Addressed(Protocol):
    """A message on its way, as far as the trace looks at it."""

    @property
    def sender(self) -> str: ...

    @property
    def receiver(self) -> str: ...


class EventsSink(Protocol):
    """Where the rows of a trace go, such as a file."""

    @property
    def path(self) -> Path: ...

    def write(self, rows: pa.Table) -> None: ...

    def close(self, metadata: dict[str, str]) -> None: ...


class Trace:
    """Records a run. With `keep_messages=False` messages are hashed but not kept.

    Lifecycle entries and checksums are always kept: they are few, and the report needs the former.
    """

    def __init__(self, *, keep_messages: bool = True) -> None:
        self.keep_messages = keep_messages
        self.kept: EventsSink | None = None
        """Where rows go, `ROWS` at a time, and the rest by `flush`; None for memory."""
        self._tables: list[pa.Table] = []
        self._blake = blake2b(digest_size=16)
        self._recent: list[Entry] = []  # entries that are no records yet
        self._rows = np.empty(ROWS, _ROW)
        self._filled = 0  # of these rows
        self._texts = _Texts()
        self._settled = 0  # entries that became records
        self.lifecycles: list[tuple[float, str, str, str]] = []  # (time_s, actor, event, detail)

    def __len__(self) -> int:
        """Number of entries recorded, stored or not."""
        return self._settled + len(self._recent)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} entries, {self.hash()}>"

    def message(
        self,
        event: str,
        time_s: float,
        envelope: Addressed,
        type_name: str,
        size_bytes: int,
        reason: str = "",
        number: int = 0,
    ) -> None:
        """Record an event of a message: `event` is one of `MESSAGE_EVENTS`, `size_bytes` its simulated size.

        number: tells the message from all others, above 0; it is in the table, not in the hash.
        """
        self.record(
            (time_s, _CODES[event], envelope.sender, envelope.receiver, type_name, size_bytes, reason, number)
        )

    def lifecycle(self, time_s: float, actor: str, event: str, detail: str = "") -> None:
        """A client came or went: `event` is one of `LIFECYCLE_EVENTS`; `detail`: a rejoin's state."""
        self.record((time_s, _CODES[event], actor, None, None, 0, detail, 0))
        self.lifecycles.append((time_s, actor, event, detail))

    def checksum(self, time_s: float, actor: str, value: int) -> None:
        """The checksum of an actor's parameters; `value` is taken modulo 2^64."""
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
        """Record a row of another trace's table again: its columns are the arguments."""
        text = detail or ""
        told = int(text, 16) if event == CHECKSUM else text
        self.record((time, _CODES[event], actor, peer, type, bytes or 0, told, message or 0))
        if event in LIFECYCLE_EVENTS:
            self.lifecycles.append((time, actor, event, text))

    def record(self, entry: Entry) -> None:
        """Record what any event comes to: all others here call this."""
        self._recent.append(entry)
        if len(self._recent) >= _BLOCK:
            self._settle()

    def hash(self) -> str:
        """Hash of all entries so far, 32 hexadecimal digits. Recording may go on afterwards."""
        self._settle()
        return self._blake.hexdigest()

    def to_table(self) -> pa.Table:
        """The rows kept in memory, in order, with the columns of `EVENTS_SCHEMA`."""
        assert self.kept is None
        self.flush()
        return pa.concat_tables([EVENTS_SCHEMA.empty_table(), *self._tables])

    def flush(self) -> None:
        """Hand on all that is to be kept so far."""
        self._settle()
        if self._filled:
            self._hand_on()

    def _hand_on(self) -> None:
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

    def _settle(self) -> None:
        """Make records of the recent entries, hash them, and keep those that are to be kept."""
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
        if details.count("") == len(details):  # as most often
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
        self._settled += len(times)
        self._recent.clear()

    def _keep(self, rows: np.ndarray) -> None:
        while len(rows):
            fitting = rows[: len(self._rows) - self._filled]
            self._rows[self._filled : self._filled + len(fitting)] = fitting
            self._filled += len(fitting)
            rows = rows[len(fitting) :]
            if self._filled == len(self._rows):
                self._hand_on()


def first_difference(first: pa.Table, second: pa.Table) -> str | None:
    """Describes the first entry, with its virtual time, in which two traces differ; None if they are equal.

    Traces recorded without their messages can have different hashes and yet no difference here.
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
        return "had ended"
    entry = table.slice(position, 1).to_pylist()[0]
    words = [f"t = {entry['time']!r} s: {entry['actor']} {entry['event']}"]
    if entry["peer"] is not None:
        words.append(f"{entry['type']} to {entry['peer']}, {entry['bytes']:,} B")
    if entry["detail"] is not None:
        words.append(f"({entry['detail']})")
    return " ".join(words)
