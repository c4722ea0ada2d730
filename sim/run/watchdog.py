"""Says which client keeps a run from going on: a method of it computes, and lets no virtual time pass."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Self

from actors.source_location import own_line, written
from sim.core.simulation import Simulation
from sim.kernel.clock import VirtualLoop
from sim.kernel.task import VirtualTask
from sim.plugins.source_files import PRODUCT

PATIENCE_S = 10.0  # real time
LOOK_EVERY_S = 1.0
_ENGINE = str(PRODUCT / "sim" / "learning")
_OF_THE_LOOP = (VirtualTask.fire.__code__, VirtualLoop._run_events.__code__)
Frame = tuple[str, int, str]
"""A file, a line of it, and the function there."""


class Watchdog(threading.Thread):
    """Looks on from a thread of its own while a simulation runs in the one that enters this.

    It only talks: a run is the same with it and without.
    """

    def __init__(self, simulation: Simulation, say: Callable[[str], object]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._simulation, self._say = simulation, say
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._at: tuple[int, float] | None = None  # which task runs, if any, and at which virtual time
        self._since_s = 0.0
        self._is_told = False

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
                with suppress(OSError):  # nobody listens
                    self._say(line)

    def _look(self) -> str | None:
        """The line to say, if any. Keeps no reference to the run, so that nothing lives longer for it."""
        loop, now_s = self._simulation.loop, time.monotonic()
        task = asyncio.current_task(loop)
        at = None if not loop.is_running() else (id(task), loop.now_s)
        if at != self._at:
            self._at, self._since_s, self._is_told = at, now_s, False
        if at is None or self._is_told or now_s - self._since_s < PATIENCE_S:
            return None
        name = None if task is None else task.get_name().partition(":")[0]
        line = self._described(name, _frames(sys._current_frames().get(self._watched)))
        self._is_told = line is not None
        return line

    def _described(self, name: str | None, frames: list[Frame]) -> str | None:
        """None while the engine computes, which may take long, and where no method of an actor runs.

        name: of the actor whose task runs; None for none, as where the observer asks for weights().
        """
        if any(file.startswith(_ENGINE) for file, _, _ in frames):
            return None
        actors = {life.name: life.actor for life in self._simulation.lives if life.actor is not None}
        kinds = dict.fromkeys(type(actor) for each, actor in actors.items() if name in (None, each))
        for kind in kinds:
            line = own_line(kind, [frame[:2] for frame in frames])
            if line is not None:
                own = line.rpartition(":")[0]
                method = next(
                    name for file, at, name in frames if written(file, at).rpartition(":")[0] == own
                )
                return (
                    f"{name or 'a client'}: {method} has run for {PATIENCE_S:g} s without an await that lets "
                    f"time pass ({line}); a first Ctrl-C waits for its end, a second one does not"
                )
        return None


def _frames(frame: FrameType | None) -> list[Frame]:
    """The stack frames of a thread that runs a loop, from the task's or callback's first to the innermost."""
    found: list[Frame] = []
    while frame is not None and frame.f_code not in _OF_THE_LOOP:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]
