"""The trace: everything that happened in a run, in order, with one hash over all of it.

An entry is a fixed-size binary record. The same bytes are hashed and, if kept, decoded into a table at the
end, so that recording costs one `struct.pack` and two appends. Texts (names, message types, reasons) are
interned; a text's first use puts its definition into the hashed bytes, so that equal hashes mean equal texts.
"""

import struct
from hashlib import blake2b
from typing import Protocol

import numpy as np
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
    ]
)

_CODES = {event: code for code, event in enumerate(EVENTS)}
_DEFINITION = 255  # a pseudo-event that is only hashed: "the next `bytes` bytes are the text number `actor`"
_NONE = -1
_RECORD = struct.Struct("<dBiiiqQ")
_DTYPE = np.dtype(
    [
        ("time", "<f8"),
        ("event", "u1"),
        ("actor", "<i4"),
        ("peer", "<i4"),
        ("type", "<i4"),
        ("bytes", "<i8"),
        ("detail", "<u8"),
    ]
)
_HASH_CHUNK_BYTES = 1 << 16
_MASK_64 = (1 << 64) - 1


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
        self._unhashed = bytearray()
        self._stored = bytearray()
        self._ids: dict[str, int] = {}
        self._entries = 0
        self.lifecycles: list[tuple[float, str, str, str]] = []  # (time_s, actor, event, detail)

    def __len__(self) -> int:
        """Number of entries recorded, stored or not."""
        return self._entries

    def __repr__(self) -> str:
        return f"<Trace of {self._entries} entries, {self.hash()}>"

    def message(
        self,
        event: str,
        time_s: float,
        envelope: Addressed,
        type_name: str,
        size_bytes: int,
        reason: str = "",
    ) -> None:
        """What became of a message: `event` is one of `MESSAGE_EVENTS`, `size_bytes` its simulated size."""
        code, ids = _CODES[event], self._ids
        sender, receiver = envelope.sender, envelope.receiver
        try:  # nearly always all texts are known
            record = _RECORD.pack(
                time_s, code, ids[sender], ids[receiver], ids[type_name], size_bytes, ids[reason]
            )
        except KeyError:
            for text in (sender, receiver, type_name, reason):
                self._id(text)
            self.message(event, time_s, envelope, type_name, size_bytes, reason)
            return
        # As in _append; a call for each message is worth sparing.
        self._entries += 1
        self._unhashed += record
        if self.keep_messages:
            self._stored += record
        if len(self._unhashed) >= _HASH_CHUNK_BYTES:
            self._hash_pending()

    def lifecycle(self, time_s: float, actor: str, event: str, detail: str = "") -> None:
        """A client came or went: `event` is one of `LIFECYCLE_EVENTS`; `detail`: a rejoin's state."""
        self.lifecycles.append((time_s, actor, event, detail))
        record = _RECORD.pack(time_s, _CODES[event], self._id(actor), _NONE, _NONE, 0, self._id(detail))
        self._append(record)

    def checksum(self, time_s: float, actor: str, value: int) -> None:
        """The checksum of an actor's parameters; `value` is taken modulo 2^64."""
        code = _CODES[CHECKSUM]
        self._append(_RECORD.pack(time_s, code, self._id(actor), _NONE, _NONE, 0, value & _MASK_64))

    def hash(self) -> str:
        """Hash of all entries so far, 32 hexadecimal digits. Recording may go on afterwards."""
        self._hash_pending()
        return self._blake.hexdigest()

    def to_table(self) -> pa.Table:
        """The stored entries, in order, with the columns of `TABLE_SCHEMA`."""
        # A copy: a view of the bytearray would forbid recording for as long as it lives.
        records = np.frombuffer(bytes(self._stored), dtype=_DTYPE)
        code = records["event"]
        is_message = code < len(MESSAGE_EVENTS)
        texts = pa.array(list(self._ids), pa.string())
        events = pa.array(EVENTS, pa.string())
        columns = [
            pa.array(records["time"]),
            events.take(pa.array(code)),
            texts.take(pa.array(records["actor"])),
            texts.take(pa.array(records["peer"], mask=~is_message)),
            texts.take(pa.array(records["type"], mask=~is_message)),
            pa.array(records["bytes"], mask=~is_message),
            pa.array(self._details(records), pa.string()),
        ]
        return pa.Table.from_arrays(columns, schema=TABLE_SCHEMA)

    def _details(self, records: np.ndarray) -> list[str | None]:
        texts: list[str | None] = [text or None for text in self._ids]
        checksum = _CODES[CHECKSUM]
        return [
            f"{detail:016x}" if code == checksum else texts[detail]
            for code, detail in zip(records["event"].tolist(), records["detail"].tolist(), strict=True)
        ]

    def _id(self, text: str) -> int:
        number = self._ids.get(text)
        if number is None:
            number = self._ids[text] = len(self._ids)
            encoded = text.encode()
            self._unhashed += _RECORD.pack(0.0, _DEFINITION, number, _NONE, _NONE, len(encoded), 0)
            self._unhashed += encoded
        return number

    def _append(self, record: bytes) -> None:
        self._entries += 1
        self._unhashed += record
        self._stored += record
        if len(self._unhashed) >= _HASH_CHUNK_BYTES:
            self._hash_pending()

    def _hash_pending(self) -> None:
        self._blake.update(self._unhashed)
        self._unhashed.clear()


def first_difference(first: pa.Table, second: pa.Table) -> str | None:
    """Describes the first entry, with its virtual time, in which two traces differ; None if they are equal.

    Traces recorded without their messages can have different hashes and yet no difference here.
    """
    common = min(len(first), len(second))
    differing = [
        position
        for name in TABLE_SCHEMA.names
        if (position := _first_unequal(first[name][:common], second[name][:common])) is not None
    ]
    if not differing and len(first) == len(second):
        return None
    position = min(differing, default=common)
    return (
        f"entry {position + 1:,} differs:\n"
        f"  first run:  {_describe(first, position)}\n"
        f"  second run: {_describe(second, position)}"
    )


def _first_unequal(first: pa.ChunkedArray, second: pa.ChunkedArray) -> int | None:
    if first.equals(second):
        return None
    low, high = 0, len(first)  # the answer is in [low, high); halves are compared without leaving Arrow
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle].equals(second[low:middle]):
            low = middle
        else:
            high = middle
    return low


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
