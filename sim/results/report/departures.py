"""Who was hurt by which departure: client by client, beside how much it relied on the one that went."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.results.metrics import Series
from sim.results.population import DEPARTURES, Dip, LifecycleEvent, dip_and_recovery
from sim.results.report import blocks
from sim.results.report.blocks import Cell, Table
from sim.results.view import RunView

MOST_HURT = 3  # of each departure
_MOST_PAIRS = 50_000  # of departures and clients: bounds the time that the report takes
_WORST_SHARE = 0.9


class Hurt(NamedTuple):
    """A client whose curve fell after another one's departure.

    share: the weight that it gave the one that went over the largest that it gave; None without a graph.
    usual: how far it falls between two evaluations, exceeded by a tenth of those before; None without any.
    """

    departure: LifecycleEvent
    client: int
    dip: Dip
    share: float | None
    usual: float | None


def hurt_by_departures(view: RunView) -> list[Hurt]:
    """For each departure those that fell most, the deepest fall of all first."""
    found: list[Hurt] = []
    departures = [move for move in view.moves if move.event in DEPARTURES]
    for departure in departures[: _MOST_PAIRS // len(view.clients)]:
        shares = _shares_given(view, departure)
        fell = [
            Hurt(departure, client, dip, *_before(view, client, departure, shares))
            for client in range(len(view.clients))
            if (dip := _dip(view, client, departure)) is not None and dip.depth > 0
        ]
        found += sorted(fell, key=lambda hurt: -hurt.dip.depth)[:MOST_HURT]
    return sorted(found, key=lambda hurt: -hurt.dip.depth)


def hurt_table(view: RunView) -> Table | None:
    """The same as a table; None in a run that judges by no accuracy, and where nobody fell."""
    if view.measure is None or not view.measure[0].is_share or not (found := hurt_by_departures(view)):
        return None
    heads = ["client", "fell after", "event", "time", "by", "back after"]
    heads += ["relative weight", "falls anyway"]
    rows: list[list[str | Cell]] = [
        [
            view.clients[each.client],
            view.clients[each.departure.client],
            each.departure.event,
            blocks.seconds(each.departure.time_s),
            blocks.share(each.dip.depth),
            blocks.reached(each.dip.seconds),
            blocks.share(each.share),
            blocks.share(each.usual),
        ]
        for each in found
    ]
    return Table(heads, rows, "falls", "the deepest first")


def _dip(view: RunView, client: int, departure: LifecycleEvent) -> Dip | None:
    """How far a client fell; None for one that went itself, or came, before its next evaluation."""
    assert view.measure is not None
    spans = [span for span in view.presence[client] if span[0] <= departure.time_s < span[1]]
    if client == departure.client or not spans:
        return None
    times, values = view.measure[1].of(client)
    there = (times >= spans[0][0]) & (times <= spans[0][1])
    return dip_and_recovery(Series(times[there], values[there]), departure.time_s)


def _before(
    view: RunView, client: int, departure: LifecycleEvent, shares: dict[int, float] | None
) -> tuple[float | None, float | None]:
    """What a client gave the one that went, and how far it used to fall."""
    assert view.measure is not None
    times, values = view.measure[1].of(client)
    falls: NDArray[np.float64] = -np.diff(values[times <= departure.time_s])
    usual = float(max(0.0, np.quantile(falls, _WORST_SHARE))) if falls.size else None
    return None if shares is None else shares.get(client, 0.0), usual


def _shares_given(view: RunView, departure: LifecycleEvent) -> dict[int, float] | None:
    """What each client gave the one that went, of the largest that it gave, by the last graph before."""
    times = view.graph_times
    before = int(np.searchsorted(times, departure.time_s, side="right")) - 1
    if before < 0:
        return None
    source, target, weight = view.snapshot(times[before])
    largest = np.zeros(len(view.clients))
    np.maximum.at(largest, source, np.where(source == target, 0.0, weight))
    to_it = (target == departure.client) & (weight > 0)
    return dict(zip(source[to_it].tolist(), (weight[to_it] / largest[source[to_it]]).tolist(), strict=True))
