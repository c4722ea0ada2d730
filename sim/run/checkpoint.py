"""Checkpoints: what a run held at one moment, with which a walk to that moment can go on computing."""

from __future__ import annotations

import errno
import math
import os
import pickle
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sim.errors import UserError
from sim.learning.engine.reads import LoggedReads
from sim.learning.engine.rows import Stored, stored
from sim.results.place import CHECKPOINT, checkpoints
from sim.run.simulation import Simulation
from sim.scenario.past import past_of
from sim.scenario.scenario import Scenario
from sim.scenario.sources import PRODUCT, Source, digest_of

ALWAYS_BYTES = 64e6  # a checkpoint at the end of a run is written without being asked for, up to so many
_FORM = 1
_OURS = ("actors", "protocols", "sim")


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run, after all that happened at `time_s`.

    reads, flushes, log_bytes: how far the log and the engine were. trace_hash: of all until then. wall_s:
    real time until then. scenario: what `past_of` says of it. made_by: what numbers hang on beside it.
    """

    time_s: float
    reads: int
    flushes: int
    log_bytes: int
    trace_hash: str
    wall_s: float
    scenario: str
    made_by: dict[str, str]
    rows: dict[int, Stored]

    @classmethod
    def of(cls, simulation: Simulation, wall_s: float) -> Checkpoint:
        """Where a simulation is now. Raises OSError where its log cannot be written."""
        reads = simulation.engine.reads
        assert isinstance(reads, LoggedReads)
        return cls(
            simulation.loop.time(),
            reads.count,
            simulation.engine.flushes,
            reads.synced(),
            simulation.trace.hash(),
            wall_s,
            past_of(simulation.scenario, simulation.loop.time()),
            made_by(simulation.scenario, simulation.engine.device),
            stored(simulation.engine),
        )

    def write(self, file: Path) -> None:
        """Put it in the place of an earlier one, in one step, whatever is cut off. Raises OSError."""
        folder, new = file.parent, file.with_name(f".{file.name}.new")
        contents = vars(self) | {"rows": {w: tuple(each) for w, each in self.rows.items()}, "form": _FORM}
        try:
            with new.open("wb") as opened:
                torch.save(contents, opened)
                opened.flush()
                os.fsync(opened.fileno())
            new.replace(file)
        except RuntimeError as error:  # as torch says of files that cannot be written
            raise OSError(errno.EIO, str(error).partition("\n")[0]) from error
        finally:
            new.unlink(missing_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @classmethod
    def latest(cls, folder: Path, until_s: float = math.inf) -> Checkpoint | None:
        """The last one of a results directory up to a time, None without any. UserError if it is damaged."""
        if not folder.is_dir():
            return None
        found = [each for file in checkpoints(folder) if (each := cls.read(file)).time_s <= until_s]
        return max(found, key=lambda each: each.time_s, default=None)

    @classmethod
    def read(cls, file: Path) -> Checkpoint:
        """UserError if it is damaged."""
        try:
            contents: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            if contents.pop("form") != _FORM:
                raise ValueError("it was written by another version of coterie")
            rows = {width: Stored(*each) for width, each in contents.pop("rows").items()}
            return cls(**contents, rows=rows)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, *_WRONG) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{file} is damaged: {reason}") from error


_WRONG = (ValueError, TypeError, KeyError, AttributeError)


class Checkpointer:
    """Writes checkpoints of a simulation into `folder` every so many seconds of real time, and at its end.

    at_s: virtual times of others, which stay. at_end: whether one of the end is wanted, if it is small.
    interrupted: whether a signal has come. `failure` says why the last one could not be written.
    """

    def __init__(
        self,
        simulation: Simulation,
        folder: Path,
        every_s: float | None,
        at_s: Iterable[float],
        at_end: bool,
        interrupted: Callable[[], bool],
    ) -> None:
        self.failure: OSError | None = None
        self.before_s = 0.0  # real time that the run took before this process
        self._simulation = simulation
        self._folder = folder
        self.every_s = every_s
        self._at_end = at_end
        self._interrupted = interrupted
        self._started_s = self._written_s = time.perf_counter()
        self._at_s = frozenset(at_s)
        for time_s in sorted(self._at_s):
            simulation.loop.call_at_observer(time_s, simulation.loop.pause)
        simulation.on_pause, simulation.on_end = self._paused, self._end

    def look(self) -> None:
        """See whether one is due; then it is written when this instant is over."""
        if self.every_s is not None and time.perf_counter() - self._written_s >= self.every_s:
            self._simulation.loop.pause()

    def _paused(self) -> bool:
        now = self._simulation.loop.time()
        # All digits: two moments that differ are two files.
        self._write(f"checkpoint-{repr(now).removesuffix('.0')}.pt" if now in self._at_s else CHECKPOINT)
        return not self._interrupted()

    def _end(self) -> None:
        held = sum(4 * arena.width * arena.in_use for arena in self._simulation.engine.arenas.values())
        if self.every_s is not None or (self._at_end and held <= ALWAYS_BYTES):
            self._write()

    def _write(self, name: str = CHECKPOINT) -> None:
        self._written_s = time.perf_counter()
        try:
            wall_s = self.before_s + self._written_s - self._started_s
            Checkpoint.of(self._simulation, wall_s).write(self._folder / name)
        except OSError as error:  # the run is worth more
            self.failure = error


def made_by(scenario: Scenario, device: torch.device) -> dict[str, str]:
    """What the numbers of a run hang on beside its scenario, by its name."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    sources = [*scenario.protocol.sources, *[each for user in scenario.users_code for each in user.sources]]
    users = tuple(source for source in sources if not source.is_ours)
    return {
        "the code of coterie": _code(),
        "the user's code": digest_of(users) if users else "none",
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "the device": name,
    }


@cache  # the code that runs is the one that was there when it was loaded
def _code() -> str:
    files = [path for folder in _OURS for path in sorted((PRODUCT / folder).rglob("*.py"))]
    return digest_of(tuple([Source(str(p.relative_to(PRODUCT)), p.read_bytes(), True) for p in files]))
