"""What one process of a live run tells as it goes: all events at once, and all else now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgpack

from actors.status import ActorStatus
from sim.core.lives import ClientLife, Life
from sim.core.simulation import Simulation
from sim.live.logs import Sink, state_path
from sim.results.metrics import Metrics
from sim.results.trace import Entry, Trace


class ToldTrace(Trace):
    """A trace that keeps nothing: each entry goes to `tell` at once, as it is.

    So the sending of a message is told before the message leaves the process, and its delivery before anybody
    can answer it.
    """

    def __init__(self, *, keep_messages: bool = True) -> None:
        super().__init__(keep_messages=keep_messages)
        self.tell: Callable[..., None] = lambda *record: None

    def record(self, entry: Entry) -> None:
        self.tell("event", *entry)


class Teller:
    """Tells what a simulation has found since the last time: the effort does not grow with what was told.

    names: the clients and servers of this process. sink: where it goes.
    """

    def __init__(self, simulation: Simulation, names: Collection[str], sink: Sink) -> None:
        self._simulation = simulation
        self._names = names
        self._sink = sink
        self._final: dict[str, int] = {}  # of each list, how many rows were told for good
        self._latest: dict[str, Any] = {}  # what was told last and may change

    def tell(self, figures: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]) -> None:
        """Tell what is new. figures, lists: of the process; a list only grows."""
        simulation, metrics = self._simulation, self._simulation.observer.metrics
        self._grow("metrics", metrics.rows_from(self._final.get("metrics", 0)))
        self._tell_graph(metrics)
        failures = simulation.supervisor.failures[self._final.get("failures", 0) :]
        self._grow("failures", [asdict(failure) for failure in failures])
        self._grow("coalitions", metrics.coalition_rows()[self._final.get("coalitions", 0) :])
        for key, rows in lists.items():
            self._grow(key, list(rows[self._final.get(key, 0) :]))
        for life in simulation.lives:
            if life.name in self._names:
                self._tell_life(life)
        self._tell_if_new("facts", facts_of(simulation) | {"live": dict(figures)})
        self._sink.flush()

    def _grow(self, key: str, new: Sequence[Any]) -> None:
        """Tell rows that follow those that were told before."""
        if new:
            start = self._final.get(key, 0)
            self._sink.write("rows", key, start, new)
            self._final[key] = start + len(new)

    def _tell_graph(self, metrics: Metrics) -> None:
        start = self._final.get("graph", 0)
        rows, final = metrics.graph_rows_from(start)
        if self._latest.get("graph", []) != rows:
            self._sink.write("rows", "graph", start, rows)
        self._final["graph"], self._latest["graph"] = final, rows[final - start :]

    def _tell_life(self, life: Life[Any]) -> None:
        facts: dict[str, Any] = {"up": life.up, "waits": life.waits}
        if isinstance(life, ClientLife) and life.actor is not None:
            facts["iterations"] = life.iterations
        if (compute := life.compute) is not None:
            work = compute.recorded()
            facts["work"] = {key: value for key, value in work.items() if key != "taken"}
            facts["device"] = {"busy_s": compute.device.busy_s, "waiting_s": compute.device.waiting_s}
            self._tell_changed(f"taken {life.name}", work["taken"])
            self._tell_changed(f"intervals {life.name}", compute.device.intervals())
        self._tell_if_new("life", facts, life.name)

    def _tell_changed(self, key: str, rows: list[Any]) -> None:
        """Tell a list whose last row may have changed, from there on; or all of it, if it is another one."""
        before = self._latest.get(key, [])
        if rows != before:
            start = max(0, len(before) - 1)
            if rows[:start] != before[:start]:
                start = 0
            self._sink.write("rows", key, start, rows[start:])
            self._latest[key] = rows

    def _tell_if_new(self, kind: str, facts: Mapping[str, Any], *of: str) -> None:
        key = " ".join((kind, *of))
        if self._latest.get(key) != facts:
            self._sink.write(kind, *of, facts)
            self._latest[key] = facts


def facts_of(simulation: Simulation) -> dict[str, Any]:
    """All that a summary needs of a process, beside its events, its lists, and its actors' lives."""
    observer, engine = simulation.observer, simulation.engine
    first = observer.divergence.first
    return {
        "now_s": simulation.loop.time(),
        "overflows": sum(ActorStatus(actor).overflows for actor in simulation.supervisor.running.values()),
        "diverged": None if first is None else asdict(first),
        "diverging": list(observer.divergence.present),
        "models": list(observer.models),
        "models_changed": observer.models_changed,
        "engine": asdict(engine.statistics),
    }


def save_state(simulation: Simulation, names: Collection[str], folder: Path, process: str) -> None:
    """Write what the next life of this process goes on from: of each client its work and its model."""
    state = {}
    for client in simulation.clients:
        if client.name in names:
            is_there = client.up and client.actor is not None
            model = client.params.numpy().tobytes() if is_there else None
            state[client.name] = {"work": client.compute.recorded(), "model": model}
    path = state_path(folder, process)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(msgpack.packb(state))
    new.replace(path)


def read_state(folder: Path, process: str) -> dict[str, Any]:
    """What `save_state` wrote last; nothing if the process was killed before."""
    path = state_path(folder, process)
    return dict(msgpack.unpackb(path.read_bytes())) if os.path.isfile(path) else {}


def again_and_again(loop: Any, every_s: float, action: Callable[[], object]) -> None:
    """Do something now, when all else of this moment is done, and after every so many seconds.

    An action that takes long is done more rarely, so that it takes a twentieth of the time at most.
    """

    def act() -> None:
        began_s = time.perf_counter()
        action()
        took_s = time.perf_counter() - began_s
        loop.call_at_observer(loop.now_s + max(every_s, 20 * took_s), act)

    loop.call_at_observer(loop.now_s, act)
