"""Signals that end a command, all answered alike: Ctrl-C (SIGINT), SIGTERM and SIGHUP.

Imported before anything else: nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sim.core.simulation import Simulation

Result = TypeVar("Result")

BEFORE_RESULTS = "interrupted before there were results"

_CLEAR_LINE = "\r\x1b[K\x1b[?25h"
_own_processes: set[int] = set()
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


def exit_at_once(number: int, said: str = "interrupted") -> None:
    """Answer a signal by ending the process: for when there is nothing to clean up.

    An exception would come out of whatever is being imported or run, which may swallow it.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or in the middle of a line
            stream.flush()
    with suppress(OSError):  # nobody listens
        # A bar of progress stands in the line, and hides the cursor.
        os.write(2, f"{_CLEAR_LINE if os.isatty(2) else ''}{said}\n".encode())
    os._exit(exit_code(number))


def own_process() -> None:
    """Have signals end this process at once, which is a command's and nobody else's."""
    _own_processes.add(os.getpid())
    answer(exit_at_once)


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
        _put_back(before)


def _put_back(before: Mapping[int, Any]) -> None:
    for number, old in before.items():
        signal.signal(number, old)


class Interrupts:
    """While this is entered, the first signal ends the simulation that is running, after the present instant.

    So the run can go on from there later, and what was measured is consistent and can still be written, which
    the first signal does not stop. A second one raises `Interrupted`, and so does the first before there is
    anything to keep. In a process of the command's own a second one ends the process while the simulation
    runs, as a method may swallow any exception; in others later ones are answered as before.
    """

    def __init__(self) -> None:
        self.on_abandoned: Callable[[], object] = lambda: None
        """Called before the process is ended, to remove what nobody will need."""
        self.number: int | None = None
        """The first signal."""
        self._at_once = True
        self._simulation: Simulation | None = None
        self._before: dict[int, Any] = {}

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Answer signals this way while this is entered."""
        self._before = answer(self._answer)
        try:
            yield
        finally:
            _put_back(self._before)

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
        loop = self._simulation.loop if self._simulation is not None else None
        if again:
            self._give_up(number)
        if again or self._at_once:
            raise Interrupted(number)
        if self._simulation is not None and self._simulation.loop.is_running():
            self._simulation.stop()
        elif loop is not None and loop.time() == 0.0:
            raise Interrupted(number)  # it has not begun

    def _give_up(self, number: int) -> None:
        """Keep nothing of the run, and have nothing of it go on."""
        _put_back(self._before)
        if self._simulation is None:
            return
        self._simulation.is_abandoned = True  # else the next client would spin where this one is ended
        if self._simulation.loop.is_running() and os.getpid() in _own_processes:
            self.on_abandoned()
            exit_at_once(number, BEFORE_RESULTS)
