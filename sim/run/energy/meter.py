"""Meter of a run's energy: a hook that counts bytes, and reads the times of devices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from actors.message import Envelope
from sim.core.hooks import MessageEvent
from sim.core.lives import ClientLife, Life
from sim.core.run_hook import RunHook
from sim.core.simulation import Simulation
from sim.results.metrics import ALL
from sim.run.energy import account
from sim.run.energy.account import HOUR_S, EnergyRow, Floats, Usage, energy_rows, seconds_by_hour
from sim.run.energy.constants import EnergyConstants

JOULES = "joules"  # name of the total over time in the metrics
_DOWN, _UP = ("crash", "failed"), ("rejoin", "restarted")


class EnergyMeter(RunHook):
    """Hook that counts bytes by client, direction, class of message and hour, and computes energy.

    A sender pays for a message that is lost; it does not pay for the network's duplicates.
    """

    def __init__(self, constants: EnergyConstants) -> None:
        self.constants = constants
        self._is_hourly = constants.is_hourly
        # By actor; then by direction, type and hour. Totals in joules are by actor, too.
        self._bytes: dict[str, dict[tuple[str, str, int], int]] = {name: {} for name in constants.actors}
        self._joules: dict[str, float] = defaultdict(float)

    def message(self, event: MessageEvent) -> None:
        if event.kind == "sent" and event.detail != "duplicate":
            self._count(event.envelope.sender, "sent", event)
        elif event.kind == "delivered":
            self._count(event.envelope.receiver, "received", event)

    def recount(self, events: pl.DataFrame) -> None:
        """Count the messages of a table of events, for a run in other processes."""
        for time_s, event, actor, peer, kind, size_bytes, detail in events.select(
            "time", "event", "actor", "peer", "type", "bytes", "detail"
        ).iter_rows():
            if event in ("sent", "delivered"):
                values = (Envelope(actor, peer, None), kind, size_bytes, detail or "", 0)
                self.message(MessageEvent(event, time_s, *values))

    def _count(self, actor: str, part: str, event: MessageEvent) -> None:
        own, counts = self.constants.actors[actor], self._bytes[actor]
        key = (part, event.message_type, int(event.time_s // HOUR_S) if self._is_hourly else 0)
        counts[key] = counts.get(key, 0) + event.size_bytes
        per_byte = own.sent_j if part == "sent" else own.received_j
        self._joules[actor] += event.size_bytes * (math.nan if per_byte is None else per_byte)

    def evaluated(self, simulation: Simulation) -> None:
        """Record the energy so far, if the power of all devices is known.

        The value is NaN if the energy of a sent or received message is unknown.
        """
        if self.constants.is_power_known:
            total = math.fsum(self.joules_of(life, simulation) for life in simulation.lives)
            simulation.observer.metrics.add(simulation.loop.time(), ALL, JOULES, total)

    def joules_of(self, life: Life[Any], simulation: Simulation) -> float:
        """Return the energy so far of an actor with known power; NaN if that of a message is unknown."""
        own, (busy_s, up_s) = self.constants.actors[life.name], _times_of(life, simulation)
        assert own.busy_w is not None and own.idle_w is not None
        return own.busy_w * busy_s + own.idle_w * (up_s - busy_s) + self._joules[life.name]

    def rows(self, simulation: Simulation) -> list[EnergyRow]:
        """Return the energy so far, by client or server and part."""
        return energy_rows(self.constants, dict(self._usages(simulation)))

    def table(self, simulation: Simulation) -> pa.Table:
        """Return the contents of energy.parquet."""
        return account.table(self.rows(simulation))

    def summary(self, simulation: Simulation, cpu_s: float | None = None) -> dict[str, Any]:
        """Return the entry of summary.json. cpu_s: CPU seconds of the simulation; None if unknown."""
        found = account.summary(self.constants, self.rows(simulation))
        return found | {"simulation_cpu_seconds": cpu_s}

    def _usages(self, simulation: Simulation) -> Iterator[tuple[str, Usage]]:
        end_s = simulation.loop.time()
        hours = max(1, math.ceil(end_s / HOUR_S)) if self._is_hourly else 1
        edges_s = np.minimum(HOUR_S * np.arange(hours + 1), end_s) if hours > 1 else np.array([0.0, end_s])
        for life in simulation.lives:
            busy_s, up_s = _times_of(life, simulation)
            down = _intervals(life, simulation, "down")
            down_s = seconds_by_hour(down, end_s - up_s, edges_s)
            busy = seconds_by_hour(_intervals(life, simulation, "busy"), busy_s, edges_s)
            yield life.name, Usage(busy, np.diff(edges_s) - down_s, self._bytes_of(life.name, hours))

    def _bytes_of(self, name: str, hours: int) -> dict[tuple[str, str], Floats]:
        found: dict[tuple[str, str], Floats] = {}
        for (part, kind, hour), count in self._bytes[name].items():
            # An event at the very end of the last hour belongs to that hour.
            found.setdefault((part, kind), np.zeros(hours))[min(hour, hours - 1)] += count
        return dict(sorted(found.items(), key=lambda each: each[0], reverse=True))


def _times_of(life: Life[Any], simulation: Simulation) -> tuple[float, float]:
    """Return the seconds in which an actor computed, and in which it was up."""
    if isinstance(life, ClientLife):
        return life.device.busy_s, life.device.up_s
    busy_s = 0.0 if life.compute is None else life.compute.device.busy_s
    return busy_s, simulation.loop.time() - math.fsum(
        end - start for start, end in _absences(life.name, simulation)
    )


def _intervals(life: Life[Any], simulation: Simulation, state: str) -> list[tuple[float, float]]:
    if state == "down" and not isinstance(life, ClientLife):
        return list(_absences(life.name, simulation))
    if life.compute is None:
        return []
    return [(start, end) for start, end, each in life.compute.device.intervals() if each == state]


def _absences(server: str, simulation: Simulation) -> Iterator[tuple[float, float]]:
    """Return the intervals in which a server was down; most servers have no device that records them."""
    start_s: float | None = None
    for time_s, actor, event, _ in simulation.trace.lifecycles:
        if actor == server and event in _DOWN and start_s is None:
            start_s = time_s
        elif actor == server and event in _UP and start_s is not None:
            yield start_s, time_s
            start_s = None
    if start_s is not None:
        yield start_s, simulation.loop.time()
