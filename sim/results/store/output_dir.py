"""Where the results of a run go: into a hidden folder, which is renamed to the output directory at the end.

The hidden folder of `<name>` is `.<name>.<8 hexadecimal digits>` beside it. The process that writes into it
holds a file lock on it, which the system releases when the process ends, however it ends. So a hidden folder
without a lock was left by a dead process. The next run removes it, or renames it if its results are complete.
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
MANIFEST = "checksums.json"
"""Written last: a folder that has it is complete."""
READS = "reads.log"
CHECKPOINT = "checkpoint.pt"
CELL = "cell.json"
"""The mark of a sweep's run: which one it is, and by which version of coterie."""
PROGRESS = "progress.json"
"""How far a run is, while it goes on."""
HIDDEN = re.compile(r"\.(?P<name>.+-\d+-[0-9a-f]+)\.[0-9a-f]{8}(\.old)?")
_TOLD = r"told-(coordinator|process-\d+)(-\d+\.log|\.state(\.new)?)"
"""What the processes of a live run tell while it goes on (`sim.live.logs`)."""
_CHECKPOINTS = re.compile(r"checkpoint(-[0-9.e+-]+)?\.pt")
_OURS = re.compile(
    r"scenario\.toml|(summary|provenance|trace|progress|cell|checksums)\.json|\.coterie|reads\.log|report\.html"
    r"|(metrics|graph|events|intervals|coalitions|parent)\.parquet|events\.out\.tfevents\..+"
    rf"|{_TOLD}|{_CHECKPOINTS.pattern}|\.?(report\.html|(progress|checksums)\.json|{_CHECKPOINTS.pattern})\.new"
)
"""The files that coterie writes into a result directory. Others are the user's, and are never removed."""
MARK = ".coterie"
"""Says that a hidden folder, or one within results, is of coterie; of the latter it names the files."""


class HiddenFolder:
    """A new, locked, hidden folder `path` that is to become `target`. Raises OSError."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path, self._lock = _new_hidden(target)

    def move_to_target(self, replace: bool) -> Path:
        """Rename the folder to its target, or if that exists to `<target>-2`, ...; its new path. OSError.

        With `replace` it takes the place of results that are there. What the user put into the old folder is
        moved into the new one. Whoever settles beside it waits.
        """
        with _alone_in(self.target.parent):
            if replace and is_results(self.target):
                # Who is killed between the two leaves complete results, which the next run gives their name.
                (self.target / MARK).touch()
                old = self.target.rename(_hidden_name(self.target))
                self.path = self.path.rename(self.target)
                _clear_away(old, self.target)
            else:
                self.path = _move(self.path, self.target)
            with suppress(OSError):  # no folder of results has one
                (self.path / MARK).unlink()
        self._unlock()
        return self.path

    def clear(self) -> None:
        """Remove the folder and what was written there; no effect once it has been renamed."""
        if HIDDEN.fullmatch(self.path.name):
            _clear_away(self.path, self.target)
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def require_replaceable(target: Path, replace: bool) -> None:
    """Raises UserError where results could not replace what is there."""
    there = _identity(target) if replace else None
    while there is not None and not is_results(target):
        before, there = there, _identity(target)
        if there == before:  # else another process has replaced it meanwhile
            what = "is a link" if target.is_symlink() else "is no result directory (no summary.json)"
            raise UserError(f"--overwrite: {target} {what}, which is not replaced; move it away first")


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a folder from another one that takes its name; None if there is none."""
    try:
        status = path.lstat()
    except (OSError, ValueError):  # also for a name that none can be
        return None
    return status.st_ino, status.st_ctime_ns


def is_results(path: Path) -> bool:
    """Whether a path is a folder of results, damaged or not, and not a link to one."""
    marks = [path / name for name in ("summary.json", MANIFEST, CELL)]
    return not path.is_symlink() and any(map(os.path.lexists, marks))


def left_hidden(target: Path) -> list[Path]:
    """The hidden folders of `target` that dead processes left, by name.

    For `<target>-2`, where a rerun's results would go, those of `<target>` if it has none itself. Raises
    UserError if a run is still writing into one of them.
    """
    found = _hidden_of(target) or _hidden_of(target.with_name(re.sub(r"(?<=.)-\d+$", "", target.name)))
    for folder in filter(is_under_way, found):
        raise UserError(f"{target}: its run is still under way, in {folder}")
    return found


def is_under_way(folder: Path, unknown: bool = False) -> bool:
    """Whether a process writes into a hidden folder; `unknown` where the file system has no locks."""
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
    """The checkpoints in a folder of results, in no certain order."""
    return [file for file in folder.iterdir() if _CHECKPOINTS.fullmatch(file.name)]


def sync(folder: Path) -> None:
    """Have the system write a folder with all its files to the disk, so that a power cut loses none."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        with suppress(FileNotFoundError):  # it has another name by now
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def forget(folder: Path) -> None:
    """Remove a hidden folder that was left, now that nobody needs it."""
    if match := HIDDEN.fullmatch(folder.name):
        _clear_away(folder, folder.with_name(match["name"]))


def next_free(target: Path) -> Path:
    """The first of `target`, `<target>-2`, `<target>-3`, ... that does not exist."""
    return next(path for path in _names(target) if not os.path.lexists(path))


def clean_up(base: Path) -> None:
    """Remove the hidden folders in `base` that dead processes left; rename those with complete results.

    A folder with a checkpoint, or with what the processes of a live run told, stays, since `coterie resume`
    can use it, and so does one without our mark.
    """
    with suppress(OSError), _alone_in(base):
        for folder in sorted(base.iterdir()):
            match = HIDDEN.fullmatch(folder.name)
            if match is None or folder.is_symlink() or not folder.is_dir():
                continue
            with suppress(OSError):
                if not (folder / MARK).is_file():
                    folder.rmdir()  # if it is empty: whoever made it died before it could mark it
                    continue
                lock = _lock(folder)  # an OSError if its process lives
                try:
                    if (folder / MANIFEST).is_file():
                        _move(folder, base / match["name"])
                    elif not (checkpoints(folder) or (folder / "told-coordinator-0.log").is_file()):
                        _clear_away(folder, base / match["name"])
                finally:
                    os.close(lock)


def _new_hidden(target: Path) -> tuple[Path, int | None]:
    """A new hidden folder, and the lock on it as a file descriptor; None where there are no locks."""
    while True:
        path = _hidden_name(target)
        path.mkdir(parents=True)
        lock = None
        try:
            lock = _lock(path)
        except BlockingIOError:  # another process looks whether it was left: it must not stay without a lock
            continue
        except OSError:
            pass
        try:
            (path / MARK).touch()
        except FileNotFoundError:  # another process took it for one that was left
            if lock is not None:
                os.close(lock)
            continue
        return path, lock


def _hidden_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid4().hex[:8]}")


def _names(target: Path) -> Iterator[Path]:
    yield target
    yield from (target.with_name(f"{target.name}-{number}") for number in count(2))


@contextmanager
def _alone_in(base: Path) -> Iterator[None]:
    """Let one process at a time give names in a folder; where there are no locks, as many as come."""
    lock = None
    with suppress(OSError):
        lock = _lock(base, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool = False) -> int:
    """The only lock on a folder, as a file descriptor. BlockingIOError if another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _move(path: Path, target: Path) -> Path:
    """Rename a path to the first free name, whoever else does the same at this moment."""
    for free in _names(target):
        if os.path.lexists(free):
            continue
        try:
            return path.rename(free)
        except OSError:
            if not os.path.lexists(free):  # else somebody was faster
                raise
    raise AssertionError  # there are infinitely many names


def _clear_away(folder: Path, target: Path) -> None:
    """Remove a folder with what is ours in it; what the user put there is moved to `target`."""
    with suppress(OSError):
        (folder / MANIFEST).unlink()  # first: from now on these results are not complete
    with suppress(OSError):  # another process may be clearing up as well
        for entry in sorted(folder.iterdir()):
            with suppress(OSError, ValueError):
                if _OURS.fullmatch(entry.name) and not entry.is_dir():
                    entry.unlink()
                elif entry.is_symlink() or not _clear_copy(entry):
                    target.mkdir(exist_ok=True)
                    _move(entry, target / entry.name)
        folder.rmdir()


def _clear_copy(folder: Path) -> bool:
    """Remove the files of a folder that its mark names; whether nothing else was in it."""
    if not (folder / MARK).is_file():
        return False
    home = folder.resolve()
    for name in [*(folder / MARK).read_text(encoding="utf-8", errors="replace").splitlines(), MARK]:
        file = folder / name
        if file.parent.resolve().is_relative_to(home):  # else somebody has written into the mark
            file.unlink(missing_ok=True)
    for below in sorted(folder.rglob("*/"), reverse=True):
        with suppress(OSError):  # there is something of the user's in it
            below.rmdir()
    if any(folder.iterdir()):
        return False
    folder.rmdir()
    return True
