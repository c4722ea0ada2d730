"""Records of one process of a live run: events immediately, and other data periodically."""

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


class StreamedTrace(Trace):
    """Trace that passes each entry to `tell` immediately, and stores no entries.

    The sending of a message is therefore recorded before the message leaves the process, and its delivery
    before any reply.
    """

    def __init__(self, *, keep_messages: bool = True) -> None:
        super().__init__(keep_messages=keep_messages)
        self.tell: Callable[..., None] = lambda *record: None

    def record(self, entry: Entry) -> None:
        self.tell("event", *entry)


class Reporter:
    """Writer of a simulation's data. Each call writes the data since the previous call.

    The cost of a call does not grow with earlier data.

    names: the clients and servers of this process. sink: the destination.
    """

    def __init__(self, simulation: Simulation, names: Collection[str], sink: Sink) -> None:
        self._simulation = simulation
        self._names = names
        self._sink = sink
        self._final: dict[str, int] = {}  # number of final rows, by list
        self._latest: dict[str, Any] = {}  # last written data that may change

    def tell(self, figures: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]) -> None:
        """Write new data. figures: values of the process, by name. lists: lists that only grow, by name."""
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
        self._tell_if_new("facts", process_facts(simulation) | {"live": dict(figures)})
        self._sink.flush()

    def _grow(self, key: str, new: Sequence[Any]) -> None:
        """Write rows that follow those written before."""
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
        """Write a list from its last written row, which may have changed, or else the whole list."""
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


def process_facts(simulation: Simulation) -> dict[str, Any]:
    """Return the facts about a process for the summary. Events, lists and facts about actors are separate."""
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
    """Write the state from which the successor of this process continues: each client's work and model."""
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
    """Read the last state from `save_state`; empty if the process was killed before its first state."""
    path = state_path(folder, process)
    return dict(msgpack.unpackb(path.read_bytes())) if os.path.isfile(path) else {}


def call_repeatedly(loop: Any, every_s: float, action: Callable[[], object]) -> None:
    """Call an action after the other events of the current time, and then every `every_s` seconds.

    A slow action is called less often, so that it takes at most a twentieth of the time.
    """

    def act() -> None:
        began_s = time.perf_counter()
        action()
        took_s = time.perf_counter() - began_s
        loop.call_at_observer(loop.now_s + max(every_s, 20 * took_s), act)

    loop.call_at_observer(loop.now_s, act)
