"""Files that keys of a scenario name, relative to the scenario."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

_folder: ContextVar[Path | None] = ContextVar("folder of the scenario that is read", default=None)


@contextmanager
def resolving_file_names(path: Path) -> Iterator[None]:
    """Inside the context, resolve file names relative to the current folder, or to the folder of `path`."""
    token = _folder.set(path.parent)
    try:
        yield
    finally:
        _folder.reset(token)


def find_file(name: str) -> Path:
    """Return the absolute path of a file in the current folder, or in the folder of the scenario."""
    local, folder = Path(name).absolute(), _folder.get()
    # Path.exists raises for a path that is too long.
    return local if folder is None or os.path.exists(local) else (folder / name).absolute()


def _absolute(name: str) -> str:
    return name if _folder.get() is None else str(find_file(name))


def _absolute_if_found(name: str) -> str:
    found = _absolute(name)
    return found if os.path.exists(found) else name


@dataclass(frozen=True)
class FileNameKey:
    """Annotation of a key that names a file, or a folder of files, that a run reads.

    The content of the file is part of the scenario's digest. find: returns the path for a name.
    """

    find: Callable[[str], str]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.find, handler(source))


BesideFile = Annotated[str, FileNameKey(_absolute)]
"""A file in the scenario's folder or the current folder; absolute in a scenario that was read."""
IF_FOUND = FileNameKey(_absolute_if_found)
DataFile = Annotated[str, IF_FOUND]
"""A file or folder in the scenario's folder, the current folder, or the data folder."""
