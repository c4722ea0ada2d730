"""The one door through which numbers leave the device, and the log of all that went through it.

What a run does depends on computed numbers only where something reads one. With the log of these reads it can
be replayed: the same code runs, takes and gives back the same rows, and computes nothing.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np
import torch
from torch import Tensor

from sim.errors import UserError
from sim.files.journal import Journal

Arrays = dict[str, np.ndarray]

_INLINE_BYTES = 16  # of one read; what is longer stands once in the log, and then by its digest
_RECENT_BYTES = 64 << 20  # of longer ones that may be referred to
_FRAME_BYTES = 1 << 16
_DIGEST, _SPLIT, _EVALUATED = 1, 2, 3  # codes of records
META = torch.device("meta")  # of tensors that have a shape and no numbers


class ReplayError(RuntimeError):
    """A replay does not fit the log of the run that it repeats."""


class ReadLog:
    """Computes what is read, and keeps no log."""

    is_replay = False

    def row(self, find: Callable[[], Tensor], device: torch.device) -> Tensor:
        """The float32 numbers of a row, on `device`."""
        return find()

    def arrays(self, find: Callable[[], Arrays]) -> Arrays:
        """What is computed from rows, such as a measure of each."""
        return find()

    def plain(self, find: Callable[[], Any]) -> Any:
        """A text, a number, or lists of these, found on the device. Raises the ValueError of `find`."""
        return find()

    def note_split(self, batches: int) -> None:
        """After so many calls, one ran out of memory and was split."""

    def evaluated(self, time_s: float, trace_hash: Callable[[], str]) -> None:
        """All models were evaluated at a virtual time; the hash is of all events until then.

        If the log of the run states another hash, a replay raises ReplayError, and a run that goes on after a
        replay raises UserError.
        """

    def flush(self) -> None:
        """Have all that was read so far outlive the process."""

    def arrive(self, flushes: int) -> None:
        """Something is about to be computed, after so many flushes: a replay may have come to its end."""

    def close(self) -> None:
        """Nothing is read any more."""


class RecordedReadLog(ReadLog):
    """Writes down what is computed. When that fails, the run goes on without a log: `failure` says why."""

    def __init__(
        self,
        journal: Journal,
        recent: _Recent | None = None,
        count: int = 0,
        evaluations: Mapping[float, str] = MappingProxyType({}),
    ) -> None:
        """recent, count: of the log that it goes on from. evaluations: the hashes to expect, by time."""
        self.count = count  # of records
        self._evaluations = evaluations
        self.failure: OSError | None = None
        self._journal = journal
        self._recent = _Recent() if recent is None else recent
        self._buffer = bytearray()

    def row(self, find: Callable[[], Tensor], device: torch.device) -> Tensor:
        values = find()
        raw = values.cpu().numpy().tobytes()
        if len(raw) <= _INLINE_BYTES:
            self._write(raw)
            return values
        digest = _digest(raw)
        if self._recent.get(digest) is not None:
            self._write(msgpack.ExtType(_DIGEST, digest))
        else:
            self._recent.add(digest, raw)
            self._write(raw)
        return values

    def arrays(self, find: Callable[[], Arrays]) -> Arrays:
        found = find()
        self._write({name: [values.dtype.str, values.tobytes()] for name, values in found.items()})
        return found

    def plain(self, find: Callable[[], Any]) -> Any:
        try:
            found = find()
        except ValueError as error:
            self._write([str(error), False])
            raise
        self._write([found, True])
        return found

    def note_split(self, batches: int) -> None:
        self._write(msgpack.ExtType(_SPLIT, batches.to_bytes(8, "little")))

    def evaluated(self, time_s: float, trace_hash: Callable[[], str]) -> None:
        found = trace_hash()
        if self._evaluations.get(time_s, found) != found:
            raise UserError(
                f"the evaluation at {time_s:g} s finds other models or messages than before the run was cut "
                "short: the run does not go on exactly; --anyway goes on all the same"
            )
        self._write(_evaluation(time_s, found))

    def _write(self, record: Any) -> None:
        self.count += 1
        self._buffer += msgpack.packb(record)
        if len(self._buffer) >= _FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._buffer and self.failure is None:
            try:
                self._journal.append(bytes(self._buffer))
            except OSError as error:  # what is computed is worth more than its log
                self.failure = error
        self._buffer.clear()

    def synced(self) -> int:
        """Have it all outlive a power cut; returns the bytes of the log. Raises OSError."""
        self.flush()
        if self.failure is not None:
            raise self.failure
        self._journal.sync()
        return self._journal.size

    def close(self) -> None:
        self.flush()
        self._journal.close()


class ReplayedReadLog(ReadLog):
    """Returns what the log of a run says, and computes nothing. ReplayError if something else is read."""

    is_replay = True

    def __init__(
        self,
        frames: Iterable[bytes],
        *,
        flushes: int | None = None,
        arrive: Callable[[ReplayedReadLog], None] | None = None,
    ) -> None:
        """`arrive` is called where anything is computed after the last record and so many `flushes`."""
        self.count = 0  # of records that were asked for
        self.failure: ReplayError | None = None
        self._flushes = flushes
        self._on_arrival = arrive
        self.recent = _Recent()
        self._records = _records(frames)
        self._next: Any = next(self._records, _END)

    @property
    def ended(self) -> bool:
        """Whether the log says no more."""
        return self._next is _END

    def arrive(self, flushes: int) -> None:
        if self._on_arrival is not None and self.ended and flushes == self._flushes:
            self._on_arrival(self)

    def row(self, find: Callable[[], Tensor], device: torch.device) -> Tensor:
        raw = self._take()
        if isinstance(raw, msgpack.ExtType) and raw.code == _DIGEST:
            raw = self.recent.get(raw.data)
        elif isinstance(raw, bytes) and len(raw) > _INLINE_BYTES:
            self.recent.add(_digest(raw), raw)
        if not isinstance(raw, bytes):
            raise self._unfit("a row")
        return torch.frombuffer(bytearray(raw), dtype=torch.float32).to(device)

    def arrays(self, find: Callable[[], Arrays]) -> Arrays:
        record = self._take()
        if not isinstance(record, Mapping):
            raise self._unfit("a measurement")
        return {name: np.frombuffer(raw, kind).copy() for name, (kind, raw) in record.items()}

    def plain(self, find: Callable[[], Any]) -> Any:
        record = self._take()
        if not isinstance(record, list):
            raise self._unfit("a text or a number")
        found, is_there = record
        if not is_there:
            raise ValueError(found)
        return found

    def evaluated(self, time_s: float, trace_hash: Callable[[], str]) -> None:
        if _is_evaluation(self._next) and self._take() != _evaluation(time_s, trace_hash()):
            raise self._failed(f"the evaluation at {time_s:g} s differs from that of the run")

    def was_split(self, batches: int) -> bool:
        """Whether the call after so many ran out of memory and was split."""
        if self._next != msgpack.ExtType(_SPLIT, batches.to_bytes(8, "little")):
            return False
        self._take()
        return True

    def _take(self) -> Any:
        record = self._next
        if record is _END:
            raise self._failed(f"the log ends after {self.count:,} reads, and more is read")
        self.count += 1
        self._next = next(self._records, _END)
        return record

    def _unfit(self, wanted: str) -> ReplayError:
        return self._failed(f"read number {self.count:,} of the log is not {wanted}, which is asked for")

    def _failed(self, problem: str) -> ReplayError:
        """The error to raise; noted, too, since who reads may be an actor, whose errors end nobody else."""
        self.failure = self.failure or ReplayError(problem)
        return self.failure


_END = object()


class _Recent:
    """The longer rows that were read last, by digest; a replay keeps the same ones as the run did."""

    def __init__(self) -> None:
        self._rows: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, digest: bytes) -> bytes | None:
        return self._rows.get(digest)

    def add(self, digest: bytes, raw: bytes) -> None:
        self._rows[digest] = raw
        self._bytes += len(raw)
        while self._bytes > _RECENT_BYTES:
            self._bytes -= len(self._rows.popitem(last=False)[1])


def evaluations_after(reads: int, frames: Iterable[bytes]) -> dict[float, str]:
    """The hashes that a log states for the evaluations after its first `reads` records, by virtual time."""
    later = itertools.islice(_records(frames), reads, None)
    return dict(msgpack.unpackb(record.data) for record in later if _is_evaluation(record))


def _evaluation(time_s: float, trace_hash: str) -> msgpack.ExtType:
    return msgpack.ExtType(_EVALUATED, msgpack.packb([time_s, trace_hash]))


def _is_evaluation(record: Any) -> bool:
    return isinstance(record, msgpack.ExtType) and record.code == _EVALUATED


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def _records(frames: Iterable[bytes]) -> Iterator[Any]:
    for frame in frames:
        unpacker = msgpack.Unpacker(max_buffer_size=len(frame))
        unpacker.feed(frame)
        yield from unpacker
