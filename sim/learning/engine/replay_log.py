"""Reads of values from the device, and the log of all of them.

The actions of a run depend on computed values only where a value is read. The log of these reads allows a
replay of the run: the same code runs, and takes and frees the same rows, but computes nothing.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np
import torch
from torch import Tensor

from sim.errors import UserError
from sim.files.journal import Journal
from sim.learning.engine.graph.nodes import Slot
from sim.learning.engine.vector_pool import index_tensor

Arrays = dict[str, np.ndarray]

_INLINE_BYTES = 16  # of one read; longer rows are logged once, then by digest
_RECENT_BYTES = 64 << 20  # of longer rows that digests may refer to
_FRAME_BYTES = 1 << 16
_DIGEST, _SPLIT, _EVALUATED, _FACTORS = 1, 2, 3, 4  # codes of records
META = torch.device("meta")  # for tensors with a shape and no values


class ReplayError(RuntimeError):
    """Error: a replay does not match the log of the run."""


class ReadLog:
    """Computes values that are read, and keeps no log."""

    is_replay = False
    keeps_factors = False
    """True if `note_factors` records the factors."""

    def row(self, find: Callable[[], Tensor], device: torch.device) -> Tensor:
        """Return the float32 values of a row, on `device`."""
        return find()

    def arrays(self, find: Callable[[], Arrays]) -> Arrays:
        """Return arrays computed from rows, such as a metric of each."""
        return find()

    def plain(self, find: Callable[[], Any]) -> Any:
        """Return the result of `find`: a text, a number, or lists of these, read from the device.

        Raises the ValueError of `find`.
        """
        return find()

    def note_split(self, batches: int) -> None:
        """Record that a call ran out of memory and was split, after `batches` calls."""

    def note_factors(self, scalars: Sequence[Slot]) -> None:
        """Record the values of computed scalars that scale vectors: a replay does not compute them."""

    def evaluated(self, time_s: float, trace_hash: Callable[[], str]) -> None:
        """Record that all models were evaluated at a virtual time; the hash covers all events so far.

        If the log of the run states a different hash, a replay raises ReplayError, and a run that continues
        after a replay raises UserError.
        """

    def flush(self) -> None:
        """Write all reads so far to the operating system."""

    def arrive(self, flushes: int) -> None:
        """Signal that a computation is about to start.

        flushes: number of computations so far. Here, a replay that has reached its end becomes a computing
        run.
        """

    def close(self) -> None:
        """Close the log: no more reads follow."""


class RecordedReadLog(ReadLog):
    """Log of computed values. If writing fails, the run continues without a log: `failure` is the reason."""

    keeps_factors = True

    def __init__(
        self,
        journal: Journal,
        recent: _RecentRows | None = None,
        count: int = 0,
        evaluations: Mapping[float, str] = MappingProxyType({}),
    ) -> None:
        """recent, count: state of the log that this one continues. evaluations: expected hashes, by time."""
        self.count = count  # of records
        self._evaluations = evaluations
        self.failure: OSError | None = None
        self._journal = journal
        self._recent = _RecentRows() if recent is None else recent
        self._buffer = bytearray()
        self._factors: list[tuple[list[int], Tensor]] = []  # serials and values, not yet in the buffer
        self._noted: set[int] = set()  # serials

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

    def note_factors(self, scalars: Sequence[Slot]) -> None:
        new = {slot.serial: slot for slot in scalars if slot.serial not in self._noted}
        if not new:
            return
        self._noted.update(new)
        pool = next(iter(new.values())).pool
        rows = index_tensor([slot.row for slot in new.values()], pool.device)
        # Copied at the next flush: on a GPU, a copy would wait for all computations.
        self._factors.append((list(new), pool.data[rows, 0]))

    def evaluated(self, time_s: float, trace_hash: Callable[[], str]) -> None:
        found = trace_hash()
        if self._evaluations.get(time_s, found) != found:
            raise UserError(
                f"the evaluation at {time_s:g} s has different models or messages than before the "
                "interruption: the run cannot resume exactly; --anyway resumes it regardless"
            )
        self._write(_evaluation(time_s, found))

    def _write(self, record: Any) -> None:
        self.count += 1
        self._buffer += msgpack.packb(record)
        if len(self._buffer) >= _FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._factors:
            serials = np.array([serial for some, _ in self._factors for serial in some], np.int64)
            values = torch.cat([some for _, some in self._factors]).cpu().numpy()
            self._factors.clear()
            self._buffer += msgpack.packb(
                msgpack.ExtType(_FACTORS, msgpack.packb([serials.tobytes(), values.tobytes()]))
            )
        if self._buffer and self.failure is None:
            try:
                self._journal.append(bytes(self._buffer))
            except OSError as error:  # results matter more than their log
                self.failure = error
        self._buffer.clear()

    def synced(self) -> int:
        """Write the log to disk; returns its size in bytes. Raises OSError."""
        self.flush()
        if self.failure is not None:
            raise self.failure
        self._journal.sync()
        return self._journal.size

    def close(self) -> None:
        self.flush()
        self._journal.close()


class ReplayedReadLog(ReadLog):
    """Returns the values in the log of a run without computing. Raises ReplayError for different reads."""

    is_replay = True

    def __init__(
        self,
        frames: Iterable[bytes],
        *,
        flushes: int | None = None,
        arrive: Callable[[ReplayedReadLog], None] | None = None,
    ) -> None:
        """Call `arrive` at the first computation after the last record and `flushes` flushes."""
        self.count = 0  # of records that were read
        self.failure: ReplayError | None = None
        self._flushes = flushes
        self._on_arrival = arrive
        self.recent = _RecentRows()
        self._records = _records(frames)
        self._next: Any = next(self._records, _END)

    @property
    def ended(self) -> bool:
        """True if the log has no more records."""
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
        """Return True if the call after `batches` calls ran out of memory and was split."""
        if self._next != msgpack.ExtType(_SPLIT, batches.to_bytes(8, "little")):
            return False
        self._take()
        return True

    def _take(self) -> Any:
        record = self._next
        if record is _END:
            raise self._failed(f"the log ends after {self.count:,} reads, but the replay reads more")
        self.count += 1
        self._next = next(self._records, _END)
        return record

    def _unfit(self, wanted: str) -> ReplayError:
        return self._failed(f"read number {self.count:,} of the log is not {wanted}, as the replay expects")

    def _failed(self, problem: str) -> ReplayError:
        """Return the error to raise, and record it: the errors of an actor do not end the run."""
        self.failure = self.failure or ReplayError(problem)
        return self.failure


_END = object()


class _RecentRows:
    """Recently read large rows, by digest; a replay keeps the same rows as the run."""

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


def evaluation_hashes_after(reads: int, frames: Iterable[bytes]) -> dict[float, str]:
    """Return the hashes in a log for the evaluations after its first `reads` records, by virtual time."""
    later = itertools.islice(_records(frames), reads, None)
    return dict(msgpack.unpackb(record.data) for record in later if _is_evaluation(record))


def logged_factors(frames: Iterable[bytes]) -> dict[int, float]:
    """Return the values of the scalars that scale vectors, by the serials of their slots."""
    factors: dict[int, float] = {}
    for record in _all_records(frames):
        if _is_factors(record):
            serials, values = msgpack.unpackb(record.data)
            pairs = zip(
                np.frombuffer(serials, np.int64).tolist(),
                np.frombuffer(values, np.float32).tolist(),
                strict=True,
            )
            factors.update(pairs)
    return factors


def _is_factors(record: Any) -> bool:
    return isinstance(record, msgpack.ExtType) and record.code == _FACTORS


def _evaluation(time_s: float, trace_hash: str) -> msgpack.ExtType:
    return msgpack.ExtType(_EVALUATED, msgpack.packb([time_s, trace_hash]))


def _is_evaluation(record: Any) -> bool:
    return isinstance(record, msgpack.ExtType) and record.code == _EVALUATED


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def _records(frames: Iterable[bytes]) -> Iterator[Any]:
    """Yield the records of reads: all records except factors, whose order has no meaning."""
    return (record for record in _all_records(frames) if not _is_factors(record))


def _all_records(frames: Iterable[bytes]) -> Iterator[Any]:
    for frame in frames:
        unpacker = msgpack.Unpacker(max_buffer_size=len(frame))
        unpacker.feed(frame)
        yield from unpacker
