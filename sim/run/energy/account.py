"""Energy, cost and CO2 of a run, from the activity of its clients and servers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sim.results.metrics import arrow_table
from sim.results.store.tables import SPECIAL_TABLES
from sim.run.energy.constants import PER_BYTE, ActorConstants, EnergyConstants, Hours

J_PER_KWH: Final = 3_600_000.0
HOUR_S: Final = 3600.0
AMOUNTS: Final = ("joules", "cost", "co2_grams")
PARTS: Final = ("busy", "idle", "sent", "received")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Usage:
    """Use of a device and of the network in each period [H]: hours, or the whole run if no rate changes.

    busy_s, up_s: seconds. bytes: sent or delivered bytes, by "sent" or "received" and the message's type.
    """

    busy_s: Floats
    up_s: Floats
    bytes: Mapping[tuple[str, str], Floats]


@dataclass(frozen=True)
class EnergyRow:
    """A row of energy.parquet. type: class of messages; None for times. None stands for unknown amounts."""

    actor: str
    part: str
    type: str | None
    seconds: float | None
    bytes: int | None
    joules: float | None
    cost: float | None
    co2_grams: float | None


def energy_rows(constants: EnergyConstants, usages: Mapping[str, Usage]) -> list[EnergyRow]:
    """Return the energy by part, for each client and server.

    The parts are its busy time, its idle time, and each type of message that it sent or received.
    """
    rows = []
    for name, usage in usages.items():
        own = constants.actors[name]
        for part, seconds, watts in (
            ("busy", usage.busy_s, own.busy_w),
            ("idle", usage.up_s - usage.busy_s, own.idle_w),
        ):
            rows.append(EnergyRow(name, part, None, math.fsum(seconds), None, *_amounts(own, seconds, watts)))
        for (part, kind), count in usage.bytes.items():
            joules = own.sent_j if part == "sent" else own.received_j
            rows.append(EnergyRow(name, part, kind, None, int(count.sum()), *_amounts(own, count, joules)))
    return rows


def _amounts(own: ActorConstants, quantity: Floats, factor: float | None) -> list[float | None]:
    """Return joules, cost and CO2 of a quantity [H] times a factor; all are 0 for a quantity of 0."""
    if not quantity.any():
        return [0.0, 0.0, 0.0]
    if factor is None:
        return [None, None, None]
    joules = quantity * factor
    return [math.fsum(joules), _cost_by_rate(joules, own.price), _cost_by_rate(joules, own.carbon)]


def _cost_by_rate(joules: Floats, rate: Hours | None) -> float | None:
    return None if rate is None else math.fsum(joules * np.resize(rate, len(joules))) / J_PER_KWH


def table(rows: Sequence[EnergyRow]) -> pa.Table:
    """Return the rows as energy.parquet."""
    schema = SPECIAL_TABLES["energy"]
    return arrow_table([tuple([getattr(row, name) for name in schema.names]) for row in rows], schema)


def summary(constants: EnergyConstants, rows: Sequence[EnergyRow]) -> dict[str, Any]:
    """Return the entry of summary.json: totals, and amounts by part, client and class of messages."""
    servers = set(constants.servers)
    kinds = dict.fromkeys([row.type for row in rows if row.type is not None])
    by_client: dict[str, list[EnergyRow]] = {name: [] for name in constants.actors if name not in servers}
    for row in rows:
        if row.actor in by_client:
            by_client[row.actor].append(row)
    unknown = [key for key in constants.unknown if key != PER_BYTE or any(row.bytes for row in rows)]
    of_clients = [_sums(each) for each in by_client.values()]
    return {
        **_sums(rows),
        "currency": constants.currency,
        "unknown": unknown,
        "parts": {part: _sums(_filter_rows(rows, lambda row, part=part: row.part == part)) for part in PARTS},
        "messages": {
            kind: _sums(_filter_rows(rows, lambda row, kind=kind: row.type == kind)) for kind in kinds
        },
        "servers": _sums(_filter_rows(rows, lambda row: row.actor in servers)),
        "clients": {amount: [each[amount] for each in of_clients] for amount in AMOUNTS},
    }


def _filter_rows(rows: Iterable[EnergyRow], holds: Callable[..., bool]) -> list[EnergyRow]:
    return [row for row in rows if holds(row)]


def _sums(rows: Sequence[EnergyRow]) -> dict[str, float | None]:
    """Return the sum of each amount; None if a summand is unknown."""
    found: dict[str, float | None] = {}
    for amount in AMOUNTS:
        values = [getattr(row, amount) for row in rows]
        found[amount] = None if None in values else math.fsum(values)
    return found


def seconds_by_hour(
    intervals: Sequence[tuple[float, float]], total_s: float, edges_s: Floats
) -> NDArray[np.float64]:
    """Distribute `total_s` over the periods between `edges_s`, in proportion to the intervals in each period.

    intervals: disjoint, in order of time. total_s: their total length, which a device counts exactly, while
    it may merge intervals with a short gap between them.
    """
    lengths = np.array([end - start for start, end in intervals])
    if not lengths.size or not lengths.sum():
        return np.zeros(len(edges_s) - 1)
    if len(edges_s) == 2:
        return np.array([total_s])
    times = np.array(intervals).ravel()
    passed = np.repeat(np.concatenate([[0.0], np.cumsum(lengths)]), 2)[1:-1]
    return np.diff(np.interp(edges_s, times, passed)) * (total_s / lengths.sum())
