"""One process of a live run, and the order with which it starts."""

from __future__ import annotations

import gc
import resource
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from actors.scan import Buffer
from actors.tcp.limits import Limits
from actors.tcp.outgoing import Address
from protocols.framework.client import client_class_for_mode
from sim.errors import UserError
from sim.learning.engine import Vector
from sim.learning.engine.autotune import usable_cores
from sim.live.codec import codec_for_actors
from sim.live.control import (
    Ended,
    Leave,
    LogRecords,
    Presence,
    PresenceRequest,
    ProcessReady,
    StartRun,
    Stop,
    TimeReply,
    TimeRequest,
    TransferCut,
    TransferStarted,
)
from sim.live.logs import FileLog, SentLog, Sink, end_process, log_path
from sim.live.loop import LiveLoop
from sim.live.placement import COORDINATOR, Placement
from sim.live.reporting import Reporter, call_repeatedly, save_state
from sim.live.simulation import LiveSimulation, live_classes
from sim.live.tokens import tls_settings
from sim.live.wire import FrameHeader, Wire, WireCallbacks
from sim.run.code_warnings import warnings_about_code
from sim.run.process import shared_cores
from sim.run.setup.builder import building_process
from sim.scenario.resolved import digest
from sim.scenario.scenario import Scenario, load_scenario

CONNECT_S = 120.0
"""Maximum time for which processes wait for each other at the start."""
INBOX_BYTES = 2**30
"""Maximum bytes of another process's messages before their arrival; more are dropped, and counted."""
LIMITS = Limits(retry_max_s=0.5)
"""Limits of connections, with short retries to find processes that start later."""
ALONE_S, ALONE_ELSEWHERE_S = 5.0, 120.0
"""Time without the coordinator after which a process ends: in a run on one machine, and on several."""
STOP_S = 60.0
"""Maximum time for which a process may send its records after the coordinator's `Stop`."""
_ALONE = "the coordinator has ended, or is not reachable"
_PINGS = 15
_TELL_EVERY_S = 1.0


@dataclass(frozen=True)
class ProcessOrder:
    """Instructions that a process receives at its start.

    began_s: start of the run, for a process that starts during it. digest: hash of the scenario. addresses:
    the addresses of all processes; empty for free ports of this machine. earlier: state of the process's
    clients from earlier processes, by name. lives: number of earlier processes with this name.
    tells_by_wire: True if the results folder is on another machine.
    """

    scenario: Path
    digest: str
    data_dir: Path | None
    code: bool
    placement: Placement
    secret: bytes
    addresses: Mapping[str, Address] = field(default_factory=dict)
    process: str = ""
    raw: bool = False
    certificates: Path | None = None
    began_s: float | None = None
    earlier: Mapping[str, Any] | None = None
    lives: int = 0
    may_be_killed: bool = False
    tells_by_wire: bool = False


class Clock:
    """Time of the run by the coordinator's clock, which is the same in all processes and on all machines."""

    def __init__(self) -> None:
        self.began_s = float("inf")
        """Start of the run, by the coordinator's clock."""
        self._ahead_s = 0.0  # the coordinator's clock minus this one
        self._shortest_s = float("inf")

    def now_s(self) -> float:
        """Return the coordinator's time."""
        return time.monotonic() + self._ahead_s

    def elapsed(self) -> float:
        """Return the seconds since the start of the run; negative before it."""
        return self.now_s() - self.began_s

    def answered(self, reply: TimeReply) -> None:
        """Adjust the clock by a reply; the fastest reply is the most accurate."""
        now_s = time.monotonic()
        took_s = now_s - reply.sent_s
        if 0 <= took_s < self._shortest_s:
            self._shortest_s = took_s
            ahead_s = reply.now_s - (reply.sent_s + now_s) / 2
            # On one machine all processes have the same clock, and the difference is only noise.
            self._ahead_s = ahead_s if abs(ahead_s) > took_s else 0.0


class _Worker(WireCallbacks):
    """A process of a live run; it passes calls from the wire's thread to the actors' loop."""

    def __init__(self, assignment: ProcessOrder, listener: socket.socket | None) -> None:
        self.assignment = assignment
        self.listener = listener
        self.clock = Clock()
        self.simulation: LiveSimulation | None = None
        self.begun, self.may_leave = threading.Event(), threading.Event()
        self.times = threading.Semaphore(0)
        self.alone: threading.Timer | None = None  # ends the process
        self.early: list[Any] = []  # calls before there is a simulation
        self.lock = threading.Lock()
        self.came_bytes: Counter[str] = Counter()  # bytes of each process's messages that were passed on
        self.overflows = 0  # messages that were dropped, as too many waited
        self.code_warnings: list[str] = []  # about the user's code, known at the end
        self.memory: list[tuple[float, int]] = []  # seconds, and bytes of this process
        self.is_alone = False  # the coordinator is permanently gone

    # --- in the wire's thread -------------------------------------------------------------------------------

    def message(self, process: str, stamp: FrameHeader, content: Buffer) -> None:
        taken_bytes = self.simulation.network.taken_bytes[process] if self.simulation is not None else 0
        if self.came_bytes[process] - taken_bytes + len(content) > INBOX_BYTES:
            self.overflows += 1
            return
        self.came_bytes[process] += len(content)
        self._in_loop(lambda simulation: simulation.network.received(process, stamp, content))

    def read(self, numbers: list[int]) -> None:
        self._in_loop(lambda simulation: simulation.network.read(numbers))

    def lost(self, number: int, dropped: bool, why: str) -> None:
        self._in_loop(lambda simulation: simulation.network.lost(number, dropped, why))

    def connected(self, process: str, up: bool) -> None:
        if process == COORDINATOR:
            self._found_coordinator(up)
        elif up:
            self._in_loop(partial(self._greet, process))
        else:
            self._in_loop(lambda simulation: simulation.network.gone(process))

    def _found_coordinator(self, up: bool) -> None:
        """End the process if the coordinator is gone and does not return within a time."""
        if self.alone is not None:
            self.alone.cancel()
            self.alone = None
        if not up and not self.may_leave.is_set():
            patience_s = ALONE_S if self.assignment.certificates is None else ALONE_ELSEWHERE_S
            self.alone = _timer(patience_s, self._end_alone)

    def _end_alone(self) -> None:
        """End the run, and write the records anyway, for a later `coterie resume`."""
        self.is_alone = True
        if self.simulation is None or self.assignment.tells_by_wire:
            end_process(_ALONE)
        self.may_leave.set()
        self.begun.set()
        _timer(STOP_S, partial(end_process, _ALONE))
        self._in_loop(_stop)

    def control(self, process: str, content: object) -> None:
        match content:
            case TimeReply() if process == COORDINATOR:
                self.clock.answered(content)
                self.times.release()
            case StartRun(at_s=at_s) if process == COORDINATOR:
                self.clock.began_s = at_s
                self.begun.set()
            case Leave() if process == COORDINATOR:
                self.may_leave.set()
            case Stop() if process == COORDINATOR:
                self._in_loop(_stop)
            case PresenceRequest():
                self._in_loop(partial(self._tell_presence, process))
            case Presence():
                self._in_loop(lambda simulation: simulation.network.noticed(process, content))
            case TransferStarted():
                self._in_loop(lambda simulation: simulation.network.transfer_started(process, content))
            case TransferCut():
                self._in_loop(lambda simulation: simulation.network.cancel_transfer(process, content))
            case _:
                raise ValueError(f"{process} must not send a {type(content).__name__}")

    def _in_loop(self, action: Any) -> None:
        with self.lock:
            if self.simulation is None:
                self.early.append(action)
            else:
                self.simulation.loop.inbox.put(partial(action, self.simulation))

    def _greet(self, process: str, simulation: LiveSimulation) -> None:
        """On a new connection, which may replace a lost one, exchange which actors are up."""
        self._tell_presence(process, simulation)
        self.wire.tell(process, PresenceRequest())

    def _tell_presence(self, process: str, simulation: LiveSimulation) -> None:
        if present := simulation.network.present():
            self.wire.tell(process, Presence(present, True))

    # --- in the main thread ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Take part in the run, from its start to its end."""
        own = self.assignment
        tls = None if own.certificates is None else tls_settings(own.certificates, own.process)
        self.wire = Wire(
            own.process, own.addresses, own.secret, self, tls=tls, listener=self.listener, limits=LIMITS
        )
        self.wire.connected([COORDINATOR], CONNECT_S)
        for _ in range(_PINGS):
            self.wire.tell(COORDINATOR, TimeRequest(time.monotonic()))
            self.times.acquire(timeout=1.0)
        if own.began_s is not None:
            self.clock.began_s = own.began_s
        scenario = load_scenario(own.scenario, code=own.code)
        classes = live_classes(self.clock.elapsed, raw=own.raw)
        with shared_cores(usable_cores()), building_process(scenario, own.data_dir, "cpu", classes) as run:
            simulation = run.simulation
            gc.enable()  # the times of collections have no effect in live runs
            assert isinstance(simulation, LiveSimulation)
            self._live(simulation, scenario)
        self.wire.close()

    def _live(self, simulation: LiveSimulation, scenario: Scenario) -> None:
        own, loop = self.assignment, simulation.loop
        names = own.placement.actors[own.process]
        simulation.rehearse(names)
        self._settle_in(simulation, scenario)
        if own.began_s is None:
            self.wire.connected([*own.placement.first, COORDINATOR], CONNECT_S)
            self.wire.tell(COORDINATOR, ProcessReady(digest(scenario)))
            self.begun.wait()
        else:
            loop.now_s = max(0.0, self.clock.elapsed())
            self.wire.tell(COORDINATOR, ProcessReady(digest(scenario)))
        simulation.keep_only(names, loop.now_s, ends_by_crash=own.may_be_killed)
        sink = self._sink()
        simulation.trace.tell = sink.write
        for client in simulation.clients:
            if (earlier := (own.earlier or {}).get(client.name)) is not None:
                client.compute.recall(earlier["work"])
                client.backup = None if earlier["model"] is None else _vector(simulation, earlier["model"])
        for name in names:
            simulation.supervisor.continue_lives(name, own.lives)
        simulation.observer.at_once = own.may_be_killed
        time.sleep(max(0.0, -self.clock.elapsed()))
        simulation.begin()
        tell = partial(self._tell, Reporter(simulation, names, sink), simulation)
        call_repeatedly(loop, _TELL_EVERY_S, tell)
        call_repeatedly(loop, (scenario.run.duration or 60.0) / 20, partial(self._look_at_memory, loop))
        loop.ends_by_clock = True
        with warnings_about_code(scenario) as self.code_warnings:
            simulation.advance()
        loop.ends_by_clock = False
        tell()  # before the measurement, as this process may be killed meanwhile
        simulation.observer.evaluate(at_end=True)
        simulation.observer.measure_kept()
        tell()
        self.wire.tell(COORDINATOR, Ended())
        self.may_leave.wait(timeout=CONNECT_S)

    def _sink(self) -> Sink:
        """Return the destination of this process's records."""
        own = self.assignment
        if own.tells_by_wire:
            return SentLog(lambda records: self.wire.tell(COORDINATOR, LogRecords(records)))
        return FileLog(log_path(own.scenario.parent, own.process, own.lives), end_process)

    def _settle_in(self, simulation: LiveSimulation, scenario: Scenario) -> None:
        """Connect the simulation to the wire, and pass on earlier calls."""
        own = self.assignment
        kinds: list[type] = [client_class_for_mode(scenario.protocol.method, simulation.settings)]
        kinds += [type(server.fresh()) for server in simulation.servers]
        codec = codec_for_actors(kinds, simulation.engine)
        simulation.network.join(self.wire, own.process, own.placement.process_by_actor, codec, own.lives)
        with self.lock:
            self.simulation = simulation
            for action in self.early:
                simulation.loop.inbox.put(partial(action, simulation))
            self.early.clear()

    def _look_at_memory(self, loop: LiveLoop) -> None:
        with suppress(OSError):  # without /proc
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.memory.append((loop.now_s, pages * resource.getpagesize()))

    def _tell(self, reporter: Reporter, simulation: LiveSimulation) -> None:
        """Write new records, and the state for a successor of this process."""
        own, loop, counts = self.assignment, simulation.loop, self.wire.frames.counts
        figures = {
            "refused": dict(simulation.network.refused),
            "frames": {"sent": counts.sent, "bytes": counts.bytes, "refused": counts.refused},
            "reasons": dict(counts.reasons),
            "cpu_s": time.process_time(),
            "overflows": self.overflows,
            "code_warnings": list(self.code_warnings),
        }
        lists: dict[str, Sequence[Any]] = {
            "late_jobs": loop.late_jobs_s,
            "job_lengths": loop.job_lengths_s,
            "late_messages": loop.late_messages_s,
            "stalls": loop.stalls,
            "blocked": loop.blocked,
            "memory": self.memory,
        }
        reporter.tell(figures, lists)
        if own.may_be_killed:  # at any time
            save_state(simulation, own.placement.actors[own.process], own.scenario.parent, own.process)

    wire: Wire


def _stop(simulation: LiveSimulation) -> None:
    """End the run early in this process."""
    simulation.loop.ends_by_clock = False
    simulation.loop.stop()


def _timer(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


def _vector(simulation: LiveSimulation, model: bytes) -> Vector:
    return simulation.engine.vector(torch.frombuffer(bytearray(model), dtype=torch.float32))


def main(assignment: ProcessOrder, listener: socket.socket | None) -> None:
    """Carry out an assignment. listener: a socket that listens at the address of this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator handles Ctrl-C, and ends all processes
    sys.setswitchinterval(0.0005)  # the wire's thread must not wait long for the actors'
    worker = _Worker(assignment, listener)
    try:
        worker.run()
        if worker.is_alone:
            raise TimeoutError(_ALONE)
    except (UserError, TimeoutError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
