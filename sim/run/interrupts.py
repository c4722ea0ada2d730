"""Handling of signals that end a command: Ctrl-C (SIGINT), SIGTERM and SIGHUP, all in the same way.

This module is imported first, and imports only the standard library.
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
    """A signal, `number`, has interrupted the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(number: int) -> int:
    """Return the exit code of a command that a signal has ended, as in shells."""
    return 128 + number


def raise_interrupted(number: int) -> None:
    """Handle a signal by an exception, so that unfinished work can be cleaned up."""
    raise Interrupted(number)


def exit_at_once(number: int, message: str = "interrupted") -> None:
    """Handle a signal by ending the process, if there is nothing to clean up.

    It raises no exception, because the interrupted code, such as an import, could swallow it.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or in the middle of a line
            stream.flush()
    with suppress(OSError):  # the stream is closed
        # Clear the progress bar, and show the cursor again.
        os.write(2, f"{_CLEAR_LINE if os.isatty(2) else ''}{message}\n".encode())
    os._exit(exit_code(number))


def end_process_on_signal() -> None:
    """Let signals end this process immediately; only for the process of a command."""
    _own_processes.add(os.getpid())
    install_signal_handler(exit_at_once)


def install_signal_handler(handler: Callable[[int], None]) -> dict[int, Any]:
    """Install `handler(number)` for the signals. Returns the earlier handlers, by number.

    Ignored signals (for instance with nohup) stay ignored. Has no effect outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    before = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}

    def called(number: int, frame: object) -> None:
        _detach_closed_terminal()
        handler(number)

    for number in before:
        signal.signal(number, called)
    return before


def _detach_closed_terminal() -> None:
    """Discard further output if the terminal has been closed, so that writing does not fail."""
    for stream in (1, 2):
        try:
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)
        except OSError:
            continue  # the stream is closed


@contextmanager
def signals_handled_by(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler(number)` for signals inside the context."""
    before = install_signal_handler(handler)
    try:
        yield
    finally:
        _restore(before)


def _restore(before: Mapping[int, Any]) -> None:
    for number, old in before.items():
        signal.signal(number, old)


class Interrupts:
    """Signal handling of a run: the first signal ends the simulation after the current virtual time.

    The run can be resumed from there, its metrics are consistent, and its results are still written. A second
    signal abandons the run: it restores the earlier signal handlers, and raises `Interrupted`. During the
    simulation in the process of a command, it ends the process instead, as a method may swallow any
    exception. If there are no results yet, the first signal also raises `Interrupted`.
    """

    def __init__(self) -> None:
        self.on_abandoned: Callable[[], object] = lambda: None
        """Callback before the process ends, to remove unfinished files."""
        self.number: int | None = None
        """Number of the first signal."""
        self._at_once = True
        self._simulation: Simulation | None = None
        self._before: dict[int, Any] = {}

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Handle signals as the class describes, until the context ends."""
        self._before = install_signal_handler(self._answer)
        try:
            yield
        finally:
            _restore(self._before)

    def run(self, simulation: Simulation) -> None:
        """Run to the end, or to the first signal."""
        self._simulation = simulation
        self._at_once = False
        simulation.run()

    def attempt(self, function: Callable[[Simulation], Result], simulation: Simulation) -> Result | None:
        """Call a function that has no side effects; stop it, and return None, at the first signal."""
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
            raise Interrupted(number)  # it has not started

    def _give_up(self, number: int) -> None:
        """Abandon the run, and discard its results."""
        _restore(self._before)
        if self._simulation is None:
            return
        self._simulation.is_abandoned = True  # otherwise the next client would spin when this one is ended
        if self._simulation.loop.is_running() and os.getpid() in _own_processes:
            self.on_abandoned()
            exit_at_once(number, BEFORE_RESULTS)
