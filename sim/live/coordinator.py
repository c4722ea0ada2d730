"""Coordinator of a live run: starts processes, kills processes of crashing clients, and collects records."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

from actors.scan import Buffer
from actors.tcp.outgoing import Address
from sim.errors import UserError
from sim.live.control import Ended, Leave, LogRecords, ProcessReady, StartRun, Stop, TimeReply, TimeRequest
from sim.live.logs import FileLog, log_path
from sim.live.placement import COORDINATOR
from sim.live.processes import Process, end, start
from sim.live.reporting import read_state
from sim.live.tokens import tls_settings
from sim.live.wire import FrameHeader, Wire, WireCallbacks
from sim.live.worker import CONNECT_S, LIMITS, STOP_S, ProcessOrder

_HEAD_START_S = 0.3  # from the readiness of all processes to the start of the run
_BOOT_S = 12.0  # lead time for starting a process that joins later
_END_S = 120.0  # maximum time for measurements after the end
_LOOK_S = 0.2


class ProcessFailed(RuntimeError):
    """Failure of a process of a live run: an error, or a timeout."""


@dataclass
class _ProcessState:
    """State of a named process. process: None on another machine; the coordinator then writes its `log`.

    lives: the number of processes that had this name so far. gone: killed, or exited.
    """

    process: Process | None = None
    log: FileLog | None = None
    is_ready: bool = False
    has_ended: bool = False
    lives: int = 0
    gone: bool = True


class LiveRun(WireCallbacks):
    """One live run. assignment: the `ProcessOrder` of all processes, without fields that differ.

    here: the processes to start on this machine. on_ready: callback when all are connected, before the start
    of the run. on_progress: callback with the elapsed seconds of the run. signal: the signal that ended the
    run early, if any.
    """

    signal: int | None = None

    def __init__(
        self,
        assignment: ProcessOrder,
        duration_s: float,
        *,
        here: Sequence[str] | None = None,
        on_ready: Callable[[], object] = lambda: None,
        on_progress: Callable[[float], object] = lambda time_s: None,
    ) -> None:
        self._plan = assignment.placement
        self._duration_s = duration_s
        self._assignment = assignment
        self._here = list(self._plan.actors if here is None else here)
        self._on_ready, self._on_progress = on_ready, on_progress
        self._seats = {name: _ProcessState() for name in self._plan.actors}
        self._inbox: SimpleQueue[tuple[str, object]] = SimpleQueue()
        self._began_s: float | None = None
        self._folder = assignment.scenario.parent
        self._log: FileLog | None = None
        self._listeners: dict[str, socket.socket] = {}
        self._wire: Wire | None = None

    # --- in the wire's thread -------------------------------------------------------------------------------

    def control(self, process: str, content: object) -> None:
        if isinstance(content, TimeRequest) and self._wire is not None:
            self._wire.tell(process, TimeReply(content.sent_s, time.monotonic()))
        else:
            self._inbox.put((process, content))

    def message(self, process: str, stamp: FrameHeader, content: Buffer) -> None:
        raise ValueError("the coordinator has no actors")

    # --- in the main thread ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Run from the start of all processes to the end of the last one; their logs hold the results.

        Raises ProcessFailed, UserError and KeyboardInterrupt before the start of the run. Later, the first
        KeyboardInterrupt ends the run early and sets `signal`, and a second one is raised.
        """
        with ExitStack() as stack:
            if not self._assignment.addresses:
                self._listen(stack)
            order, own = self._assignment, self._listeners.get(COORDINATOR)
            tls = None if order.certificates is None else tls_settings(order.certificates, COORDINATOR)
            where = order.addresses[COORDINATOR]
            try:
                self._wire = Wire(
                    COORDINATOR, order.addresses, order.secret, self, tls=tls, listener=own, limits=LIMITS
                )
            except OSError as error:
                problem = f"cannot listen at this address: {error.strerror}"
                raise UserError(f"{where.host}:{where.port}: {problem}") from error
            stack.callback(self._wire.close)
            patience_s = 0.0
            try:
                self._begin()
                patience_s = 5.0 if self._follow_to_end() else 0.0
            finally:
                end([each.process for each in self._seats.values() if each.process is not None], patience_s)
                for log in [self._log, *[each.log for each in self._seats.values()]]:
                    if log is not None:
                        log.close()

    def _listen(self, stack: ExitStack) -> None:
        """Reserve free ports of this machine for all processes."""
        for name in (COORDINATOR, *self._seats):
            listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            self._listeners[name] = stack.enter_context(listener)
        addresses = {name: Address(*each.getsockname()) for name, each in self._listeners.items()}
        self._assignment = replace(self._assignment, addresses=addresses)

    def _begin(self) -> None:
        first = self._plan.first
        for name in first:
            self._start(name)
        until_s = time.monotonic() + CONNECT_S
        while late := [name for name in first if not self._seats[name].is_ready]:
            self._look(_LOOK_S)
            if time.monotonic() > until_s:
                problem = f"{', '.join(late)} did not start within {CONNECT_S:g} s"
                if self._assignment.certificates is not None:
                    problem += "; start all machines with the same certificates, hosts and scenario"
                raise ProcessFailed(problem)
        self._log = FileLog(log_path(self._folder, COORDINATOR), self._fail)
        processes = {name: list(actors) for name, actors in self._plan.actors.items()}
        self._log.write("run", {"processes": processes, "raw": self._assignment.raw})
        self._on_ready()
        self._began_s = time.monotonic() + _HEAD_START_S
        assert self._wire is not None
        self._wire.tell_all(StartRun(self._began_s))

    def _start(self, name: str) -> None:
        seat = self._seats[name]
        if not seat.gone:
            return
        seat.is_ready = seat.has_ended = seat.gone = False
        if name not in self._here:
            seat.log = FileLog(log_path(self._folder, name), self._fail)
            return
        if seat.process is not None:
            seat.process.close()
        assignment = replace(
            self._assignment,
            process=name,
            began_s=self._began_s,
            lives=seat.lives,
            earlier=read_state(self._folder, name),
            may_be_killed=name in {who for _, who in self._plan.kills},
        )
        seat.process = start(assignment, self._listeners.get(name))
        seat.lives += 1

    def _follow_to_end(self) -> bool:
        """Call `_follow`, and keep all records after an error. Returns True if all ended normally."""
        try:
            try:
                self._follow()
            except KeyboardInterrupt as interrupt:
                self.signal = getattr(interrupt, "number", signal.SIGINT)
                self._stop()
        except (ProcessFailed, UserError) as error:
            self._note("lost", str(error))
            return False
        return True

    def _stop(self) -> None:
        """Order all processes to end the run and send their records."""
        self._note("interrupted")
        assert self._wire is not None
        self._wire.tell_all(Stop())
        until_s = time.monotonic() + STOP_S
        while self._left() and time.monotonic() < until_s:
            self._look(_LOOK_S)

    def _note(self, *record: Any) -> None:
        assert self._log is not None
        self._log.write(*record)

    def _fail(self, problem: str) -> None:
        raise ProcessFailed(problem)

    def _left(self) -> list[str]:
        """Return the processes that have not sent all records."""
        return [name for name, seat in self._seats.items() if not (seat.gone or seat.has_ended)]

    def _follow(self) -> None:
        """Kill and start processes at their times, until all have sent their records."""
        due = self._due()
        while left := self._left():
            elapsed_s = self._elapsed_s()
            while due and due[0][0] <= elapsed_s:
                _, action, name = due.pop(0)
                action(name)
            if elapsed_s > self._duration_s + _END_S:
                raise ProcessFailed(f"{', '.join(left)} did not end within {_END_S:g} s of the run's end")
            self._look(min(_LOOK_S, max(0.0, due[0][0] - self._elapsed_s())) if due else _LOOK_S)
            self._on_progress(min(self._duration_s, max(0.0, elapsed_s)))

    def _due(self) -> list[tuple[float, Callable[[str], None], str]]:
        """Return the times of kills and starts. A process that rejoins is started early, after its crash."""
        due: list[tuple[float, Callable[[str], None], str]] = []
        for at_s, name in self._plan.kills:
            due.append((at_s, self._kill, name))
        for at_s, name in self._plan.returns:
            crash_s = max(
                [kill_s for kill_s, who in self._plan.kills if who == name and kill_s < at_s], default=0.0
            )
            due.append((max(crash_s, at_s - _BOOT_S), self._start, name))
        for name, at_s in self._plan.starts.items():
            due.append((max(0.0, at_s - _BOOT_S), self._start, name))
        return sorted(due, key=lambda each: each[0])

    def _elapsed_s(self) -> float:
        assert self._began_s is not None
        return time.monotonic() - self._began_s

    def _kill(self, name: str) -> None:
        """Kill a process to crash its clients: its pending work is lost."""
        seat = self._seats[name]
        if seat.process is not None and not seat.gone:
            seat.process.kill()
            self._note_end(name)

    def _note_end(self, name: str) -> None:
        self._seats[name].gone = True
        for actor in self._plan.actors[name]:
            self._note("crash", self._elapsed_s(), actor)

    def _look(self, seconds: float) -> None:
        """Handle one incoming message, with a timeout, and record processes that have exited unexpectedly."""
        with suppress(Empty):
            self._told(*self._inbox.get(timeout=seconds))
        for name, seat in self._seats.items():
            if seat.process is None or seat.gone or seat.has_ended or (code := seat.process.code) is None:
                continue
            output = seat.process.last_words
            if code == 2 and self._began_s is None:
                raise UserError(output)
            if self._began_s is None:
                raise ProcessFailed(f"{name} ended before the start of the run: {output}")
            self._note("lost", f"{name} ended with code {code}: {output}")
            self._note_end(name)

    def _told(self, name: str, content: object) -> None:
        seat = self._seats.get(name)
        if seat is None or seat.gone:
            return
        match content:
            case ProcessReady(scenario=digest):
                if digest != self._assignment.digest:
                    raise UserError(f"{name} has a different scenario or version of coterie")
                seat.is_ready = True
            case LogRecords(records=records) if seat.log is not None:
                seat.log.append(records)
            case Ended():
                seat.has_ended = True
                assert self._wire is not None
                self._wire.tell(name, Leave())


def run_processes_for_coordinator(assignment: ProcessOrder, here: Sequence[str]) -> None:
    """Run the processes of one machine for a coordinator on another machine. Raises ProcessFailed."""
    order = replace(assignment, tells_by_wire=True)
    processes = {name: start(replace(order, process=name)) for name in here}
    try:
        running = True
        while running:
            time.sleep(_LOOK_S)
            running = any(each.code is None for each in processes.values())
            if failed := [name for name, each in processes.items() if each.code]:
                raise ProcessFailed(f"{failed[0]} ended: {processes[failed[0]].last_words}")
    finally:
        end(processes.values(), 0.0)
