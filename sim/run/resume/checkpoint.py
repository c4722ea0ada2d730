"""Checkpoints: vectors of a run at one virtual time, with which a replay up to that time can continue."""

from __future__ import annotations

import errno
import math
import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.learning.engine.replay_log import RecordedReadLog
from sim.learning.engine.snapshot import PoolSnapshot, pool_snapshots
from sim.results.store.output_dir import CHECKPOINT, checkpoints, sync
from sim.run.options import RunOptions
from sim.run.setup.builder import PreparedRun
from sim.scenario.shared_prefix import prefix_digest

ALWAYS_BYTES = 64e6  # maximum size of the checkpoint that is written by default at the end of a run
_FORM = 3


class OtherVersion(UserError):
    """Error: a checkpoint of another version of coterie, in a format that this version cannot read."""


@dataclass(frozen=True)
class Checkpoint:
    """State of a run, after all events at `time_s`.

    reads, flushes, log_bytes: positions of the log and the engine. trace_hash: hash of the trace so far.
    wall_s: wall-clock time so far. scenario: its `prefix_digest`. made_by: code, data, device and libraries
    that affect the computed values.
    """

    time_s: float
    reads: int
    flushes: int
    log_bytes: int
    trace_hash: str
    wall_s: float
    scenario: str
    made_by: dict[str, str]
    rows: dict[int, PoolSnapshot]

    @classmethod
    def of(cls, run: PreparedRun, wall_s: float, made_by: dict[str, str]) -> Checkpoint:
        """Return the current state of a run. Raises OSError if its log cannot be written."""
        simulation = run.simulation
        read_log = simulation.engine.read_log
        assert isinstance(read_log, RecordedReadLog)
        return cls(
            simulation.loop.time(),
            read_log.count,
            simulation.engine.flushes,
            read_log.synced(),
            simulation.trace.hash(),
            wall_s,
            prefix_digest(run.scenario, simulation.loop.time()),
            made_by,
            pool_snapshots(simulation.engine),
        )

    def write(self, file: Path) -> None:
        """Write the file, and replace an earlier one atomically. Raises OSError."""
        folder, new = file.parent, file.with_name(f".{file.name}.new")
        rows = {width: tuple(each) for width, each in self.rows.items()}
        contents = vars(self) | {"rows": rows, "form": _FORM, "checksum": self._checksum()}
        try:
            with new.open("wb") as opened:
                torch.save(contents, opened)
                opened.flush()
                os.fsync(opened.fileno())
            new.replace(file)
        except RuntimeError as error:  # torch's error for files that cannot be written
            raise OSError(errno.EIO, str(error).partition("\n")[0]) from error
        finally:
            new.unlink(missing_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _checksum(self) -> int:
        """Return the CRC-32 of all contents: torch does not verify the data that it reads."""
        fields = {name: value for name, value in vars(self).items() if name != "rows"}
        checksum = zlib.crc32(repr(sorted(fields.items())).encode())
        for width, stored_rows in sorted(self.rows.items()):
            checksum = zlib.crc32(f"{width} {tuple(stored_rows.rows.shape)}".encode(), checksum)
            for numbers in stored_rows:
                checksum = zlib.crc32(numbers.numpy().reshape(-1).view("uint8").data, checksum)
        return checksum

    def _is_intact(self, checksum: int) -> bool:
        try:
            return self._checksum() == checksum
        except Exception:  # damaged contents may have any type
            return False

    @classmethod
    def latest(cls, folder: Path, until_s: float = math.inf) -> tuple[Checkpoint | None, list[UserError]]:
        """Return the last intact checkpoint of a results directory up to a time, or None.

        Also returns a list of errors of unusable checkpoints, which may be of later times.
        """
        found, unusable = [], list[UserError]()
        for file in sorted(checkpoints(folder)) if folder.is_dir() else []:
            try:
                found.append((cls._opened(file), file))
            except UserError as error:
                unusable.append(error)
        found = [each for each in found if each[0][0].time_s <= until_s]
        for (at, checksum), file in sorted(found, key=lambda each: each[0][0].time_s, reverse=True):
            if at._is_intact(checksum):
                return at, unusable
            unusable.append(_damage(file, "its checksum differs"))
        return None, unusable

    @classmethod
    def _opened(cls, file: Path) -> tuple[Checkpoint, int]:
        """Return the checkpoint of a file, and its stated checksum, without reading tensors."""
        try:
            if not file.is_file():  # reading from a pipe may wait forever
                raise ValueError("it is not a regular file")
            contents: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            form, checksum = contents.pop("form"), contents.pop("checksum", 0)
            if form == _FORM:
                rows = {width: PoolSnapshot(*each) for width, each in contents.pop("rows").items()}
                at = cls(**contents, rows=rows)
                if not at.time_s >= 0:
                    raise ValueError(f"time_s = {at.time_s}")
                return at, checksum
        except Exception as error:  # damaged bytes can make torch fail in any way
            raise _damage(file, str(error).partition("\n")[0]) from error
        raise OtherVersion(f"{file} was written by another version of coterie")


def _damage(file: Path, reason: str) -> UserError:
    return UserError(f"{file} is damaged ({reason})")


class Checkpointer(RunHook):
    """Hook that writes to `folder` the checkpoints that the options of the run request.

    started_s: as for `ProgressWatcher`. `failure` is the error if the last checkpoint could not be written.
    """

    def __init__(self, run: PreparedRun, folder: Path, options: RunOptions, started_s: float) -> None:
        self.failure: OSError | None = None
        self.every_s = options.checkpoint_every_s
        self._run, self._simulation = run, run.simulation
        self._folder = folder
        self._made_by = run.made_by  # the state before the run
        self._at_end = options.checkpoint_at_end
        self._is_described = False  # True once the run's description is safe from a power cut
        self._started_s, self._written_s = started_s, time.perf_counter()
        self._at_s = frozenset(options.checkpoints_s)
        loop = self._simulation.loop
        for time_s in sorted(self._at_s):
            loop.call_at_observer(time_s, loop.pause)

    def look(self) -> None:
        """Pause the loop after the current virtual time if a checkpoint is due."""
        if self.every_s is not None and time.perf_counter() - self._written_s >= self.every_s:
            self._simulation.loop.pause()

    def paused(self, simulation: Simulation) -> None:
        now = simulation.loop.time()
        # All digits, so that different times have different files.
        self._write(f"checkpoint-{repr(now).removesuffix('.0')}.pt" if now in self._at_s else CHECKPOINT)

    def ended(self, simulation: Simulation) -> None:
        held = sum(4 * pool.width * pool.in_use for pool in simulation.engine.pools.values())
        if self.every_s is not None or (self._at_end and held <= ALWAYS_BYTES):
            self._write()

    def _write(self, name: str = CHECKPOINT) -> None:
        self._written_s = time.perf_counter()
        try:
            if not self._is_described:  # resuming needs the description
                sync(self._folder)
                self._is_described = True
            wall_s = self._written_s - self._started_s
            Checkpoint.of(self._run, wall_s, self._made_by).write(self._folder / name)
        except OSError as error:  # the run continues
            self.failure = error
