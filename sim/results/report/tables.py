"""Tables of clients in the report: results, gains from peers, drops after departures, the worst client."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results import text
from sim.results.measures import ALONE, model_metric_name
from sim.results.metrics import Series
from sim.results.population import DEPARTURES, DepartureEffect, LifecycleEvent, dip_and_recovery
from sim.results.report.blocks import (
    Block,
    Cell,
    Heading,
    Paragraph,
    Table,
    difference_cell,
    drop_cell,
    number_cell,
    time_reached_cell,
)
from sim.results.view import RunView
from sim.results.waits import kept_waiting_s

Column = tuple[str, Sequence[str | Cell]]
MOST_HURT = 3  # clients per departure
_MOST_PAIRS = 50_000  # pairs of a departure and a client: bounds the report's computing time
_WORST_SHARE = 0.9
_LEAST_SPREAD = 0.1  # least spread of logarithms: smaller differences do not count
_MOST_QUANTITIES = 8
_APART = 3.0  # distance from the median, in spreads, that makes a quantity a reason
_EXPLAINS = 0.5  # share of the gap to the others that makes a quantity a reason
_MOST_NAMES = 4


def clients_table(view: RunView) -> Table:
    """Return a table with one row per client, the worst first, and the columns that this run knows."""
    order = view.worst_first
    columns: list[Column] = [("client", list(view.clients))]
    if view.happenings:
        last = {happening.client: happening for happening in view.happenings if happening.event != "stop"}
        events = {client: f"{each.event} at {text.duration(each.time_s)}" for client, each in last.items()}
        columns.append(("last event", [events.get(each, text.NOTHING) for each in range(len(view.clients))]))
    if view.clusters is not None:
        columns.append(_column("cluster", view.clusters))
    columns += _results(view) + _work(view)
    rows: list[list[str | Cell]] = [[values[client] for _, values in columns] for client in order]
    how = "" if view.measure is None else "worst first"
    return Table([name for name, _ in columns], rows, "clients", how)


def gain_table(view: RunView) -> Table:
    """Return a table of each client's results with peers and alone, the smallest gain first."""
    assert view.measure is not None
    measure = view.measure[0]
    rows: list[list[str | Cell]] = [
        [
            view.clients[client],
            number_cell(with_peers, measure.text),
            number_cell(alone, measure.text),
            difference_cell(better, measure),
        ]
        for client, with_peers, alone, better in view.gains
    ]
    heads = ["client", "with peers", "alone", "improvement (points)" if measure.is_share else "improvement"]
    return Table(heads, rows, "clients", "smallest gain first")


def _results(view: RunView) -> list[Column]:
    if view.measure is None:
        return []
    measure = view.measure[0]
    last, alone = view.last(measure.name), view.last(measure.name + ALONE)
    assert last is not None
    diverged = set(view.get("non_finite", "at_end") or ())
    reached = [
        Cell("not finite", None) if name in diverged else number_cell(value, measure.text)
        for name, value in zip(view.clients, last.tolist(), strict=True)
    ]
    return [(measure.label, reached)] + ([] if alone is None else [_column("alone", alone, measure.text)])


def _work(view: RunView) -> list[Column]:
    """Return columns about each client's work and the speed of its device."""
    columns: list[Column] = []
    if view.iterations is not None:
        columns.append(_column("iterations", view.iterations.astype(int)))
    if (steps := view.last("training_steps")) is not None:
        columns.append(_column("steps", np.nan_to_num(steps).astype(int)))
        if not np.isnan(view.spent_s).all():
            columns.append(_column("budget exhausted at", view.spent_s, text.duration))
        columns.append(_column("steps/s", _share(steps, view.training_s)))
    for name in ("gradients", "samples_seen"):
        if (counts := view.last(name)) is not None and counts.any():
            columns.append(_column(name.replace("_", " "), np.nan_to_num(counts).astype(int)))
    if (step_s := view.device_s_per_step) is not None:
        columns.append(_column("device time per step", step_s, text.duration))
    if view.busy_s is not None:
        columns.append(_column("up", view.up_s, text.duration))
        columns.append(_column("busy", _share(view.busy_s, view.up_s), text.share))
    if (used := view.get("energy")) is not None and None not in used["clients"]["joules"]:
        columns.append(_column("energy", np.array(used["clients"]["joules"]), text.energy))
    if (kept_s := kept_waiting_s(view)) is not None:
        waited_s = np.array([kept_s.get(name, 0.0) for name in view.clients])
        columns.append(_column("waiting time caused", waited_s, text.duration))
    return columns


def _column(head: str, values: NDArray[Any], shown: Callable[[float | None], str] = text.number) -> Column:
    """Return a column with the values of the clients [N]."""
    return head, [number_cell(value, shown) for value in values.tolist()]


def _share(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Return part / whole by client; NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


# --- departures ------------------------------------------------------------------------------------------


class DepartureDrop(NamedTuple):
    """A client whose accuracy dropped after the departure of another client.

    share: the client's weight for the departed client, divided by the client's largest weight; None without a
    graph. usual: the 90th percentile of the client's earlier drops between two evaluations, or None.
    """

    departure: LifecycleEvent
    client: int
    dip: DepartureEffect
    share: float | None
    usual: float | None


def departure_drops(view: RunView) -> list[DepartureDrop]:
    """Return the clients with the largest drops after each departure, the largest first.

    Of very many departures, only the first ones count.
    """
    found: list[DepartureDrop] = []
    departures = [move for move in view.moves if move.event in DEPARTURES]
    for departure in departures[: _MOST_PAIRS // len(view.clients)]:
        shares = _shares_given(view, departure)
        fell = [
            DepartureDrop(departure, client, dip, *_weight_and_usual_drop(view, client, departure, shares))
            for client in range(len(view.clients))
            if (dip := _dip(view, client, departure)) is not None and dip.depth > 0
        ]
        found += sorted(fell, key=lambda hurt: -hurt.dip.depth)[:MOST_HURT]
    return sorted(found, key=lambda hurt: -hurt.dip.depth)


def departure_drops_table(view: RunView) -> Table | None:
    """Return the drops after departures as a table; None if the measure is not a share, or without drops."""
    if view.measure is None or not view.measure[0].is_share or not (found := departure_drops(view)):
        return None
    measure = view.measure[0]
    heads = ["client", "departed client", "event", "time", "drop (points)", "recovery time"]
    heads += ["relative weight", "usual drop (points)"]
    rows: list[list[str | Cell]] = [
        [
            view.clients[each.client],
            view.clients[each.departure.client],
            each.departure.event,
            number_cell(each.departure.time_s, text.duration),
            drop_cell(each.dip.depth, measure),
            time_reached_cell(each.dip.seconds),
            number_cell(each.share, text.share),
            drop_cell(each.usual, measure),
        ]
        for each in found
    ]
    return Table(heads, rows, "drops", "largest drop first")


def _dip(view: RunView, client: int, departure: LifecycleEvent) -> DepartureEffect | None:
    """Return a client's drop; None if the client departed, or if its session has no later evaluation."""
    assert view.measure is not None
    spans = [span for span in view.presence[client] if span[0] <= departure.time_s < span[1]]
    if client == departure.client or not spans:
        return None
    times, values = view.measure[1].of(client)
    in_session = (times >= spans[0][0]) & (times <= spans[0][1])
    return dip_and_recovery(Series(times[in_session], values[in_session]), departure.time_s)


def _weight_and_usual_drop(
    view: RunView, client: int, departure: LifecycleEvent, shares: dict[int, float] | None
) -> tuple[float | None, float | None]:
    """Return the relative weight that a client gave the departed client, and the client's usual drop."""
    assert view.measure is not None
    times, values = view.measure[1].of(client)
    falls: NDArray[np.float64] = -np.diff(values[times <= departure.time_s])
    usual = float(max(0.0, np.quantile(falls, _WORST_SHARE))) if falls.size else None
    return None if shares is None else shares.get(client, 0.0), usual


def _shares_given(view: RunView, departure: LifecycleEvent) -> dict[int, float] | None:
    """Return each client's weight for the departed client over its largest weight, in the previous graph."""
    times = view.graph_times
    before = int(np.searchsorted(times, departure.time_s, side="right")) - 1
    if before < 0:
        return None
    source, target, weight = view.snapshot(times[before])
    largest = np.zeros(len(view.clients))
    np.maximum.at(largest, source, np.where(source == target, 0.0, weight))
    to_it = (target == departure.client) & (weight > 0)
    return dict(zip(source[to_it].tolist(), (weight[to_it] / largest[source[to_it]]).tolist(), strict=True))


# --- the worst client ------------------------------------------------------------------------------------


class Reason(NamedTuple):
    """Possible reason for a client's bad result: a quantity with a value for each client [N], NaN if unknown.

    more: whether larger values are better. rank: reasons with a lower rank are listed first; rank 2 is for
    quantities that are effects of other reasons. in_unit: whether the values have the unit of the measure.
    """

    what: str
    values: NDArray[np.float64]
    shown: Callable[[float | None], str] = text.number
    more: bool = True
    rank: int = 1
    in_unit: bool = False

    def badness(self, worst: NDArray[np.bool_], others: NDArray[np.bool_], gap: float) -> float:
        """Return how much worse the quantity is for `worst` than for the median of `others`.

        A quantity counts as a reason if its badness is at least 1. If it has the unit of the measure, it then
        explains at least half of `gap`, the difference in the results; otherwise, the logarithm of its ratio
        to the median is at least 3 times as large as is usual among the others.
        """
        sign, median = -1 if self.more else 1, float(np.nanmedian(self.values[others]))
        if self.in_unit:
            return float(np.nanmin(sign * (self.values[worst] - median))) / gap / _EXPLAINS
        nothing = 0.01 * (1.0 if self.shown is text.share or not median else abs(median))
        ratios = np.log((np.maximum(self.values, 0) + nothing) / (max(median, 0.0) + nothing))
        usual = _LEAST_SPREAD + float(np.nanmedian(np.abs(ratios[others])))
        return float(np.nanmin(sign * ratios[worst])) / usual / _APART


def worst_client(view: RunView) -> list[Block]:
    """Compare the worst client, or all equally bad clients, with the other clients; empty without others."""
    last = None if view.measure is None else view.last(view.measure[0].name)
    if view.measure is None or last is None:
        return []
    measure, worst = view.measure[0], last == last[view.worst_first[0]]
    others = ~worst & ~np.isnan(last)
    if not others.any():
        return []
    lowest, usual = float(np.median(last[worst])), float(np.median(last[others]))
    rows = [
        (row.badness(worst, others, abs(usual - lowest)), row)
        for row in _candidate_reasons(view, last)
        if not any(np.isnan(row.values[of]).all() for of in (worst, others))
    ]
    rows.sort(key=lambda each: (each[1].rank if each[0] >= 1 else np.inf, -each[0]))
    name = _client_numbers_text(view, np.flatnonzero(worst).tolist())
    verb = "have the same worst result" if worst.sum() > 1 else "has the worst result"
    lead = f"{name} {verb}: {measure.label} {measure.text(lowest)}, "
    lead += f"compared with a median of {measure.text(usual)} for the other clients. "
    no_reason = "No single quantity stands out. The largest differences are:"
    lead += f"The main reason: {rows[0][1].what}." if rows[0][0] >= 1 else no_reason
    cells: list[list[str | Cell]] = [
        [row.what, *[number_cell(float(np.nanmedian(row.values[of])), row.shown) for of in (worst, others)]]
        for _, row in rows[:_MOST_QUANTITIES]
    ]
    table = Table(["", name, "median of other clients"], cells, "quantities")
    return [Heading("Reasons for the worst result"), Paragraph(lead), table]


def _client_numbers_text(view: RunView, numbers: list[int]) -> str:
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"clients {numbers[0]} {'to' if len(numbers) > 2 else 'and'} {numbers[-1]}"
    names = ", ".join(view.clients[number] for number in numbers[:_MOST_NAMES])
    return names if len(numbers) <= _MOST_NAMES else f"{len(numbers)} clients ({names}, ...)"


def _candidate_reasons(view: RunView, last: NDArray[np.float64]) -> Iterator[Reason]:
    """Yield the known quantities that can be a reason; `last` [N]: the clients' final results."""
    if view.get("samples"):
        yield Reason("training samples", np.array(view.get("samples"), float))
    if view.get("class_counts"):
        counts = np.array(view.get("class_counts"), float)
        shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
        entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
        yield Reason("effective number of classes", np.exp(entropy))
    yield Reason("time up", view.up_s, text.duration)
    joined_s = np.zeros(len(last))
    for move in view.moves:
        if move.is_newcomer:
            joined_s[move.client] = move.time_s
    if joined_s.any():
        yield Reason("time since its last join without state", view.end_s - joined_s, text.duration)
    if not np.isnan(view.spent_s).all():
        spent = np.nan_to_num(view.spent_s, nan=view.end_s)
        yield Reason("time until its budget was exhausted", spent, text.duration)
    if (step_s := view.device_s_per_step) is not None:
        yield Reason("device time per step", step_s, text.duration, more=False)
    if (steps := view.last("training_steps")) is not None:
        yield Reason("training steps", steps, rank=2)
    yield from _communication_reasons(view)
    yield from _measure_reasons(view, last, joined_s)


def _communication_reasons(view: RunView) -> Iterator[Reason]:
    """Yield quantities of the messages that each client received, and of the weights it gave."""
    numbers = range(len(view.clients)) if view.clusters is None else view.clusters.tolist()
    cluster = dict(zip(view.clients, numbers, strict=True))
    of, to = (
        pl.col(end).replace_strict(cluster, default=None, return_dtype=pl.Int64) for end in ("actor", "peer")
    )
    sent, lost, arrived = (pl.col("event") == event for event in ("sent", "lost", "delivered"))
    counts = view.messages_to_clients(
        sent=sent, lost=lost, of_clients=arrived & of.is_not_null(), right=arrived & (of == to)
    )
    if counts["of_clients"].any():
        yield Reason("messages received", counts["of_clients"], rank=2)
    lost_share = _share(counts["lost"], counts["sent"])
    yield Reason("share of messages to the client that were lost", lost_share, text.share, more=False)
    if view.clusters is not None:
        others = _cluster_others(view.clusters)
        yield Reason("other clients in its true cluster", others)
        what, right = "messages from its true cluster", _share(counts["right"], counts["of_clients"])
        if view.graph_times.size:
            what, right = "weight given to its true cluster", _own_cluster_weight(view)
        if others[view.worst_first[0]]:
            yield Reason(what, right, text.share)
    if (panel := view.panel("staleness")) is not None:
        ages = _share(np.nansum(panel.values, axis=0), (~np.isnan(panel.values)).sum(axis=0))
        yield Reason("staleness of the peers' models", ages, text.duration, more=False)


def _own_cluster_weight(view: RunView) -> NDArray[np.float64]:
    """Return the share of weight each client gave its true cluster, when the worst client was last up."""
    assert view.clusters is not None and view.measure is not None
    last_s = view.measure[1].of(view.worst_first[0]).times[-1]
    then = view.graph_times[: max(1, np.searchsorted(view.graph_times, last_s, "right"))][-1]
    source, target, weight = view.snapshot(then)
    given = np.where(source == target, 0.0, np.maximum(weight, 0.0))
    right = given * (view.clusters[source] == view.clusters[target])
    return _share(*(np.bincount(source, each, len(view.clients)) for each in (right, given)))


def _cluster_others(
    clusters: NDArray[np.int64], values: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the number of other clients in each client's true cluster [N], or the sum of their `values`."""
    each = np.ones(len(clusters)) if values is None else np.nan_to_num(values)
    _, index = np.unique(clusters, return_inverse=True)
    return np.bincount(index, each)[index] - each


def _measure_reasons(
    view: RunView, last: NDArray[np.float64], joined_s: NDArray[np.float64]
) -> Iterator[Reason]:
    """Yield the measure at other times, of the client's cluster, and of its other models."""
    assert view.measure is not None
    measure, panel = view.measure
    reason = partial(Reason, shown=measure.text, in_unit=True)
    better = 1 if measure.higher_is_better else -1
    best, at_end = np.full((2, len(last)), np.nan)
    for client, until_s in enumerate(np.nan_to_num(view.spent_s, nan=np.inf).tolist()):
        times, values = panel.of(client)
        if times.size:
            at_end[client] = np.interp(until_s, times, values)
            since = values[(times >= joined_s[client]) & (times <= until_s)]
            best[client] = max([at_end[client], *since], key=lambda value: better * value)
    yield reason(f"{measure.label} lost since its best evaluation", better * (best - at_end), more=False)
    if not np.isnan(view.spent_s).all():
        fell = np.maximum(0.0, better * (at_end - last))
        yield reason(f"{measure.label} lost after its budget was exhausted", fell, more=False, rank=2)
    if view.clusters is not None and len(set(view.clusters.tolist())) > 1:
        known = _cluster_others(view.clusters, (~np.isnan(last)).astype(float))
        mean = _share(_cluster_others(view.clusters, last), known)
        what = f"{measure.label} of other clients in its true cluster"
        yield reason(what, mean, more=measure.higher_is_better, rank=0)
    names = {f"{measure.label} alone": measure.name + ALONE}
    names |= {
        f"{measure.label} of {name}": model_metric_name(measure.name, name)
        for name in view.get("models") or ()
    }
    for label, name in names.items():
        final = view.last(name)
        if final is not None and not np.array_equal(final, last, equal_nan=True):  # equal for `local`
            yield reason(label, final, more=measure.higher_is_better, rank=2)
