"""events.parquet of a run, written in row groups as its trace comes, so that memory stays flat."""

from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from sim.results.trace import EVENTS_SCHEMA

_TEXTS = [field.name for field in EVENTS_SCHEMA if field.type == pa.string()]
"""Few different ones; a dictionary of numbers would be larger than they are, and take longer."""


class EventsFile:
    """The file that a trace is kept in; it is whole once it has been closed.

    One that cannot be written is removed, and `failure` says why: the run is worth more, and goes on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: OSError | None = None
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._is_whole = False

    def write(self, rows: pa.Table) -> None:
        """Some more rows; nothing once it has failed."""
        if self.failure is None:
            try:
                self._opened().write_table(rows)
            except OSError as error:
                self.failure = error
                self.discard()  # others of this run may need the room

    def close(self, metadata: dict[str, str]) -> None:
        """Make it a whole file. Raises the OSError that it failed by, earlier or now."""
        if self.failure is None and not self._is_whole:
            try:
                writer = self._opened()
                writer.add_key_value_metadata(metadata)
                writer.close()
                assert self._file is not None
                self._file.close()
                self._is_whole = True
            except OSError as error:
                self.failure = error
                self.discard()
        if self.failure is not None:
            raise self.failure

    def discard(self) -> None:
        """Remove it, unless it is whole."""
        if self._writer is not None and not self._is_whole:
            self._writer.is_open = False  # else it would write its footer when it is collected
            assert self._file is not None
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _opened(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._file = self.path.open("wb")
            # Without arrow's own schema, whose metadata would hide what is added at the end.
            options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
            options |= {"store_schema": False, "use_dictionary": _TEXTS}
            self._writer = pq.ParquetWriter(self._file, EVENTS_SCHEMA, **options)
        return self._writer
