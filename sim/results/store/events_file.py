"""events.parquet of a run, written in row groups during the run, so that memory stays constant."""

from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from sim.results.trace import EVENTS_SCHEMA

_TEXTS = [field.name for field in EVENTS_SCHEMA if field.type == pa.string()]
"""Columns with few different texts, which use dictionaries; for numbers, dictionaries are larger and
slower."""


class EventsFile:
    """The file of a trace, complete after `close`.

    If writing fails, the file is removed, `failure` holds the error, and the run continues.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: OSError | None = None
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._is_whole = False

    def write(self, rows: pa.Table) -> None:
        """Write rows; no effect after a failure."""
        if self.failure is None:
            try:
                self._opened().write_table(rows)
            except OSError as error:
                self.failure = error
                self.discard()  # other files of the run may need the disk space

    def close(self, metadata: dict[str, str]) -> None:
        """Complete the file. Raises the OSError of this or an earlier failure."""
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
        """Remove the file, unless it is complete."""
        if self._writer is not None and not self._is_whole:
            self._writer.is_open = False  # else its destructor would write the footer
            assert self._file is not None
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _opened(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._file = self.path.open("wb")
            # Without Arrow's schema, because its metadata would hide metadata added at the end.
            options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
            options |= {"store_schema": False, "use_dictionary": _TEXTS}
            self._writer = pq.ParquetWriter(self._file, EVENTS_SCHEMA, **options)
        return self._writer
