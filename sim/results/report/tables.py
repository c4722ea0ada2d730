"""The report's tables of clients: what each did and reached, what help was worth, who was hurt by whom."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.results import text
from sim.results.metrics import ALONE, Series
from sim.results.population import DEPARTURES, Dip, LifecycleEvent, dip_and_recovery
from sim.results.report import blocks
from sim.results.report.blocks import Cell, Table
from sim.results.view import RunView
from sim.results.waits import kept_waiting_s

Column = tuple[str, Sequence[str | Cell]]
MOST_HURT = 3  # of each departure
_MOST_PAIRS = 50_000  # of departures and clients: bounds the time that the report takes
_WORST_SHARE = 0.9


def clients(view: RunView) -> Table:
    """One row per client, with the columns that this run has; those that fare worst come first."""
    order = view.worst_first
    columns: list[Column] = [("client", list(view.clients))]
    if view.happenings:
        last = {happening.client: happening for happening in view.happenings if happening.event != "stop"}
        columns.append(("last event", [_last_event(last.get(client)) for client in range(len(view.clients))]))
    if view.clusters is not None:
        columns.append(("cluster", [blocks.number(int(cluster)) for cluster in view.clusters]))
    columns += _results(view) + _work(view)
    rows: list[list[str | Cell]] = [[values[client] for _, values in columns] for client in order]
    how = "" if view.measure is None else "the worst first"
    return Table([name for name, _ in columns], rows, "clients", how)


def help_table(view: RunView) -> Table:
    """What each client reached with its peers and alone, the least helped first."""
    assert view.measure is not None
    is_share = view.measure[0].is_share
    readable, difference = (blocks.share, blocks.points) if is_share else (blocks.number, blocks.number)
    rows: list[list[str | Cell]] = [
        [
            view.clients[gain.client],
            readable(gain.with_peers),
            readable(gain.alone),
            difference(gain.difference),
        ]
        for gain in view.gains
    ]
    heads = ["client", "with peers", "alone", "better by (points)" if is_share else "better by"]
    return Table(heads, rows, "clients", "the least helped first")


def _results(view: RunView) -> list[Column]:
    if view.measure is None:
        return []
    measure = view.measure[0]
    readable = blocks.share if measure.is_share else blocks.number
    last = view.last(measure.name)
    assert last is not None
    diverged = set(view.get("non_finite", "at_end") or ())
    columns: list[Column] = [
        (
            measure.label,
            [
                Cell("not finite", None) if name in diverged else readable(value)
                for name, value in zip(view.clients, last.tolist(), strict=True)
            ],
        )
    ]
    alone = view.last(measure.name + ALONE)
    if alone is not None:
        columns.append(("alone", [readable(value) for value in alone.tolist()]))
    return columns


def _work(view: RunView) -> list[Column]:
    """How much each client did, and how fast its device is."""
    columns: list[Column] = []
    if view.iterations is not None:
        columns.append(("iterations", [blocks.number(int(count)) for count in view.iterations]))
    steps, busy_s, up_s = view.last("training_steps"), view.busy_s, view.up_s
    if steps is not None:
        columns.append(("steps", [blocks.number(int(count)) for count in np.nan_to_num(steps)]))
        if not np.isnan(view.spent_s).all():
            columns.append(("budget spent", [blocks.seconds(value) for value in view.spent_s.tolist()]))
        columns.append(("steps/s", [blocks.number(value) for value in _ratio(steps, view.training_s)]))
    for name, head in (("gradients", "gradients"), ("samples_seen", "samples seen")):
        if (counts := view.last(name)) is not None and counts.any():
            columns.append((head, [blocks.number(int(count)) for count in np.nan_to_num(counts)]))
    if (step_s := view.device_s_per_step) is not None:
        columns.append(("device time per step", [blocks.seconds(value) for value in step_s.tolist()]))
    if busy_s is not None:
        columns.append(("up", [blocks.seconds(value) for value in up_s.tolist()]))
        columns.append(("training", [blocks.share(value) for value in _ratio(busy_s, up_s)]))
    if (kept_s := kept_waiting_s(view)) is not None:
        waited_s = [kept_s.get(name, 0.0) for name in view.clients]
        columns.append(("others waited for it", [blocks.seconds(value) for value in waited_s]))
    return columns


def _last_event(happening: LifecycleEvent | None) -> str:
    return text.NOTHING if happening is None else f"{happening.event} at {text.duration(happening.time_s)}"


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> list[float | None]:
    """Client by client; None where there is nothing to divide by."""
    return [a / b if b > 0 else None for a, b in zip(above.tolist(), below.tolist(), strict=True)]


# --- departures ------------------------------------------------------------------------------------------


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
    """The share of its weight that a client gave the one that went, and how far its curve usually falls."""
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
