"""Warning about a client that blocks a run: its method computes without letting virtual time pass."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Self

from actors.source_location import innermost_own_line, location_text
from sim.core.simulation import Simulation
from sim.kernel.clock import VirtualLoop
from sim.kernel.task import VirtualTask
from sim.plugins.source_files import PRODUCT

PATIENCE_S = 10.0  # real time
LOOK_EVERY_S = 1.0
_ENGINE = str(PRODUCT / "sim" / "learning")
_OF_THE_LOOP = (VirtualTask.fire.__code__, VirtualLoop._run_events.__code__)
Frame = tuple[str, int, str]
"""File, line and function of a stack frame."""


class Watchdog(threading.Thread):
    """Separate thread that watches a simulation in the thread that enters this context.

    It only prints; a run is the same without it.
    """

    def __init__(self, simulation: Simulation, report: Callable[[str], object]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._simulation, self._report = simulation, report
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._at: tuple[int, float] | None = None  # current task, if any, and virtual time
        self._since_s = 0.0
        self._is_reported = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            line = self._look()
            if line is not None:
                with suppress(OSError):  # the stream is closed
                    self._report(line)

    def _look(self) -> str | None:
        """Return the line to print, if any. Keeps no reference to objects of the run."""
        loop, now_s = self._simulation.loop, time.monotonic()
        task = asyncio.current_task(loop)
        at = None if not loop.is_running() else (id(task), loop.now_s)
        if at != self._at:
            self._at, self._since_s, self._is_reported = at, now_s, False
        if at is None or self._is_reported or now_s - self._since_s < PATIENCE_S:
            return None
        name = None if task is None else task.get_name().partition(":")[0]
        line = self._described(name, _frames(sys._current_frames().get(self._watched)))
        self._is_reported = line is not None
        return line

    def _described(self, name: str | None, frames: list[Frame]) -> str | None:
        """Return the line, or None while the engine computes or no method of an actor runs.

        name: the actor with the current task, if any; there is none while the observer calls weights().
        """
        if any(file.startswith(_ENGINE) for file, _, _ in frames):
            return None
        actors = {life.name: life.actor for life in self._simulation.lives if life.actor is not None}
        kinds = dict.fromkeys(type(actor) for each, actor in actors.items() if name in (None, each))
        for kind in kinds:
            line = innermost_own_line(kind, [frame[:2] for frame in frames])
            if line is not None:
                source = line.rpartition(":")[0]
                method = next(
                    name for file, at, name in frames if location_text(file, at).rpartition(":")[0] == source
                )
                return (
                    f"{name or 'a client'}: {method} has run for {PATIENCE_S:g} s without an await that lets "
                    f"time pass ({line}); press Ctrl-C twice to end the run without waiting for it"
                )
        return None


def _frames(frame: FrameType | None) -> list[Frame]:
    """Return the stack frames of a thread with a loop, from its task's first frame to the innermost."""
    found: list[Frame] = []
    while frame is not None and frame.f_code not in _OF_THE_LOOP:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]
