"""Checks of results of coterie 0.2.0, which wrote two hashes in summary.json instead of checksums.json."""

import hashlib
import os
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from sim.errors import UserError, one_line
from sim.files.input_file import InputFile
from sim.results.store.output_dir import MANIFEST

TRACE_HASH = "trace_hash"
"""Metadata key of a table with the trace hash of its run."""
_SCENARIO_HASH = "scenario_hash"


class HashesOfSummary:
    """Checks of files against the hashes in summary.json of 0.2.0, with the interface of `Manifest`."""

    def __init__(self, folder: Path, summary: dict[str, Any]) -> None:
        self._folder = folder
        self._summary = summary
        self._intact: set[str] = set()  # checked files

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the hashes in a folder's summary. Raises UserError for later results, which need checksums."""
        summary = InputFile("", folder / "summary.json").json()
        if not isinstance(summary, dict) or _SCENARIO_HASH not in summary:
            raise UserError(
                f"{folder / MANIFEST} is missing, so these results are incomplete; run "
                f"{folder / 'scenario.toml'} again"
            )
        return cls(folder, summary)

    def __contains__(self, name: str) -> bool:
        return os.path.isfile(self._folder / name)

    def require_sizes(self) -> None:
        """Check nothing, since sizes are unknown."""

    def require_intact(self, name: str) -> None:
        """Raise UserError if an existing file belongs to another run than the summary."""
        if name in self._intact:
            return
        file = self._folder / name
        if name == "scenario.toml" and _hash_of(file) != self._summary[_SCENARIO_HASH]:
            raise UserError(f"{file} does not match summary.json: it was changed, or belongs to another run")
        if file.suffix == ".parquet":
            found, known = _trace_hash_of(file), self._summary.get(TRACE_HASH)
            if found != known:
                raise UserError(
                    f"{file} belongs to another run: its trace hash is {found}, in summary.json {known}"
                )
        self._intact.add(name)


def _hash_of(file: Path) -> str:
    return hashlib.blake2b(InputFile("", file).content(), digest_size=16).hexdigest()


def _trace_hash_of(file: Path) -> str:
    """Return the trace hash in a table. Raises UserError if checksums of its pages are wrong."""
    try:
        with file.open("rb") as opened, pq.ParquetFile(opened, page_checksum_verification=True) as parquet:
            for _ in parquet.iter_batches():
                pass  # reading verifies
            metadata = parquet.schema_arrow.metadata or {}
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise UserError(f"{file} is not a table, or is damaged: {one_line(str(error))}") from error
    return one_line(metadata.get(TRACE_HASH.encode(), b"none").decode("utf-8", "replace"), 60)
