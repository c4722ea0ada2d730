"""Results of 0.2.0, which has no checksums.json: two hashes say which of the files belong together."""

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
"""The key of a table's metadata that says of which run it is."""
_SCENARIO_HASH = "scenario_hash"


class HashesOfSummary:
    """Holds files against summary.json of 0.2.0, as `Manifest` does against checksums."""

    def __init__(self, folder: Path, summary: dict[str, Any]) -> None:
        self._folder = folder
        self._summary = summary
        self._intact: set[str] = set()  # what has been looked at

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The hashes in a folder's summary. UserError where later results lack their checksums."""
        summary = InputFile("", folder / "summary.json").json()
        if not isinstance(summary, dict) or _SCENARIO_HASH not in summary:
            raise UserError(
                f"{folder / MANIFEST} is missing: these results are not complete; run "
                f"{folder / 'scenario.toml'} again to have them anew"
            )
        return cls(folder, summary)

    def __contains__(self, name: str) -> bool:
        return os.path.isfile(self._folder / name)

    def require_sizes(self) -> None:
        """Nothing: no sizes are known."""

    def require_intact(self, name: str) -> None:
        """UserError unless a file, which is there, is of the run that the summary is of."""
        if name in self._intact:
            return
        file = self._folder / name
        if name == "scenario.toml" and _hash_of(file) != self._summary[_SCENARIO_HASH]:
            raise UserError(f"{file} was changed, or is of another run: it is not the one of summary.json")
        if file.suffix == ".parquet":
            found, known = _trace_hash_of(file), self._summary.get(TRACE_HASH)
            if found != known:
                raise UserError(
                    f"{file} is of another run: it has the trace hash {found}, and summary.json has {known}"
                )
        self._intact.add(name)


def _hash_of(file: Path) -> str:
    return hashlib.blake2b(InputFile("", file).content(), digest_size=16).hexdigest()


def _trace_hash_of(file: Path) -> str:
    """What a table says of its run; UserError unless the checksums of its pages are right."""
    try:
        with file.open("rb") as opened, pq.ParquetFile(opened, page_checksum_verification=True) as parquet:
            for _ in parquet.iter_batches():
                pass  # to read is what verifies
            metadata = parquet.schema_arrow.metadata or {}
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise UserError(f"{file} is not a table, or damaged: {one_line(str(error))}") from error
    return one_line(metadata.get(TRACE_HASH.encode(), b"none").decode("utf-8", "replace"), 60)
