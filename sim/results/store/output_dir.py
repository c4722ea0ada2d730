"""Folders of results: a run writes into a hidden folder, which is renamed at the end.

The hidden folder of `<name>` is `.<name>.<8 hexadecimal digits>` in the same folder. Its writer holds a file
lock on it, which the system releases when the process ends in any way. A hidden folder without a lock was
left by a dead process. The next run removes it, or renames it if its results are complete.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

from sim.errors import UserError

REPORT = "report.html"
EXPLORE = "explore.html"
MANIFEST = "checksums.json"
"""Name of the file that is written last: a folder that contains it is complete."""
READS = "reads.log"
CHECKPOINT = "checkpoint.pt"
CELL = "cell.json"
"""Name of the file that marks a run of a sweep, with the run's key and the version of coterie."""
PROGRESS = "progress.json"
"""Name of the file with the progress of a running run."""
HIDDEN = re.compile(r"\.(?P<name>.+-\d+-[0-9a-f]+)\.[0-9a-f]{8}(\.old)?")
_LOGS = r"told-(coordinator|process-\d+)(-\d+\.log|\.state(\.new)?)"
"""Names of the logs of a live run's processes (`sim.live.logs`)."""
_CHECKPOINTS = re.compile(r"checkpoint(-[0-9.e+-]+)?\.pt")
_PAGES = r"(report|explore)\.html"
_OURS = re.compile(
    r"scenario\.toml|(summary|provenance|trace|progress|cell|checksums)\.json|\.coterie|reads\.log"
    rf"|{_PAGES}|(metrics|graph|events|intervals|coalitions|parent)\.parquet|events\.out\.tfevents\..+"
    rf"|{_LOGS}|{_CHECKPOINTS.pattern}|\.?({_PAGES}|(progress|checksums)\.json|{_CHECKPOINTS.pattern})\.new"
)
"""Names of the files that coterie writes. Other files belong to the user, and are never removed."""
MARK = ".coterie"
"""Name of the file that marks coterie's hidden folders, and its folders of results, whose files it lists."""


class HiddenFolder:
    """A new, locked, hidden folder `path` that becomes `target`. Raises OSError."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path, self._lock = _new_hidden(target)

    def move_to_target(self, replace: bool) -> Path:
        """Rename the folder to its target, or to `<target>-2`, ..., and return its new path. Raises OSError.

        With `replace` it replaces existing results, and the user's files in the old folder are moved into the
        new one. A lock on the parent folder orders concurrent runs.
        """
        with _renaming_lock(self.target.parent):
            if replace and is_results(self.target):
                # A process killed between the renames leaves complete results, which the next run renames.
                (self.target / MARK).touch()
                old = self.target.rename(_hidden_name(self.target))
                self.path = self.path.rename(self.target)
                _clear_away(old, self.target)
            else:
                self.path = _rename_to_free_name(self.path, self.target)
            with suppress(OSError):  # only hidden folders have a mark
                (self.path / MARK).unlink()
        self._unlock()
        return self.path

    def clear(self) -> None:
        """Remove the folder and its files; no effect after it was renamed."""
        if HIDDEN.fullmatch(self.path.name):
            _clear_away(self.path, self.target)
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def require_replaceable(target: Path, replace: bool) -> None:
    """Raise UserError if results cannot replace an existing path."""
    found = _identity(target) if replace else None
    while found is not None and not is_results(target):
        before, found = found, _identity(target)
        if found == before:  # else another process has just replaced it
            what = "is a link" if target.is_symlink() else "is not a results folder (it has no summary.json)"
            raise UserError(f"--overwrite: {target} {what}, so it is not replaced; move it away first")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a folder, which differs for a later folder of the same name; None if missing."""
    try:
        status = path.lstat()
    except (OSError, ValueError):  # also for impossible names
        return None
    return status.st_ino, status.st_ctime_ns


def is_results(path: Path) -> bool:
    """Return whether a path is a results folder, damaged or not, and not a link."""
    marks = [path / name for name in ("summary.json", MANIFEST, CELL)]
    return not path.is_symlink() and any(map(os.path.lexists, marks))


def abandoned_folders(target: Path) -> list[Path]:
    """Return the hidden folders of `target` that dead processes left, by name.

    If `<target>-2`, the folder of a rerun, has no hidden folders, returns the hidden folders of `<target>`.
    Raises UserError if a run is writing into one of them.
    """
    found = _hidden_of(target) or _hidden_of(target.with_name(re.sub(r"(?<=.)-\d+$", "", target.name)))
    for folder in filter(is_under_way, found):
        raise UserError(f"{target}: the run is still in progress and writes to {folder}")
    return found


def is_under_way(folder: Path, unknown: bool = False) -> bool:
    """Return whether a process writes into a hidden folder; `unknown` on file systems without locks."""
    try:
        os.close(_lock(folder))
    except BlockingIOError:
        return True
    except OSError:
        return unknown
    return False


def _hidden_of(target: Path) -> list[Path]:
    folders = sorted(target.parent.iterdir()) if target.parent.is_dir() else []
    matches = [(folder, HIDDEN.fullmatch(folder.name)) for folder in folders]
    return [folder for folder, match in matches if match and match["name"] == target.name and not match[2]]


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a results folder, in any order."""
    return [file for file in folder.iterdir() if _CHECKPOINTS.fullmatch(file.name)]


def sync(folder: Path) -> None:
    """Flush a folder with all its files to the disk, to survive a power failure."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        with suppress(FileNotFoundError):  # renamed meanwhile
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def remove_hidden_folder(folder: Path) -> None:
    """Remove a hidden folder that is no longer needed."""
    if match := HIDDEN.fullmatch(folder.name):
        _clear_away(folder, folder.with_name(match["name"]))


def next_free(target: Path) -> Path:
    """Return the first of `target`, `<target>-2`, `<target>-3`, ... that does not exist."""
    return next(path for path in _numbered_paths(target) if not os.path.lexists(path))


def clean_up(base: Path) -> None:
    """Remove the hidden folders in `base` that dead processes left; rename the folders with complete results.

    Folders with a checkpoint or with logs of a live run are kept for `coterie resume`. Folders without
    coterie's mark are kept, too, unless they are empty.
    """
    with suppress(OSError), _renaming_lock(base):
        for folder in sorted(base.iterdir()):
            match = HIDDEN.fullmatch(folder.name)
            if match is None or folder.is_symlink() or not folder.is_dir():
                continue
            with suppress(OSError):
                if not (folder / MARK).is_file():
                    folder.rmdir()  # if empty: its process died before it wrote the mark
                    continue
                lock = _lock(folder)  # an OSError if its process lives
                try:
                    if (folder / MANIFEST).is_file():
                        _rename_to_free_name(folder, base / match["name"])
                    elif not (checkpoints(folder) or (folder / "told-coordinator-0.log").is_file()):
                        _clear_away(folder, base / match["name"])
                finally:
                    os.close(lock)


def _new_hidden(target: Path) -> tuple[Path, int | None]:
    """Create a hidden folder; return it and the file descriptor of its lock, None without locks."""
    while True:
        path = _hidden_name(target)
        path.mkdir(parents=True)
        lock = None
        try:
            lock = _lock(path)
        except BlockingIOError:  # another process checks it; never use it without a lock
            continue
        except OSError:
            pass
        try:
            (path / MARK).touch()
        except FileNotFoundError:  # another process removed it as abandoned
            if lock is not None:
                os.close(lock)
            continue
        return path, lock


def _hidden_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid4().hex[:8]}")


def _numbered_paths(target: Path) -> Iterator[Path]:
    yield target
    yield from (target.with_name(f"{target.name}-{number}") for number in count(2))


@contextmanager
def _renaming_lock(base: Path) -> Iterator[None]:
    """Allow one process at a time to rename in a folder, if the file system has locks."""
    lock = None
    with suppress(OSError):
        lock = _lock(base, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool = False) -> int:
    """Lock a folder, and return the file descriptor. Raises BlockingIOError if it is already locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _rename_to_free_name(path: Path, target: Path) -> Path:
    """Rename a path to the first free name, safely with concurrent processes."""
    for free in _numbered_paths(target):
        if os.path.lexists(free):
            continue
        try:
            return path.rename(free)
        except OSError:
            if not os.path.lexists(free):  # else another process was faster
                raise
    raise AssertionError  # there are infinitely many names


def _clear_away(folder: Path, target: Path) -> None:
    """Remove a folder with coterie's files in it, and move the user's files to `target`."""
    with suppress(OSError):
        (folder / MANIFEST).unlink()  # first, to mark these results as incomplete
    with suppress(OSError):  # another process may also be cleaning up
        for entry in sorted(folder.iterdir()):
            with suppress(OSError, ValueError):
                if _OURS.fullmatch(entry.name) and not entry.is_dir():
                    entry.unlink()
                elif entry.is_symlink() or not _clear_copy(entry):
                    target.mkdir(exist_ok=True)
                    _rename_to_free_name(entry, target / entry.name)
        folder.rmdir()


def _clear_copy(folder: Path) -> bool:
    """Remove the files that a folder's mark lists; return True if the folder had no others."""
    if not (folder / MARK).is_file():
        return False
    home = folder.resolve()
    for name in [*(folder / MARK).read_text(encoding="utf-8", errors="replace").splitlines(), MARK]:
        file = folder / name
        if file.parent.resolve().is_relative_to(home):  # else the mark was edited
            file.unlink(missing_ok=True)
    for below in sorted(folder.rglob("*/"), reverse=True):
        with suppress(OSError):  # contains files of the user
            below.rmdir()
    if any(folder.iterdir()):
        return False
    folder.rmdir()
    return True
