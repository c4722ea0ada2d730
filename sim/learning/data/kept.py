"""A data set that several runs of one process read from the same files: read once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.learning.data.dataset import Dataset

_kept: dict[Any, Dataset] | None = None


@contextmanager
def kept_data() -> Iterator[None]:
    """Keep the data set that was read last for the next run of this process that reads the same files."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before


def read_once(kind: type, files: list[Path], read: Callable[[], Dataset]) -> Dataset:
    """What `read` makes of the files, or the kept data set of the same kind and files.

    Without files, as of a data set that is yet to be downloaded, nothing is kept. A file that has another
    size, time of change or inode is read anew. Runs share the inputs, which nothing writes to; each has its
    own targets, as partitions of the user's see them.
    """
    if _kept is None or not files:
        return read()
    states = [(str(file), file.stat()) for file in files]
    key = (kind, *[(path, state.st_size, state.st_mtime_ns, state.st_ino) for path, state in states])
    if key not in _kept:
        _kept.clear()
        _kept[key] = read()
    found = _kept[key]
    return replace(found, train_y=found.train_y.copy(), test_y=found.test_y.copy())
