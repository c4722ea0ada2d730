"""The report's tables of clients: what each did, what help was worth, who was hurt, why the worst is so."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results import text
from sim.results.metrics import ALONE, Series
from sim.results.population import DEPARTURES, Dip, LifecycleEvent, dip_and_recovery
from sim.results.report.blocks import Block, Cell, Heading, Paragraph, Table, cell, difference, reached
from sim.results.view import RunView
from sim.results.waits import kept_waiting_s

Column = tuple[str, Sequence[str | Cell]]
MOST_HURT = 3  # of each departure
_MOST_PAIRS = 50_000  # of departures and clients: bounds the time that the report takes
_WORST_SHARE = 0.9
_LEAST_SPREAD = 0.1  # of logarithms: what differs by less is as good as the same
_MOST_QUANTITIES = 8
_APART = 3.0  # spreads from the median on which something sets a client apart
_EXPLAINS = 0.5  # of the gap to the others: then it is a reason, however common
_MOST_NAMES = 4


def clients(view: RunView) -> Table:
    """One row per client, with the columns that this run has; those that fare worst come first."""
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
    how = "" if view.measure is None else "the worst first"
    return Table([name for name, _ in columns], rows, "clients", how)


def help_table(view: RunView) -> Table:
    """What each client reached with its peers and alone, the least helped first."""
    assert view.measure is not None
    measure = view.measure[0]
    rows: list[list[str | Cell]] = [
        [
            view.clients[client],
            cell(with_peers, measure.text),
            cell(alone, measure.text),
            difference(better, measure),
        ]
        for client, with_peers, alone, better in view.gains
    ]
    heads = ["client", "with peers", "alone", "better by (points)" if measure.is_share else "better by"]
    return Table(heads, rows, "clients", "the least helped first")


def _results(view: RunView) -> list[Column]:
    if view.measure is None:
        return []
    measure = view.measure[0]
    last, alone = view.last(measure.name), view.last(measure.name + ALONE)
    assert last is not None
    diverged = set(view.get("non_finite", "at_end") or ())
    reached = [
        Cell("not finite", None) if name in diverged else cell(value, measure.text)
        for name, value in zip(view.clients, last.tolist(), strict=True)
    ]
    return [(measure.label, reached)] + ([] if alone is None else [_column("alone", alone, measure.text)])


def _work(view: RunView) -> list[Column]:
    """How much each client did, and how fast its device is."""
    columns: list[Column] = []
    if view.iterations is not None:
        columns.append(_column("iterations", view.iterations.astype(int)))
    if (steps := view.last("training_steps")) is not None:
        columns.append(_column("steps", np.nan_to_num(steps).astype(int)))
        if not np.isnan(view.spent_s).all():
            columns.append(_column("budget spent", view.spent_s, text.duration))
        columns.append(_column("steps/s", _share(steps, view.training_s)))
    for name in ("gradients", "samples_seen"):
        if (counts := view.last(name)) is not None and counts.any():
            columns.append(_column(name.replace("_", " "), np.nan_to_num(counts).astype(int)))
    if (step_s := view.device_s_per_step) is not None:
        columns.append(_column("device time per step", step_s, text.duration))
    if view.busy_s is not None:
        columns.append(_column("up", view.up_s, text.duration))
        columns.append(_column("training", _share(view.busy_s, view.up_s), text.share))
    if (kept_s := kept_waiting_s(view)) is not None:
        waited_s = np.array([kept_s.get(name, 0.0) for name in view.clients])
        columns.append(_column("others waited for it", waited_s, text.duration))
    return columns


def _column(head: str, values: NDArray[Any], shown: Callable[[float | None], str] = text.number) -> Column:
    """A column with the values of each client [N]."""
    return head, [cell(value, shown) for value in values.tolist()]


def _share(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Client by client; NaN of nothing."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


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
            cell(each.departure.time_s, text.duration),
            cell(each.dip.depth, text.share),
            reached(each.dip.seconds),
            cell(each.share, text.share),
            cell(each.usual, text.share),
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
    """The weight that each client gave the one that went, as a share of its largest, in the graph before."""
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
    """A quantity of each client [N], NaN where it is not known.

    more: whether more of it is better. rank: of those that are reasons a lower one comes first; 2: an effect
    of others. in_unit: whether it is in the unit of the measure, and so tells what it cost.
    """

    what: str
    values: NDArray[np.float64]
    shown: Callable[[float | None], str] = text.number
    more: bool = True
    rank: int = 1
    in_unit: bool = False

    def badness(self, worst: NDArray[np.bool_], rest: NDArray[np.bool_], gap: float) -> float:
        """How much worse it is for all of the `worst` than for the median of the `rest`; a reason from 1 on.

        It explains half of the gap between them, or is so rare: by ratios, not sums.
        """
        sign, median = -1 if self.more else 1, float(np.nanmedian(self.values[rest]))
        if self.in_unit:
            return float(np.nanmin(sign * (self.values[worst] - median))) / gap / _EXPLAINS
        nothing = 0.01 * (1.0 if self.shown is text.share or not median else abs(median))
        ratios = np.log((np.maximum(self.values, 0) + nothing) / (max(median, 0.0) + nothing))
        usual = _LEAST_SPREAD + float(np.nanmedian(np.abs(ratios[rest])))
        return float(np.nanmin(sign * ratios[worst])) / usual / _APART


def worst_client(view: RunView) -> list[Block]:
    """The worst client, or all that are as bad, beside the others; nothing where there are no others."""
    last = None if view.measure is None else view.last(view.measure[0].name)
    if view.measure is None or last is None:
        return []
    measure, worst = view.measure[0], last == last[view.worst_first[0]]
    rest = ~worst & ~np.isnan(last)
    if not rest.any():
        return []
    its, others = float(np.median(last[worst])), float(np.median(last[rest]))
    rows = [
        (row.badness(worst, rest, abs(others - its)), row)
        for row in _rows(view, last)
        if not any(np.isnan(row.values[of]).all() for of in (worst, rest))
    ]
    rows.sort(key=lambda each: (each[1].rank if each[0] >= 1 else np.inf, -each[0]))
    name = _named(view, np.flatnonzero(worst).tolist())
    lead = f"{name} fared worst{' alike' if worst.sum() > 1 else ''}: {measure.label} {measure.text(its)}, "
    lead += f"the median of the others {measure.text(others)}. "
    no_reason = "No single quantity stands out; the largest differences:"
    lead += f"Above all: {rows[0][1].what}." if rows[0][0] >= 1 else no_reason
    cells: list[list[str | Cell]] = [
        [row.what, *[cell(float(np.nanmedian(row.values[of])), row.shown) for of in (worst, rest)]]
        for _, row in rows[:_MOST_QUANTITIES]
    ]
    table = Table(["", name, "median of the others"], cells, "quantities")
    return [Heading("Why the worst client is the worst"), Paragraph(lead), table]


def _named(view: RunView, numbers: list[int]) -> str:
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"clients {numbers[0]} {'to' if len(numbers) > 2 else 'and'} {numbers[-1]}"
    names = ", ".join(view.clients[number] for number in numbers[:_MOST_NAMES])
    return names if len(numbers) <= _MOST_NAMES else f"{len(numbers)} clients ({names}, ...)"


def _rows(view: RunView, last: NDArray[np.float64]) -> Iterator[Reason]:
    """Everything known that can be a reason; `last` [N]: what they are judged by."""
    if view.get("samples"):
        yield Reason("training samples", np.array(view.get("samples"), float))
    if view.get("class_counts"):
        counts = np.array(view.get("class_counts"), float)
        shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
        entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
        yield Reason("effective number of classes", np.exp(entropy))
    yield Reason("time up", view.up_s, text.duration)
    began_s = np.zeros(len(last))
    for move in view.moves:
        if move.is_newcomer:
            began_s[move.client] = move.time_s
    if began_s.any():
        yield Reason("time since it began anew", view.end_s - began_s, text.duration)
    if not np.isnan(view.spent_s).all():
        spent = np.nan_to_num(view.spent_s, nan=view.end_s)
        yield Reason("time until its budget was spent", spent, text.duration)
    if (step_s := view.device_s_per_step) is not None:
        yield Reason("device time per step", step_s, text.duration, more=False)
    if (steps := view.last("training_steps")) is not None:
        yield Reason("training steps", steps, rank=2)
    yield from _whom(view)
    yield from _measured(view, last, began_s)


def _whom(view: RunView) -> Iterator[Reason]:
    """Whom it listens to, and what it hears of them."""
    numbers = range(len(view.clients)) if view.clusters is None else view.clusters.tolist()
    cluster = dict(zip(view.clients, numbers, strict=True))
    of, to = (
        pl.col(end).replace_strict(cluster, default=None, return_dtype=pl.Int64) for end in ("actor", "peer")
    )
    sent, lost, arrived = (pl.col("event") == event for event in ("sent", "lost", "delivered"))
    heard = view.messages_to_clients(
        sent=sent, lost=lost, of_clients=arrived & of.is_not_null(), right=arrived & (of == to)
    )
    if heard["of_clients"].any():
        yield Reason("messages that it received", heard["of_clients"], rank=2)
    lost_share = _share(heard["lost"], heard["sent"])
    yield Reason("messages to it that were lost", lost_share, text.share, more=False)
    if view.clusters is not None:
        others = _others(view.clusters)
        yield Reason("others in its true cluster", others)
        what, right = "messages to it from its true cluster", _share(heard["right"], heard["of_clients"])
        if view.graph_times.size:
            what, right = "weight that it gives its true cluster", _right_weight(view)
        if others[view.worst_first[0]]:
            yield Reason(what, right, text.share)
    if (panel := view.panel("staleness")) is not None:
        ages = _share(np.nansum(panel.values, axis=0), (~np.isnan(panel.values)).sum(axis=0))
        yield Reason("age of the models that it used", ages, text.duration, more=False)


def _right_weight(view: RunView) -> NDArray[np.float64]:
    """The share of its weight that each client gave its true cluster, when the worst one was up last."""
    assert view.clusters is not None and view.measure is not None
    last_s = view.measure[1].of(view.worst_first[0]).times[-1]
    then = view.graph_times[: max(1, np.searchsorted(view.graph_times, last_s, "right"))][-1]
    source, target, weight = view.snapshot(then)
    given = np.where(source == target, 0.0, np.maximum(weight, 0.0))
    right = given * (view.clusters[source] == view.clusters[target])
    return _share(*(np.bincount(source, each, len(view.clients)) for each in (right, given)))


def _others(clusters: NDArray[np.int64], values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """How many others are in the true cluster of each client [N], or the sum of their `values`."""
    each = np.ones(len(clusters)) if values is None else np.nan_to_num(values)
    _, place = np.unique(clusters, return_inverse=True)
    return np.bincount(place, each)[place] - each


def _measured(view: RunView, last: NDArray[np.float64], began_s: NDArray[np.float64]) -> Iterator[Reason]:
    """Reasons by measures of its model at other times, of its cluster, and of its models without others."""
    assert view.measure is not None
    measure, panel = view.measure
    reason = partial(Reason, shown=measure.text, in_unit=True)
    better = 1 if measure.higher_is_better else -1
    best, at_end = np.full((2, len(last)), np.nan)
    for client, until_s in enumerate(np.nan_to_num(view.spent_s, nan=np.inf).tolist()):
        times, values = panel.of(client)
        if times.size:
            at_end[client] = np.interp(until_s, times, values)
            lived = values[(times >= began_s[client]) & (times <= until_s)]
            best[client] = max([at_end[client], *lived], key=lambda value: better * value)
    yield reason(f"{measure.label} lost since its best", better * (best - at_end), more=False)
    if not np.isnan(view.spent_s).all():
        fell = np.maximum(0.0, better * (at_end - last))
        yield reason(f"{measure.label} lost after its budget was spent", fell, more=False, rank=2)
    if view.clusters is not None and len(set(view.clusters.tolist())) > 1:
        known = _others(view.clusters, (~np.isnan(last)).astype(float))
        mean = _share(_others(view.clusters, last), known)
        what = f"{measure.label} of the others in its true cluster"
        yield reason(what, mean, more=measure.higher_is_better, rank=0)
    names = {f"{measure.label} alone": measure.name + ALONE}
    names |= {f"{measure.label} of {name}": f"{measure.name}_of_{name}" for name in view.get("models") or ()}
    for label, name in names.items():
        its = view.last(name)
        if its is not None and not np.array_equal(its, last, equal_nan=True):  # as they are of `local`
            yield reason(label, its, more=measure.higher_is_better, rank=2)
