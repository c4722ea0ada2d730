"""What arrivals and departures meant: how fast newcomers caught up, and what it cost the others.

Pure functions of what the observer recorded; the summary and the report both show them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results.kaplan_meier import Reached, median_time
from sim.results.measures import CAUGHT_UP_SHARE
from sim.results.metrics import Series, accuracy_summary, value_at

ARRIVALS = ("join", "rejoin", "restarted")
DEPARTURES = ("leave", "crash", "failed")
SETTLED_SHARE = 0.1
"""A client has settled after this share of the iterations of those that were there all along."""


class LifecycleEvent(NamedTuple):
    """A client came or went. state: what it came back with, for a rejoin."""

    time_s: float
    client: int
    event: str
    state: str = ""

    @property
    def is_newcomer(self) -> bool:
        """Whether it came without a model of its own: one that brings its former one has nothing to learn."""
        return self.event in ARRIVALS and self.state not in ("keep", "stale")


class Panel(NamedTuple):
    """One quantity of all clients: `times` [T] in seconds, `values` [T, N], NaN where not measured."""

    times: NDArray[np.float64]
    values: NDArray[np.float64]

    def of(self, client: int) -> Series:
        measured = ~np.isnan(self.values[:, client])
        return Series(self.times[measured], self.values[measured, client])

    @property
    def last(self) -> NDArray[np.float64]:
        """Each client's last value [N], NaN without any."""
        measured = ~np.isnan(self.values)
        latest = len(self.times) - 1 - measured[::-1].argmax(axis=0)
        return self.values[latest, np.arange(self.values.shape[1])]

    def mean_of(self, clients: NDArray[np.bool_], until_s: NDArray[np.float64] | None = None) -> Series:
        """Mean over some clients [N], at the times at which any of them was measured.

        until_s [N]: each counts until then only.
        """
        chosen = self.values[:, clients]
        if until_s is not None:
            chosen = np.where(self.times[:, None] < until_s[clients], chosen, np.nan)
        measured = ~np.isnan(chosen).all(axis=1)
        return Series(self.times[measured], np.nanmean(chosen[measured], axis=1))


def panel_of(metrics: pl.LazyFrame, name: str, clients: Sequence[str]) -> Panel | None:
    """One metric of all clients, from the long table of a run; None if it was never recorded."""
    rows = metrics.filter(
        (pl.col("name") == name) & pl.col("actor").is_in(list(clients)) & pl.col("value").is_finite()
    )
    frame = rows.select("time", "actor", "value").collect()
    if frame.is_empty():
        return None
    times, row = np.unique(frame["time"].to_numpy(), return_inverse=True)
    values = np.full((len(times), len(clients)), np.nan)
    numbers = {client: number for number, client in enumerate(clients)}
    column = [numbers[actor] for actor in frame["actor"]]
    values[row, column] = frame["value"].to_numpy()
    return Panel(times, values)


class Dip(NamedTuple):
    """What a departure cost those who stayed.

    depth: how much worse their mean became than its last value before; seconds: from the departure until
    that value was reached again, None if it never was.
    """

    depth: float
    seconds: float | None


def catch_up_time(
    newcomer: Series,
    incumbents: Series,
    joined_s: float,
    gone_s: float = math.inf,
    *,
    higher_is_better: bool = True,
) -> float | None:
    """Seconds from joining until the newcomer has caught up with the incumbents' mean; or None.

    gone_s: when it went again; what it was worth in a later life does not count.
    """
    for time_s, value in zip(*newcomer, strict=True):
        there = value_at(incumbents, time_s)
        caught_up = value >= CAUGHT_UP_SHARE * there if higher_is_better else CAUGHT_UP_SHARE * value <= there
        if joined_s <= time_s <= gone_s and caught_up:
            return float(time_s - joined_s)
    return None


def dip_and_recovery(survivors: Series, departed_s: float, *, higher_is_better: bool = True) -> Dip | None:
    """From the survivors' mean; no dip is (0, 0). None without an evaluation on both sides."""
    if not higher_is_better:
        survivors = Series(survivors.times, -survivors.values)
    after = survivors.times > departed_s
    if after.all() or not after.any():
        return None
    before = survivors.values[~after][-1]
    times, values = survivors.times[after], survivors.values[after]
    if values[0] >= before:
        return Dip(0.0, 0.0)
    back = np.flatnonzero(values >= before)
    until = back[0] if back.size else len(values)
    seconds = float(times[back[0]] - departed_s) if back.size else None
    return Dip(float(before - values[:until].min()), seconds)


def settled_summary(
    measured: Mapping[str, float],
    iterations: Mapping[str, int],
    stayed: Collection[str],
    least: int | None = None,
    *,
    higher_is_better: bool = True,
) -> dict[str, float | None]:
    """The measure of those that have done `least` iterations in their present life.

    By default that is `SETTLED_SHARE` of the median of those that `stayed` all along, or of all if nobody
    did; at least one.
    """
    if least is None:
        usual = [iterations[client] for client in stayed] or list(iterations.values()) or [0]
        least = max(1, round(SETTLED_SHARE * float(np.median(usual))))
    settled = [value for client, value in measured.items() if iterations[client] >= least]
    return {"iterations": least, **accuracy_summary(settled, higher_is_better=higher_is_better)}


class Population:
    """Newcomers and survivors of one run, by the measure in `panel` and all its `moves`, in their order.

    Whoever goes counts until then, as an incumbent or a survivor, and not when it is back.
    """

    def __init__(
        self, panel: Panel, moves: Sequence[LifecycleEvent], *, higher_is_better: bool = True
    ) -> None:
        self._panel = panel
        self._higher_is_better = higher_is_better
        self._moves = moves
        departures = [move for move in moves if move.event in DEPARTURES]
        self._departed_s = np.array([move.time_s for move in departures])
        self._departed = np.array([move.client for move in departures], dtype=np.int64)
        self._incumbents = lru_cache(maxsize=None)(self._incumbents_since)

    def has_incumbents(self, arrival: LifecycleEvent) -> bool:
        """Whether anybody was measured before this arrival, so that there is something to catch up with."""
        return self._incumbents(*self._place(arrival)) is not None

    def catch_up(self, arrival: LifecycleEvent) -> float | None:
        """Seconds until the newcomer had caught up with those who were there before; None if it never did.

        What counts is the life that began with this arrival.
        """
        incumbents = self._incumbents(*self._place(arrival))
        if incumbents is None:
            return None
        return catch_up_time(
            self._panel.of(arrival.client),
            incumbents,
            arrival.time_s,
            self._gone_s(arrival),
            higher_is_better=self._higher_is_better,
        )

    def _watched(self, arrival: LifecycleEvent) -> float:
        """Seconds from an arrival to the last evaluation of the life that began with it; 0 without any."""
        times = self._panel.of(arrival.client).times
        seen = times[(times >= arrival.time_s) & (times <= self._gone_s(arrival))]
        return float(seen[-1] - arrival.time_s) if seen.size else 0.0

    def dip(self, departed_s: float) -> Dip | None:
        """What the departures between two evaluations, the first at `departed_s`, cost those who stayed."""
        times, values = self._panel
        after = int(np.searchsorted(times, departed_s, side="right"))
        if after in (0, len(times)):
            return None
        ends_s = self._ends_s(times[after - 1])
        survivors = ~np.isnan(values[after - 1]) & ~np.isnan(values[after]) & (ends_s > times[after])
        if not survivors.any():
            return None
        mean = self._panel.mean_of(survivors, ends_s)
        return dip_and_recovery(mean, departed_s, higher_is_better=self._higher_is_better)

    @cached_property
    def newcomers(self) -> list[LifecycleEvent]:
        """The arrivals of clients without a model of their own that had somebody to catch up with."""
        return [move for move in self._moves if move.is_newcomer and self.has_incumbents(move)]

    @cached_property
    def catching_up(self) -> Reached:
        """After how many seconds each of the `newcomers` had caught up."""
        times = [self.catch_up(move) for move in self.newcomers]
        return Reached.of(times, [self._watched(move) for move in self.newcomers])

    @cached_property
    def recovering(self) -> Reached:
        """After how many seconds the survivors of each of the `dips` were as good again."""
        dips, last_s = self.dips(), float(self._panel.times[-1])
        return Reached.of([dip.seconds for _, dip in dips], [last_s - time_s for time_s, _ in dips])

    def dips(self) -> list[tuple[float, Dip]]:
        """When clients went, and what that cost the others; departures between two evaluations are one."""
        first_s: dict[int, float] = {}
        for departed_s in self._departed_s.tolist():
            first_s.setdefault(int(np.searchsorted(self._panel.times, departed_s)), departed_s)
        return [(time_s, dip) for time_s in first_s.values() if (dip := self.dip(time_s)) is not None]

    def summary(self) -> dict[str, Any]:
        """Over all arrivals and departures of a run; see docs/results.md for the meaning of each key."""
        newcomers, reached = self.newcomers, self.catching_up
        catch_ups = reached.at[np.isfinite(reached.at)].tolist()
        behind = [move for move, at in zip(newcomers, reached.at, strict=True) if math.isinf(at)]
        half_s = median_time(reached)
        dips = [dip for _, dip in self.dips()]
        recoveries = [dip.seconds for dip in dips if dip.seconds is not None]
        return {
            "newcomers": len(newcomers),
            "came_back": sum(move.event != "join" for move in newcomers),
            "caught_up": len(catch_ups),
            "went_before": sum(self._gone_s(move) < math.inf for move in behind),
            "still_behind": sum(self._gone_s(move) == math.inf for move in behind),
            "catch_up_seconds": {"median": half_s, "max": max(catch_ups, default=None)},
            "departures": len(dips),
            "recovered": len(recoveries),
            "recovery_seconds": {
                "median": float(np.median(recoveries)) if recoveries else None,
                "max": max(recoveries, default=None),
            },
            "deepest_dip": max([dip.depth for dip in dips], default=None),
        }

    def _ends_s(self, since_s: float) -> NDArray[np.float64]:
        """When each client [N] first went after `since_s`; infinite for those that stayed."""
        ends_s = np.full(self._panel.values.shape[1], math.inf)
        later = self._departed_s > since_s
        np.minimum.at(ends_s, self._departed[later], self._departed_s[later])
        return ends_s

    def _gone_s(self, arrival: LifecycleEvent) -> float:
        """When the life that began with an arrival ended; infinite if it did not."""
        return float(self._ends_s(arrival.time_s)[arrival.client])

    def _place(self, arrival: LifecycleEvent) -> tuple[int, int | None]:
        """The last evaluation before the arrival, and the newcomer where that evaluation still saw it."""
        before = int(np.searchsorted(self._panel.times, arrival.time_s)) - 1
        seen = before >= 0 and not np.isnan(self._panel.values[before, arrival.client])
        return before, arrival.client if seen else None

    def _incumbents_since(self, before: int, without: int | None) -> Series | None:
        if before < 0:
            return None
        incumbents = ~np.isnan(self._panel.values[before])
        if without is not None:
            incumbents[without] = False
        ends_s = self._ends_s(self._panel.times[before])
        return self._panel.mean_of(incumbents, ends_s) if incumbents.any() else None
