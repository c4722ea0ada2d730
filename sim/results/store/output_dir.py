"""The place of a run's results: they are written into a hidden folder beside it, and put there in one step.

`.<name>.<8 hexadecimal digits>` is the hidden folder of `<name>`. Its process holds a lock on it, which ends
with the process however that ends: a hidden folder that can be locked is one that a dead process left, and
the next run clears it away. What was complete is not lost by that, it gets a place.
"""

import ctypes
import errno
import glob
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Self
from uuid import uuid4

from sim.errors import UserError

if sys.platform != "win32":
    import fcntl

REPORT = "report.html"
"""Written last: where it is, the results are complete."""
READS = "reads.log"
CHECKPOINT = "checkpoint.pt"
_FILES = {"scenario.toml", "summary.json", "provenance.json", REPORT, f".{REPORT}.new", ".room", READS}
_FILES |= {
    f"{table}.parquet" for table in ("metrics", "graph", "events", "intervals", "coalitions", "parent")
}
PROGRESS = "progress.json"
"""How far a run is, while it goes on."""
_FILES |= {"trace.json", PROGRESS, f"{PROGRESS}.new"}
_CHECKPOINTS = re.compile(r"\.?checkpoint(-[0-9.e+-]+)?\.pt(\.new)?")
_EVENTS = re.compile(r"events\.out\.tfevents\..+")  # of TensorBoard
_CODE = re.compile(r"[a-z][a-z_]*-[0-9a-f]{8}")  # protocol-<hash>, latency-<hash>, ... by tables of scenarios
HIDDEN = re.compile(r"\.(?P<name>.+-\d+-[0-9a-f]+)\.[0-9a-f]{8}(\.old)?")

_ROOM_BYTES = 8 << 20  # the report alone has 5 MB
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class HiddenFolder:
    """A locked folder `path` whose contents are meant for `place`."""

    def __init__(self, path: Path, place: Path, lock: int | None) -> None:
        self.path = path
        self.place = place
        self._lock = lock

    @classmethod
    def beside(cls, place: Path) -> Self:
        """A new one; raises OSError."""
        while True:
            path = _hidden_name(place)
            path.mkdir(parents=True)
            try:
                lock = _lock(path)
            except (BlockingIOError, FileNotFoundError):
                continue  # another process took it for one that was left, and clears it away
            except OSError:
                lock = None  # no locks in this file system: nobody will take it for one that was left
            if path.exists():
                return cls(path, place, lock)

    def require_room(self) -> None:
        """Raises OSError if not even a small run would fit."""
        room = self.path / ".room"
        try:
            with room.open("wb") as file:
                file.write(bytes(_ROOM_BYTES))
        finally:
            room.unlink(missing_ok=True)

    def settle(self, replace: bool) -> Path:
        """Puts the folder to its place, or if that is taken beside it, and returns where. Raises OSError.

        With `replace` it takes the place of the results that are there; whatever stops this, the old ones are
        there or the new ones. What else lies in the old folder stays.
        """
        if replace and is_results(self.place):
            with _kept_from_others(self.place):
                old = _replace(self.path, self.place)
                self.path = self.place
                _clear_away(old, self.place)
        else:
            self.path = _move(self.path, self.place)
        self._unlock()
        return self.path

    def clear(self) -> None:
        """Removes the folder and what was written there; no effect once it is settled."""
        if HIDDEN.fullmatch(self.path.name):
            _clear_away(self.path, self.place)
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def require_place(place: Path, replace: bool) -> None:
    """Raises UserError where results could not go, or could not replace what is there."""
    for folder in (place.parent, *place.parent.parents):
        if folder.is_symlink() and not folder.exists():
            raise UserError(
                f"cannot write results to {place.parent}: {folder} is a link to {folder.readlink()}, "
                "which does not exist"
            )
    if not replace or not os.path.lexists(place):
        return
    if place.is_symlink():
        raise UserError(f"--overwrite: {place} is a link, which is not replaced; remove it first")
    if not is_results(place):
        raise UserError(f"--overwrite: {place} is no result directory (no summary.json); move it away first")


def is_results(path: Path) -> bool:
    """Whether a path is a folder of results, not a link to one."""
    return not path.is_symlink() and (path / "summary.json").is_file()


def left_hidden(place: Path) -> list[Path]:
    """The folders that processes which are dead left hidden beside `place`, by name.

    For `<place>-2`, where a rerun's results would go, those of `place` if it has none. UserError if a run of
    it is under way.
    """
    found = _hidden_of(place) or _hidden_of(place.with_name(re.sub(r"-\d+$", "", place.name)))
    for folder in found:
        try:
            os.close(_lock(folder))
        except BlockingIOError:
            raise UserError(f"{place}: its run is still under way, in {folder}") from None
        except OSError:
            continue  # no locks in this file system
    return found


def _hidden_of(place: Path) -> list[Path]:
    matches = [
        (folder, HIDDEN.fullmatch(folder.name))
        for folder in sorted(place.parent.glob(f".{glob.escape(place.name)}.*"))
    ]
    return [folder for folder, match in matches if match and match["name"] == place.name and not match[2]]


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder of results, in no certain order."""
    return [file for file in folder.iterdir() if _CHECKPOINTS.fullmatch(file.name) and file.name[0] != "."]


def sync(folder: Path) -> None:
    """Have all that is in a folder outlive a power cut, and that it is there. Raises OSError."""
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
    """Clear away what was left hidden, now that nobody needs it."""
    if match := HIDDEN.fullmatch(folder.name):
        _clear_away(folder, folder.with_name(match["name"]))


def free_place(place: Path) -> Path:
    """`place`, or the first of `<place>-2`, `<place>-3`, ... where nothing is yet."""
    return next(path for path in _places(place) if not os.path.lexists(path))


def sweep(base: Path) -> None:
    """Clears the hidden folders in `base` away that dead processes left; complete results get a place."""
    with suppress(OSError):
        for folder in sorted(base.iterdir()):
            if (match := HIDDEN.fullmatch(folder.name)) and not folder.is_symlink() and folder.is_dir():
                with suppress(OSError):
                    _sweep(folder, base / match["name"])


def _sweep(folder: Path, place: Path) -> None:
    lock = _lock(folder)  # an OSError if a process that lives has it
    try:
        if (folder / REPORT).is_file():
            _move(folder, place)
        elif not checkpoints(folder):  # else the run can go on from there
            _clear_away(folder, place)
    finally:
        os.close(lock)


def _hidden_name(place: Path) -> Path:
    return place.with_name(f".{place.name}.{uuid4().hex[:8]}")


def _places(place: Path) -> Iterator[Path]:
    yield place
    yield from (place.with_name(f"{place.name}-{number}") for number in count(2))


@contextmanager
def _kept_from_others(place: Path) -> Iterator[None]:
    """Hold the lock of the folder that is at `place` now, wherever it goes: it is nothing that was left.

    Waits for another process that replaces it.
    """
    while True:
        try:
            lock = _lock(place, wait=True)
        except OSError:
            yield  # no locks in this file system
            return
        if _is_at(place, lock):
            break
        os.close(lock)  # it was replaced meanwhile
    try:
        yield
    finally:
        os.close(lock)


def _is_at(place: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), place.stat())
    except OSError:
        return False


def _lock(folder: Path, wait: bool = False) -> int:
    """The only lock on a folder, as a file descriptor; BlockingIOError if another has it, unless it waits."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(folder))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _move(folder: Path, place: Path) -> Path:
    """Renames a folder to the first place that is free, whoever else does the same now."""
    for path in _places(place):
        if os.path.lexists(path):
            continue
        try:
            return folder.rename(path)
        except OSError:
            if not os.path.lexists(path):  # else somebody was faster
                raise
    raise AssertionError  # there are infinitely many places


def _replace(new: Path, place: Path) -> Path:
    """Puts `new` to where a folder is, and returns where that is now."""
    if _exchange(new, place):
        return new
    old = _hidden_name(place)
    place.rename(old)
    try:
        new.rename(place)
    except OSError:
        old.rename(place)
        raise
    return old


def _exchange(first: Path, second: Path) -> bool:
    """Swaps two folders in one step; False where the system can't."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2  # of Linux
    except (AttributeError, OSError, TypeError):
        return False
    names = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    return renameat2(*names, _RENAME_EXCHANGE) == 0


def _clear_away(folder: Path, place: Path) -> None:
    """Removes a folder with what is ours in it; what others put there goes to `place`."""
    with suppress(OSError):  # what somebody has put there in its stead goes with the rest
        (folder / REPORT).unlink()  # first: from now on these results are not complete
    with suppress(FileNotFoundError):  # another process may be clearing up as well
        for entry in sorted(folder.iterdir()):
            with suppress(OSError):
                ours = (
                    entry.name in _FILES
                    or _CHECKPOINTS.fullmatch(entry.name)
                    or _EVENTS.fullmatch(entry.name)
                )
                if ours and not entry.is_dir():
                    entry.unlink()
                elif _is_code(entry):
                    shutil.rmtree(entry)
                else:
                    place.mkdir(exist_ok=True)
                    _move(entry, place / entry.name)
        with suppress(OSError):
            folder.rmdir()


def _is_code(entry: Path) -> bool:
    """Whether a folder is a copy of the user's code, with nothing else in it."""
    if not _CODE.fullmatch(entry.name) or entry.is_symlink():
        return False
    return all(path.is_dir() or path.suffix in (".py", ".pyc") for path in entry.rglob("*"))
