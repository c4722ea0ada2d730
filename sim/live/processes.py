"""Starting the processes of a live run on this machine, and ending them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import IO

from sim.live import worker
from sim.run.process import safe_path, without_main_module

_LAST_BYTES = 4_000  # of what a process has printed
_FORKED = multiprocessing.get_context("forkserver")
"""Processes are forked from one that has imported all they need: who comes back is there at once."""


@dataclass
class Process:
    """A process that was started here, and the file of what it prints."""

    process: BaseProcess
    printed: IO[bytes]

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.exitcode

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        self.process.kill()
        self.process.join()

    @property
    def last_words(self) -> str:
        """The end of what it has printed."""
        length = self.printed.seek(0, 2)
        self.printed.seek(max(0, length - _LAST_BYTES))
        return self.printed.read().decode(errors="replace").strip()


def start(assignment: worker.ProcessOrder, listener: socket.socket | None = None) -> Process:
    """Start a process. listener: a socket that listens at its address already."""
    printed = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed in `end`
    _FORKED.set_forkserver_preload(["sim.live.preloaded"])
    process = _FORKED.Process(
        target=_work,
        args=(assignment, listener, printed.name),
        name=assignment.process,
    )
    with safe_path(), without_main_module():
        process.start()
    return Process(process, printed)


def _work(order: worker.ProcessOrder, listener: socket.socket | None, printed: str) -> None:
    file = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.close(file)
    worker.main(order, listener)


def end(processes: Iterable[Process], patience_s: float) -> None:
    """Leave no process behind: kill those that have not ended by themselves after so many seconds."""
    until_s = time.monotonic() + patience_s
    for each in processes:
        each.process.join(max(0.0, until_s - time.monotonic()))
        if each.code is None:
            each.kill()
        each.printed.close()
