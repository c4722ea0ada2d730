"""Start and end of the processes of a live run on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import IO

from sim.live import worker
from sim.run.process import without_current_folder, without_main_module

_LAST_BYTES = 4_000  # of a process's output
_FORKED = multiprocessing.get_context("forkserver")
"""Context that forks processes from one with all imports, so that they start quickly."""


@dataclass
class Process:
    """A local process, and the file of its output.

    descriptor: shows whether the process runs, even if the fork server, which knows its exit code, was
    killed; None on systems without process descriptors.
    """

    process: BaseProcess
    printed: IO[bytes]
    descriptor: int | None

    @property
    def code(self) -> int | None:
        """Exit code of the process; None while it runs."""
        code = self.process.exitcode
        return code if code is None or self._has_ended(0.0) else None

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        if self.descriptor is None:
            self.process.kill()
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        self.join(None)

    def join(self, seconds: float | None) -> None:
        """Wait for the end of the process, with a timeout."""
        if self._has_ended(seconds):
            self.process.join(seconds if self.descriptor is None else None)

    def close(self) -> None:
        self.printed.close()
        if self.descriptor is not None:
            os.close(self.descriptor)

    def _has_ended(self, seconds: float | None) -> bool:
        """Return True if the process ends within a timeout, or if that is unknown."""
        return self.descriptor is None or bool(wait([self.descriptor], seconds))

    @property
    def last_words(self) -> str:
        """Last part of the process's output."""
        length = self.printed.seek(0, 2)
        self.printed.seek(max(0, length - _LAST_BYTES))
        return self.printed.read().decode(errors="replace").strip()


def start(assignment: worker.ProcessOrder, listener: socket.socket | None = None) -> Process:
    """Start a process. listener: a socket that already listens at its address."""
    printed = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed in `end`
    _FORKED.set_forkserver_preload(["sim.live.preloaded"])
    process = _FORKED.Process(
        target=_process_main,
        args=(assignment, listener, printed.name),
        name=assignment.process,
    )
    with without_current_folder(), without_main_module():
        process.start()
    return Process(process, printed, _descriptor_of(process))


def _descriptor_of(process: BaseProcess) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    assert process.pid is not None
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # it has already ended, or the system is old
        return None


def _process_main(order: worker.ProcessOrder, listener: socket.socket | None, printed: str) -> None:
    file = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.close(file)
    worker.main(order, listener)


def end(processes: Iterable[Process], patience_s: float) -> None:
    """Wait for processes to end, and kill those that still run after `patience_s` seconds."""
    until_s = time.monotonic() + patience_s
    for each in processes:
        each.join(max(0.0, until_s - time.monotonic()))
        if each.code is None:
            each.kill()
        each.close()
