"""checksums.json of a results folder: sizes and hashes of its files when they were written.

They show whether a file was truncated, edited, or copied from another run. They do not prove the origin of a
file, so the contents are checked when they are read.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, TypeAdapter

from sim.errors import UserError
from sim.files.input_file import InputFile
from sim.results.store.output_dir import MANIFEST

_Entry = tuple[NonNegativeInt, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]
_ENTRIES = TypeAdapter(dict[str, _Entry])


class Manifest:
    """Sizes and SHA-256 hashes of the files of a results folder, by name."""

    def __init__(self, folder: Path, entries: dict[str, _Entry]) -> None:
        self._folder = folder
        self._entries = entries
        self._intact: set[str] = set()  # checked files

    @classmethod
    def of(cls, folder: Path, names: Iterable[str]) -> Self:
        """Return the manifest of the existing files with these names. Raises OSError."""
        files = {name: folder / name for name in names}
        return cls(folder, {name: _entry(file) for name, file in files.items() if os.path.isfile(file)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder. Raises UserError."""
        file = folder / MANIFEST
        return cls(folder, InputFile("", file).parsed(_ENTRIES.validate_json, "a list of checksums"))

    def write(self) -> None:
        """Write the manifest atomically. Raises OSError."""
        new = self._folder / f".{MANIFEST}.new"
        new.write_text(json.dumps(self._entries, indent=1) + "\n", encoding="utf-8")
        new.replace(self._folder / MANIFEST)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def require_sizes(self) -> None:
        """Raise UserError if a file is missing or has another size."""
        for name, (size, _) in self._entries.items():
            file = self._folder / name
            if not os.path.isfile(file) or os.path.getsize(file) != size:
                raise UserError(f"{file} is missing, damaged or changed")

    def require_intact(self, name: str) -> None:
        """Raise UserError if a file is missing, is not listed, or differs from the written file."""
        if name in self._intact:
            return
        file, entry = self._folder / name, self._entries.get(name)
        try:
            # Check the size first, to not read a file that grew to a terabyte.
            is_same = entry is not None and os.path.getsize(file) == entry[0] and _entry(file) == entry
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
        if not is_same:
            raise UserError(
                f"{file} does not match {MANIFEST}: it is damaged, was changed, or belongs to another run"
            )
        self._intact.add(name)


def _entry(file: Path) -> _Entry:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return os.fstat(opened.fileno()).st_size, digest
