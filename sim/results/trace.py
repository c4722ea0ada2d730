"""The trace: everything that happened in a run, in order, with one hash over all of it.

Entries are kept as they come and made into fixed-size binary records many at a time, so that recording costs
one tuple and one append. The records' bytes are hashed and, if kept, decoded into a table at the end. Texts
(names, message types, reasons) stand in them as 64-bit digests of their own, so that equal hashes mean equal
texts.
"""

from array import array
from hashlib import blake2b
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

MESSAGE_EVENTS = ("sent", "delivered", "lost", "dropped")
LIFECYCLE_EVENTS = ("start", "join", "leave", "crash", "rejoin", "failed", "restarted", "stop")
CHECKSUM = "checksum"
EVENTS = (*MESSAGE_EVENTS, *LIFECYCLE_EVENTS, CHECKSUM)

TABLE_SCHEMA = pa.schema(
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

_CODES = {event: code for code, event in enumerate(EVENTS)}
_DTYPE = np.dtype(
    [
        ("time", "<f8"),
        ("event", "u1"),
        ("actor", "<u8"),
        ("peer", "<u8"),
        ("type", "<u8"),
        ("bytes", "<i8"),
        ("detail", "<u8"),
    ]
)
_BLOCK = 2048  # entries that are made into records at once
_MASK_64 = (1 << 64) - 1


class _Digests(dict[str | None, int]):
    """The 64-bit digest of each text so far; 0 stands for none."""

    def __missing__(self, text: str | None) -> int:
        digest = blake2b(text.encode(), digest_size=8).digest() if text is not None else b""
        number = self[text] = int.from_bytes(digest, "little")
        return number


class Addressed(Protocol):
    """A message on its way, as far as the trace looks at it."""

    @property
    def sender(self) -> str: ...

    @property
    def receiver(self) -> str: ...


class Trace:
    """Records a run. With `keep_messages=False` messages are hashed but not stored.

    Lifecycle entries and checksums are always stored: they are few, and the report needs the former.
    """

    def __init__(self, *, keep_messages: bool = True) -> None:
        self.keep_messages = keep_messages
        self._blake = blake2b(digest_size=16)
        self._recent: list[tuple] = []  # entries that are no records yet
        self._stored = bytearray()
        self._numbers = array("q")  # the messages of the stored records; not hashed
        self._digests = _Digests()
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
        """What became of a message: `event` is one of `MESSAGE_EVENTS`, `size_bytes` its simulated size.

        number: tells the message from all others, above 0; it is in the table, not in the hash.
        """
        recent = self._recent
        recent.append(
            (time_s, _CODES[event], envelope.sender, envelope.receiver, type_name, size_bytes, reason, number)
        )
        if len(recent) >= _BLOCK:
            self._settle()

    def lifecycle(self, time_s: float, actor: str, event: str, detail: str = "") -> None:
        """A client came or went: `event` is one of `LIFECYCLE_EVENTS`; `detail`: a rejoin's state."""
        self._recent.append((time_s, _CODES[event], actor, None, None, 0, detail, 0))
        self.lifecycles.append((time_s, actor, event, detail))

    def checksum(self, time_s: float, actor: str, value: int) -> None:
        """The checksum of an actor's parameters; `value` is taken modulo 2^64."""
        self._recent.append((time_s, _CODES[CHECKSUM], actor, None, None, 0, value & _MASK_64, 0))

    def hash(self) -> str:
        """Hash of all entries so far, 32 hexadecimal digits. Recording may go on afterwards."""
        self._settle()
        return self._blake.hexdigest()

    def to_table(self) -> pa.Table:
        """The stored entries, in order, with the columns of `TABLE_SCHEMA`."""
        self._settle()
        # A copy: a view of the bytearray would forbid recording for as long as it lives.
        records = np.frombuffer(bytes(self._stored), dtype=_DTYPE)
        code = records["event"]
        is_message = code < len(MESSAGE_EVENTS)
        texts = pa.array(list(self._digests), pa.string())
        events = pa.array(EVENTS, pa.string())
        columns = [
            pa.array(records["time"]),
            events.take(pa.array(code)),
            texts.take(pa.array(self._places(records["actor"]))),
            texts.take(pa.array(self._places(records["peer"]), mask=~is_message)),
            texts.take(pa.array(self._places(records["type"]), mask=~is_message)),
            pa.array(records["bytes"], mask=~is_message),
            pa.array(self._details(records), pa.string()),
            pa.array(np.array(self._numbers), mask=np.array(self._numbers) == 0),
        ]
        return pa.Table.from_arrays(columns, schema=TABLE_SCHEMA)

    def _places(self, digests: np.ndarray) -> np.ndarray:
        """Where in the order of their first use the texts with these digests stand."""
        known = np.array(list(self._digests.values()), dtype=np.uint64)
        order = np.argsort(known)
        return order[np.searchsorted(known, digests, sorter=order)] if known.size else np.zeros(0, np.int64)

    def _details(self, records: np.ndarray) -> list[str | None]:
        texts = {digest: text or None for text, digest in self._digests.items()}
        checksum = _CODES[CHECKSUM]
        return [
            f"{detail:016x}" if code == checksum else texts[detail]
            for code, detail in zip(records["event"].tolist(), records["detail"].tolist(), strict=True)
        ]

    def _settle(self) -> None:
        """Make records of the recent entries, hash them, and keep those that are to be kept."""
        if not self._recent:
            return
        digests = self._digests
        times, codes, actors, peers, types, sizes, details, numbered = zip(*self._recent, strict=True)
        records = np.empty(len(times), _DTYPE)
        records["time"] = times
        records["event"] = codes
        for field, texts in (("actor", actors), ("peer", peers), ("type", types)):
            records[field] = np.array(list(map(digests.__getitem__, texts)), dtype=np.uint64)
        records["bytes"] = sizes
        if details.count("") == len(details):  # as most often
            records["detail"] = digests[""]
        else:
            as_numbers = [detail if type(detail) is int else digests[detail] for detail in details]
            records["detail"] = np.array(as_numbers, dtype=np.uint64)
        self._blake.update(records.tobytes())
        if self.keep_messages:
            self._numbers.extend(numbered)
        else:
            records = records[records["event"] >= len(MESSAGE_EVENTS)]
            self._numbers.extend([0] * len(records))
        self._stored += records.tobytes()
        self._settled += len(times)
        self._recent.clear()


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
