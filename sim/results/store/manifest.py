"""checksums.json of a result directory: what its files were when they were written.

Whoever reads one of them knows with that whether it is still the same file, whatever has happened to it: cut
off, changed by hand, or copied from another run. A stranger can write checksums as well: what a file holds is
looked at when it is read.
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
    """Size and SHA-256 of the files of a result directory, by their names."""

    def __init__(self, folder: Path, entries: dict[str, _Entry]) -> None:
        self._folder = folder
        self._entries = entries
        self._intact: set[str] = set()  # what has been looked at

    @classmethod
    def of(cls, folder: Path, names: Iterable[str]) -> Self:
        """The manifest of the files of these names as they are now, if they are there. Raises OSError."""
        files = {name: folder / name for name in names}
        return cls(folder, {name: _entry(file) for name, file in files.items() if os.path.isfile(file)})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The manifest that was written into a folder. UserError."""
        file = folder / MANIFEST
        return cls(folder, InputFile("", file).parsed(_ENTRIES.validate_json, "a list of checksums"))

    def write(self) -> None:
        """Write it, in one step. Raises OSError."""
        new = self._folder / f".{MANIFEST}.new"
        new.write_text(json.dumps(self._entries, indent=1) + "\n", encoding="utf-8")
        new.replace(self._folder / MANIFEST)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def require_sizes(self) -> None:
        """UserError unless all files are there, and as large as they were."""
        for name, (size, _) in self._entries.items():
            file = self._folder / name
            if not os.path.isfile(file) or os.path.getsize(file) != size:
                raise UserError(f"{file} is missing, damaged or was changed")

    def require_intact(self, name: str) -> None:
        """UserError unless a file, which is there, is the one that was written."""
        if name in self._intact:
            return
        file, entry = self._folder / name, self._entries.get(name)
        try:
            # The size first: a file that was blown up to a terabyte is not read.
            is_same = entry is not None and os.path.getsize(file) == entry[0] and _entry(file) == entry
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
        if not is_same:
            raise UserError(
                f"{file} is damaged, was changed, or is of another run: it is not the file that {MANIFEST} "
                "was written with"
            )
        self._intact.add(name)


def _entry(file: Path) -> _Entry:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return os.fstat(opened.fileno()).st_size, digest
