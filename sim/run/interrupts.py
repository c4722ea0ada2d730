"""Signals that end a command, all answered alike: Ctrl-C (SIGINT), SIGTERM and SIGHUP.

Imported before anything else: nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sim.run.live.simulation import Simulation

Result = TypeVar("Result")

_NUMBERS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """A signal has ended what was going on; `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(number: int) -> int:
    """The exit code of a command that a signal has ended, as shells have it."""
    return 128 + number


def raise_interrupted(number: int) -> None:
    """Answer a signal by an exception, so that what is half done can be cleaned up."""
    raise Interrupted(number)


def exit_at_once(number: int) -> None:
    """Answer a signal by ending the process: for when there is nothing to clean up.

    An exception would come out of whatever module is being imported, which may swallow it.
    """
    os.write(2, b"interrupted\n")
    os._exit(exit_code(number))


def answer(handler: Callable[[int], None]) -> dict[int, Any]:
    """Have `handler(number)` called from now on; returns what was there before, by number.

    Signals that are ignored (by nohup, say) still are. Only the main thread may do this; elsewhere nothing
    changes.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    before = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}

    def called(number: int, frame: object) -> None:
        _let_go_of_a_closed_terminal()
        handler(number)

    for number in before:
        signal.signal(number, called)
    return before


def _let_go_of_a_closed_terminal() -> None:
    """Have what is still to be said go nowhere, instead of failing, where the terminal has been closed."""
    for stream in (1, 2):
        try:
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)
        except OSError:
            continue  # it is closed altogether


@contextmanager
def answering(handler: Callable[[int], None]) -> Iterator[None]:
    """Have `handler(number)` called while this is entered."""
    before = answer(handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Interrupts:
    """While this is entered, the first signal ends the simulation that is running, after the present instant.

    So the run can go on from there later, and what was measured is consistent and can still be written, which
    the first signal does not stop. A second one raises `Interrupted`, and so does the first before there is
    anything to keep.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """The first signal."""
        self._at_once = True
        self._simulation: Simulation | None = None

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Answer signals this way while this is entered."""
        with answering(self._answer):
            yield

    def run(self, simulation: Simulation) -> None:
        """Run to the end, or to the first signal."""
        self._simulation = simulation
        self._at_once = False
        simulation.run()

    def attempt(self, function: Callable[[Simulation], Result], simulation: Simulation) -> Result | None:
        """Call a function that changes nothing: the first signal breaks it off at once, for None."""
        self._at_once = True
        try:
            return function(simulation)
        except Interrupted:
            return None
        finally:
            self._at_once = False

    def _answer(self, number: int) -> None:
        again = self.number is not None
        self.number = self.number or number
        if again and self._simulation is not None:
            self._simulation.is_abandoned = True  # else the next client would spin where this one is ended
        if again or self._at_once:
            raise Interrupted(number)
        loop = self._simulation.loop if self._simulation is not None else None
        if loop is not None and loop.is_running():
            loop.pause()
        elif loop is not None and loop.time() == 0.0:
            raise Interrupted(number)  # it has not begun
