"""Logs of a live run: each process appends its records during the run, so that they outlive the process."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgpack

from sim.errors import UserError
from sim.files.journal import Journal, frames
from sim.live.placement import COORDINATOR
from sim.results.store.output_dir import abandoned_folders, is_results, is_under_way

_NAME = re.compile(rf"told-({COORDINATOR}|process-\d+)-(\d+)\.log")


class Sink(Protocol):
    """Destination of a process's records."""

    def write(self, *record: Any) -> None: ...

    def flush(self) -> None: ...


def log_path(folder: Path, process: str, life: int = 0) -> Path:
    return folder / f"told-{process}-{life}.log"


def state_path(folder: Path, process: str) -> Path:
    """Return the file with the state from which the successor of a killed process continues."""
    return folder / f"told-{process}.state"


def logs_in(folder: Path) -> list[tuple[str, Path]]:
    """Return the logs in a folder, each with its process: the coordinator's, then the others by name."""
    found = [(match, path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    found.sort(key=lambda each: (each[0][1] != COORDINATOR, len(each[0][1]), each[0][1], int(each[0][2])))
    return [(match[1], path) for match, path in found]


def has_begun(folder: Path) -> bool:
    """Return True if a live run has started to write records in this folder."""
    return log_path(folder, COORDINATOR).is_file()


def remove_logs(folder: Path) -> None:
    """Remove the records of a run's processes, once its results are complete."""
    for path in folder.glob("told-*"):
        path.unlink(missing_ok=True)


def logs_of_killed_runs(path: Path) -> list[Path]:
    """Return the folders of killed live runs for a path of `coterie resume`. Raises UserError."""
    folders = [path] if path.is_dir() else abandoned_folders(path)
    left = [folder for folder in folders if not is_results(folder) and has_begun(folder)]
    for folder in filter(is_under_way, left):
        raise UserError(f"{folder}: its run is still in progress")
    return left


class FileLog:
    """A log in a file. A written record outlives this process.

    The file is locked until this process ends. on_error: callback with the reason if the file cannot be
    written.
    """

    def __init__(self, path: Path, on_error: Callable[[str], object]) -> None:
        self._path, self._on_error = path, on_error
        self._pack = msgpack.Packer().pack
        self._journal = Journal(path)
        self._lock = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # the file system may not support locks
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def write(self, *record: Any) -> None:
        self.append(self._pack(record))

    def append(self, packed: bytes) -> None:
        """Write records that another process has packed."""
        try:
            self._journal.append(packed)
        except OSError as error:
            self._on_error(f"cannot write {self._path.name}: {error.strerror}")

    def flush(self) -> None:
        """Do nothing: no record is buffered."""

    def close(self) -> None:
        self._journal.close()
        os.close(self._lock)


class SentLog:
    """A log that another process writes; records are buffered until a flush."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self._pack = msgpack.Packer().pack
        self._waiting: list[bytes] = []

    def write(self, *record: Any) -> None:
        self._waiting.append(self._pack(record))

    def flush(self) -> None:
        if self._waiting:
            self._send(b"".join(self._waiting))
            self._waiting.clear()


def records(path: Path) -> Iterator[list[Any]]:
    """Read the complete records of a log. Raises OSError, and ValueError for files of another kind."""
    for frame in frames(path):
        unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=len(frame))
        unpacker.feed(frame)
        for record in unpacker:
            if not (isinstance(record, list) and record and isinstance(record[0], str)):
                raise ValueError(f"{path.name}: a record must be a list that starts with its kind")
            yield record


def wait_for_writers(folder: Path) -> None:
    """Wait until no process writes a log of a folder."""
    for _, path in logs_in(folder):
        with path.open("rb") as file, suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH)


def end_process(problem: str) -> None:
    """Print the problem, and end this process immediately."""
    print(problem, file=sys.stderr, flush=True)
    os._exit(1)
