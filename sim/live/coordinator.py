"""Starts the processes of a live run, ends those whose clients crash, and puts the results together."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from actors.scan import Buffer
from actors.tcp.outgoing import Address
from sim.errors import UserError
from sim.live.control import AskTime, Begin, Ended, HowFar, Leave, Ready, TellTime
from sim.live.parts import Part
from sim.live.plan import COORDINATOR, Plan
from sim.live.wire import Events, Stamp, Wire
from sim.live.worker import CONNECT_S, Assignment
from sim.run.process import safe_path

_HEAD_START_S = 0.3  # from when all are ready to the beginning
_BOOT_S = 12.0  # how long before it is needed a process that comes back is started
_END_S = 120.0  # how long a process may take to measure
_STDERR_BYTES = 4_000


class ProcessFailed(RuntimeError):
    """A process of a live run has ended by an error."""


@dataclass
class _Process:
    """A process as the coordinator sees it. part: the latest that it has told. lives: how many it had."""

    name: str
    popen: subprocess.Popen[bytes] | None = None
    errors: BinaryIO | None = None
    is_ready: bool = False
    time_s: float = 0.0
    part: Part | None = None
    has_ended: bool = False
    lives: int = 0
    killed: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a live run has found. crashes: when (seconds) the coordinator ended whom."""

    parts: Sequence[Part]
    crashes: Sequence[tuple[float, str]]
    lost: Sequence[str] = field(default=())
    """Processes that ended unasked, with the last that they said."""


class Coordinator(Events):
    """One live run on this machine. assignment: what all processes are told, but for their names.

    duration_s: of the run. on_progress: told how far the slowest process is, in seconds of the run.
    """

    def __init__(
        self,
        plan: Plan,
        assignment: Mapping[str, Any],
        duration_s: float,
        on_progress: Callable[[float], object] = lambda time_s: None,
    ) -> None:
        self._plan = plan
        self._duration_s = duration_s
        self._on_progress = on_progress
        self._assignment = dict(assignment)
        self._processes = {name: _Process(name) for name in plan.actors}
        self._inbox: SimpleQueue[tuple[str, object]] = SimpleQueue()
        self._began_s: float | None = None
        self._former: list[Part] = []
        self._crashes: list[tuple[float, str]] = []
        self._lost: list[str] = []
        self._secret = secrets.token_bytes(32)
        self._listeners: dict[str, socket.socket] = {}
        self._wire: Wire | None = None
        self.on_ready: Callable[[], object] = lambda: None
        """Called when all processes are ready, before the run begins."""

    # --- in the wire's thread -------------------------------------------------------------------------------

    def control(self, process: str, content: object) -> None:
        if isinstance(content, AskTime) and self._wire is not None:
            self._wire.tell(process, TellTime(content.sent_s, time.monotonic()))
        else:
            self._inbox.put((process, content))

    def message(self, process: str, stamp: Stamp, content: Buffer) -> None:
        raise ValueError("the coordinator has no actors")

    # --- in the main thread ---------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run from the start of all processes to the end of the last. ProcessFailed, KeyboardInterrupt."""
        with ExitStack() as stack:
            for name in (COORDINATOR, *self._processes):
                listener = stack.enter_context(socket.socket())
                listener.bind(("127.0.0.1", 0))
                listener.listen(128)
                self._listeners[name] = listener
            addresses = {name: Address(*each.getsockname()) for name, each in self._listeners.items()}
            self._assignment["addresses"] = {
                name: (where.host, where.port) for name, where in addresses.items()
            }
            own = self._listeners[COORDINATOR].dup()
            self._wire = Wire(COORDINATOR, addresses, self._secret, self, listener=own)
            try:
                stack.callback(self._end_all)
                self._begin()
                self._follow()
            finally:
                self._wire.close()
        parts = [*self._former, *[each.part for each in self._processes.values() if each.part is not None]]
        return Outcome(parts, self._crashes, self._lost)

    def _begin(self) -> None:
        first = self._first_processes()
        for name in first:
            self._start(name)
        until_s = time.monotonic() + CONNECT_S
        while not all(self._processes[name].is_ready for name in first):
            self._look(0.2)
            if time.monotonic() > until_s:
                late = [name for name in first if not self._processes[name].is_ready]
                raise ProcessFailed(f"{', '.join(late)} did not begin within {CONNECT_S:g} s")
        self.on_ready()
        self._began_s = time.monotonic() + _HEAD_START_S
        assert self._wire is not None
        self._wire.tell_all(Begin(self._began_s, tuple(first)))

    def _first_processes(self) -> list[str]:
        return list(self._processes)

    def _start(self, name: str) -> None:
        process = self._processes[name]
        listener = self._listeners[name]
        kills = {who for _, who in self._plan.kills}
        earlier = {} if process.part is None else _work_of(process.part)
        assignment = Assignment(
            process=name,
            actors=dict(self._plan.actors),
            secret=self._secret.hex(),
            listener=listener.fileno(),
            began_s=self._began_s,
            lives=process.lives,
            earlier=earlier,
            may_be_killed=name in kills,
            **self._assignment,
        )
        process.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_end_all`
        with safe_path():
            process.popen = subprocess.Popen(
                [sys.executable, "-m", "sim.live.worker"],
                stdin=subprocess.PIPE,
                stdout=process.errors,
                stderr=process.errors,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        process.lives += 1
        process.is_ready = process.has_ended = process.killed = False
        assert process.popen.stdin is not None
        process.popen.stdin.write(assignment.to_json().encode() + b"\n")
        process.popen.stdin.close()

    def _follow(self) -> None:
        """End and start processes when it is time, until all have told what they found."""
        assert self._began_s is not None
        due = [(at_s, self._kill, name) for at_s, name in self._plan.kills]
        due += [(at_s - _BOOT_S, self._bring_back, name) for at_s, name in self._plan.returns]
        due.sort(key=lambda each: each[0])
        while not all(each.has_ended for each in self._processes.values() if not each.killed):
            elapsed_s = time.monotonic() - self._began_s
            while due and due[0][0] <= elapsed_s:
                _, action, name = due.pop(0)
                action(name)
            if elapsed_s > self._duration_s + _END_S:
                late = [name for name, each in self._processes.items() if not (each.has_ended or each.killed)]
                raise ProcessFailed(f"{', '.join(late)} did not end within {_END_S:g} s of the run's end")
            self._look(min(0.2, max(0.0, due[0][0] - elapsed_s)) if due else 0.2)
            self._on_progress(min(self._duration_s, max(0.0, elapsed_s)))

    def _kill(self, name: str) -> None:
        """A crash is the end of a process: nothing that it still had to do is done."""
        process = self._processes[name]
        if process.popen is None or process.killed:
            return
        assert self._began_s is not None
        process.popen.kill()
        process.popen.wait()
        process.killed = True
        now_s = time.monotonic() - self._began_s
        self._look(0.0)
        self._crashes += [(now_s, actor) for actor in self._plan.actors[name]]

    def _bring_back(self, name: str) -> None:
        process = self._processes[name]
        if not process.killed:
            return
        if process.part is not None:
            self._former.append(process.part)
        self._start(name)
        process.part = None

    def _look(self, seconds: float) -> None:
        """Take in what has been told, for so long at most; notice who has ended unasked."""
        try:
            while True:
                self._told(*self._inbox.get(timeout=seconds))
                seconds = 0.0
        except Empty:
            pass
        for process in self._processes.values():
            popen = process.popen
            if popen is None or process.killed or process.has_ended or popen.poll() is None:
                continue
            said = _last_words(process)
            if self._began_s is None or popen.returncode == 2:
                raise (UserError if popen.returncode == 2 else ProcessFailed)(said or f"{process.name} ended")
            process.killed = True
            self._lost.append(f"{process.name} ended with code {popen.returncode}: {said}")
            now_s = time.monotonic() - self._began_s
            self._crashes += [(now_s, actor) for actor in self._plan.actors[process.name]]

    def _told(self, name: str, content: object) -> None:
        process = self._processes.get(name)
        if process is None:
            return
        match content:
            case Ready():
                process.is_ready = True
            case HowFar(time_s=time_s):
                process.time_s = time_s
            case Ended():
                process.part = Part.of(name, content)
                if content.is_last:
                    process.has_ended = True
                    assert self._wire is not None
                    self._wire.tell(name, Leave())

    def _end_all(self) -> None:
        """Leave no process behind."""
        running = [each.popen for each in self._processes.values() if each.popen is not None]
        until_s = time.monotonic() + 5.0
        for popen in running:
            try:
                popen.wait(timeout=max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()
        for each in self._processes.values():
            if each.errors is not None:
                each.errors.close()


def _work_of(part: Part) -> dict[str, Any]:
    return {facts["name"]: facts["work"] for facts in part.facts["lives"] if "work" in facts}


def _last_words(process: _Process) -> str:
    """The end of what a process has printed."""
    assert process.errors is not None
    size = process.errors.seek(0, 2)
    process.errors.seek(max(0, size - _STDERR_BYTES))
    return process.errors.read().decode(errors="replace").strip()
