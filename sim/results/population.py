"""Effects of arrivals and departures: catch-up of newcomers, and dips of the other clients.

Functions of the observer's records, for the summary and the report.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results.kaplan_meier import CensoredTimes, median_time
from sim.results.measures import CAUGHT_UP_SHARE
from sim.results.metrics import Series, accuracy_summary, value_at

ARRIVALS = ("join", "rejoin", "restarted")
DEPARTURES = ("leave", "crash", "failed")
SETTLED_SHARE = 0.1
"""Share of the iterations of permanently present clients after which a client has settled."""


class LifecycleEvent(NamedTuple):
    """An arrival or departure of a client. state: the state with which a client rejoins."""

    time_s: float
    client: int
    event: str
    state: str = ""

    @property
    def is_newcomer(self) -> bool:
        """True if the client arrives without a trained model."""
        return self.event in ARRIVALS and self.state not in ("keep", "stale")


class ClientPanelData(NamedTuple):
    """A quantity of all clients: `times` [T] in seconds, `values` [T, N], NaN if not measured."""

    times: NDArray[np.float64]
    values: NDArray[np.float64]

    def of(self, client: int) -> Series:
        measured = ~np.isnan(self.values[:, client])
        return Series(self.times[measured], self.values[measured, client])

    @property
    def last(self) -> NDArray[np.float64]:
        """Last value of each client [N], NaN without values."""
        measured = ~np.isnan(self.values)
        latest = len(self.times) - 1 - measured[::-1].argmax(axis=0)
        return self.values[latest, np.arange(self.values.shape[1])]

    def mean_of(self, clients: NDArray[np.bool_], until_s: NDArray[np.float64] | None = None) -> Series:
        """Return the mean over some clients [N], at the times at which any of them was measured.

        until_s [N]: time until which each client counts.
        """
        chosen = self.values[:, clients]
        if until_s is not None:
            chosen = np.where(self.times[:, None] < until_s[clients], chosen, np.nan)
        measured = ~np.isnan(chosen).all(axis=1)
        return Series(self.times[measured], np.nanmean(chosen[measured], axis=1))


def metric_panel(metrics: pl.LazyFrame, name: str, clients: Sequence[str]) -> ClientPanelData | None:
    """Return a metric of all clients from the long table of a run; None if the metric was not recorded."""
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
    return ClientPanelData(times, values)


class DepartureEffect(NamedTuple):
    """Effect of a departure on the remaining clients.

    depth: largest drop of the remaining clients' mean below its last value before the departure, until the
    mean is back at that value. seconds: duration from the departure to this return, None if there is none.
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
    """Return the seconds from joining until the newcomer has caught up with the incumbents' mean, or None.

    gone_s: end of the newcomer's session; later sessions do not count.
    """
    for time_s, value in zip(*newcomer, strict=True):
        mean = value_at(incumbents, time_s)
        caught_up = value >= CAUGHT_UP_SHARE * mean if higher_is_better else CAUGHT_UP_SHARE * value <= mean
        if joined_s <= time_s <= gone_s and caught_up:
            return float(time_s - joined_s)
    return None


def dip_and_recovery(
    survivors: Series, departed_s: float, *, higher_is_better: bool = True
) -> DepartureEffect | None:
    """Return the dip of the survivors' mean after a departure.

    The dip is (0, 0) if the first evaluation after the departure is not worse than the last one before it.
    Returns None if there is no evaluation before the departure, or none after it.
    """
    if not higher_is_better:
        survivors = Series(survivors.times, -survivors.values)
    after = survivors.times > departed_s
    if after.all() or not after.any():
        return None
    before = survivors.values[~after][-1]
    times, values = survivors.times[after], survivors.values[after]
    if values[0] >= before:
        return DepartureEffect(0.0, 0.0)
    back = np.flatnonzero(values >= before)
    until = back[0] if back.size else len(values)
    seconds = float(times[back[0]] - departed_s) if back.size else None
    return DepartureEffect(float(before - values[:until].min()), seconds)


def settled_summary(
    measured: Mapping[str, float],
    iterations: Mapping[str, int],
    stayed: Collection[str],
    least: int | None = None,
    *,
    higher_is_better: bool = True,
) -> dict[str, float | None]:
    """Summarize the measure of clients with at least `least` iterations in their current session.

    The default of `least` is `SETTLED_SHARE` of the median iterations of clients that `stayed` throughout, or
    of all clients if none stayed; at least one.
    """
    if least is None:
        usual = [iterations[client] for client in stayed] or list(iterations.values()) or [0]
        least = max(1, round(SETTLED_SHARE * float(np.median(usual))))
    settled = [value for client, value in measured.items() if iterations[client] >= least]
    return {"iterations": least, **accuracy_summary(settled, higher_is_better=higher_is_better)}


class Population:
    """Newcomers and survivors of a run, by the measure in `panel` and the run's `moves` in order.

    A departed client counts as incumbent or survivor only until its departure.
    """

    def __init__(
        self, panel: ClientPanelData, moves: Sequence[LifecycleEvent], *, higher_is_better: bool = True
    ) -> None:
        self._panel = panel
        self._higher_is_better = higher_is_better
        self._moves = moves
        departures = [move for move in moves if move.event in DEPARTURES]
        self._departed_s = np.array([move.time_s for move in departures])
        self._departed = np.array([move.client for move in departures], dtype=np.int64)
        self._incumbents = lru_cache(maxsize=None)(self._incumbents_since)

    def has_incumbents(self, arrival: LifecycleEvent) -> bool:
        """Return True if a client was measured before this arrival, as an incumbent to catch up with."""
        return self._incumbents(*self._evaluation_before(arrival)) is not None

    def catch_up(self, arrival: LifecycleEvent) -> float | None:
        """Return the seconds until the newcomer caught up with the incumbents; None if it did not.

        Only the session that starts with this arrival counts.
        """
        incumbents = self._incumbents(*self._evaluation_before(arrival))
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
        """Return the seconds from an arrival to the last evaluation of its session; 0 without any."""
        times = self._panel.of(arrival.client).times
        seen = times[(times >= arrival.time_s) & (times <= self._gone_s(arrival))]
        return float(seen[-1] - arrival.time_s) if seen.size else 0.0

    def dip(self, departed_s: float) -> DepartureEffect | None:
        """Return the dip after the departures between two evaluations, the first of them at `departed_s`.

        None if no client survived them, or if one of the two evaluations is missing.
        """
        times, values = self._panel
        after = int(np.searchsorted(times, departed_s, side="right"))
        if after in (0, len(times)):
            return None
        ends_s = self._ends_s(np.nextafter(times[after - 1], -math.inf))  # also at the evaluation itself
        survivors = ~np.isnan(values[after - 1]) & ~np.isnan(values[after]) & (ends_s > times[after])
        if not survivors.any():
            return None
        mean = self._panel.mean_of(survivors, ends_s)
        return dip_and_recovery(mean, departed_s, higher_is_better=self._higher_is_better)

    @cached_property
    def newcomers(self) -> list[LifecycleEvent]:
        """Arrivals without a trained model that have incumbents."""
        return [move for move in self._moves if move.is_newcomer and self.has_incumbents(move)]

    @cached_property
    def catching_up(self) -> CensoredTimes:
        """Times (s) until the `newcomers` caught up."""
        times = [self.catch_up(move) for move in self.newcomers]
        return CensoredTimes.of(times, [self._watched(move) for move in self.newcomers])

    @cached_property
    def recovering(self) -> CensoredTimes:
        """Times (s) until the survivors of the `dips` recovered."""
        dips, last_s = self.dips(), float(self._panel.times[-1])
        return CensoredTimes.of([dip.seconds for _, dip in dips], [last_s - time_s for time_s, _ in dips])

    def dips(self) -> list[tuple[float, DepartureEffect]]:
        """Return (time, dip) of departures; departures between two evaluations count as one."""
        first_s: dict[int, float] = {}
        for departed_s in self._departed_s.tolist():
            after = int(np.searchsorted(self._panel.times, departed_s, side="right"))
            first_s.setdefault(after, departed_s)
        return [(time_s, dip) for time_s in first_s.values() if (dip := self.dip(time_s)) is not None]

    def summary(self) -> dict[str, Any]:
        """Summarize all arrivals and departures; docs/results.md describes each key."""
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
        """Return the time of each client's first departure after `since_s` [N]; infinite if it stayed."""
        ends_s = np.full(self._panel.values.shape[1], math.inf)
        later = self._departed_s > since_s
        np.minimum.at(ends_s, self._departed[later], self._departed_s[later])
        return ends_s

    def _gone_s(self, arrival: LifecycleEvent) -> float:
        """Return the end of the session that starts with an arrival; infinite if it did not end."""
        return float(self._ends_s(arrival.time_s)[arrival.client])

    def _evaluation_before(self, arrival: LifecycleEvent) -> tuple[int, int | None]:
        """Return the index of the last evaluation before an arrival, and the newcomer if measured there."""
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
