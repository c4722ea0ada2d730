"""Files that a key of a scenario names: found beside the scenario while it is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

_folder: ContextVar[Path | None] = ContextVar("folder of the scenario that is read", default=None)


@contextmanager
def files_beside(path: Path) -> Iterator[None]:
    """Inside the context, names of files are relative to the current folder, or else to that of `path`."""
    token = _folder.set(path.parent)
    try:
        yield
    finally:
        _folder.reset(token)


def find_file(name: str) -> Path:
    """Absolute path of a file: relative to the current folder, or else to that of the scenario being read."""
    here, folder = Path(name).absolute(), _folder.get()
    # Not Path.exists, which raises for a path that is too long.
    return here if folder is None or os.path.exists(here) else (folder / name).absolute()


def _absolute(name: str) -> str:
    return name if _folder.get() is None else str(find_file(name))


def _absolute_if_found(name: str) -> str:
    found = _absolute(name)
    return found if os.path.exists(found) else name


BesideFile = Annotated[str, AfterValidator(_absolute)]
"""A file beside the scenario, or in the current folder. It is absolute once a scenario is read."""
IF_FOUND = AfterValidator(_absolute_if_found)
DataFile = Annotated[str, IF_FOUND]
"""A file or folder beside the scenario, in the current folder, or else in the data folder."""
