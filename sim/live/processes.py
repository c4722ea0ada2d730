"""Starting the processes of a live run on this machine, and ending them."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import BinaryIO

from sim.live.worker import ProcessOrder
from sim.run.process import safe_path

_LAST_BYTES = 4_000  # of what a process has printed


@dataclass
class Process:
    """A process that was started here, and the file of what it prints."""

    popen: subprocess.Popen[bytes]
    printed: BinaryIO

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.popen.poll()

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        self.popen.kill()
        self.popen.wait()

    @property
    def last_words(self) -> str:
        """The end of what it has printed."""
        length = self.printed.seek(0, 2)
        self.printed.seek(max(0, length - _LAST_BYTES))
        return self.printed.read().decode(errors="replace").strip()


def start(assignment: ProcessOrder, listener: socket.socket | None = None) -> Process:
    """Start a process. listener: a socket that listens at its address already."""
    printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
    files = [] if listener is None else [listener.fileno()]
    with safe_path():
        popen = subprocess.Popen(
            [sys.executable, "-m", "sim.live.worker"],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            pass_fds=files,
        )
    assert popen.stdin is not None
    given = replace(assignment, listener=files[0] if files else None)
    popen.stdin.write(given.to_json().encode() + b"\n")
    popen.stdin.close()
    return Process(popen, printed)


def end(processes: Iterable[Process], patience_s: float) -> None:
    """Leave no process behind: kill those that have not ended by themselves after so many seconds."""
    until_s = time.monotonic() + patience_s
    for process in processes:
        try:
            process.popen.wait(timeout=max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
        process.printed.close()
