"""Content of the page that steps through a run: facts, columns, and notes about missing parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results import text
from sim.results.explore.clock import Ticks
from sim.results.explore.messages import Messages, read_messages
from sim.results.explore.places import places
from sim.results.explore.states import CUT_SHORT, STATES, TIMER, UNKNOWN, StateInterval, client_states
from sim.results.report.columns import PageColumn, float_column, whole_number_column
from sim.results.report.graph import true_groups
from sim.results.store.run_directory import RunDirectory
from sim.results.view import RunView

MOST_WEIGHTS = 400_000  # weights of all times together
_MOST_LINKS = 5_000
_MOST_MARKS = 2_000
_MERGED_FROM = 500  # spells of training of a client; devices keep about a thousand
_ENDS = {TIMER: 0, CUT_SHORT: 1, UNKNOWN: 2}


@dataclass(frozen=True)
class Sources:
    """Shares of the clients' training in their models, from the lineage of a run.

    rows: one row per model and source of recent training, as `lineage_of` returns them. recent_s: recent
    training began at most this long before the evaluation.
    note: sentence about dependencies that the shares leave out.
    """

    rows: pl.DataFrame
    recent_s: float
    note: str = ""


@dataclass(frozen=True)
class Content:
    """Content of a page: `facts` as JSON values, and columns of numbers by name."""

    facts: dict[str, Any]
    columns: dict[str, PageColumn]


def run_page_content(
    directory: RunDirectory,
    view: RunView,
    sources: Sources | str,
    *,
    cuts: Sequence[tuple[float, float]] = (),
    at_s: float = 0.0,
    client: int | None = None,
) -> Content:
    """Return the content of the page of a run.

    sources: the lineage, or a sentence that tells why it is missing. cuts: start and end (s) of each network
    partition. at_s: time that the page shows first; if a run has too many messages, the page contains those
    around it. client: the client that the page shows first.
    """
    clock = Ticks.of(view.end_s)
    messages = read_messages(directory, view)
    states = client_states(view)
    names = view.clients if messages is None else messages.names
    senders = {row.sender for rows in states for row in rows if isinstance(row.sender, str)}
    names = (*names, *sorted(senders - set(names)))
    facts: dict[str, Any] = {
        "scenario": str(view.get("scenario")),
        "question": view.question,
        "end": view.end_s,
        "tick": clock.tick_s,
        "at": min(at_s, view.end_s),
        "client": client if client is not None else (view.worst_first or [0])[0],
        "names": list(names),
        "clients": len(view.clients),
        "clusters": None if view.clusters is None else view.clusters.tolist(),
        "states": STATES,
        "marks": _move_marks(view),
        "cuts": [list(cut) for cut in cuts],
        "notes": [],
    }
    columns: dict[str, PageColumn] = {}
    links: list[tuple[int, int]] = []
    for facts_of, columns_of in (
        _states(view, states, names, clock),
        _measures(view, clock),
        _weights(view, clock),
        _messages(messages, view, clock, at_s),
        _sources(sources, len(view.clients)),
    ):
        facts["notes"] += facts_of.pop("notes", [])
        facts |= facts_of
        columns |= columns_of
    if messages is not None:
        links = _links(messages)
    near = [pair for pair in links if max(pair) < len(view.clients)]
    points = places(true_groups(view), len(names) - len(view.clients), near)
    facts |= {"points": points.round(4).tolist(), "links": links}
    return Content(facts, columns)


Part = tuple[dict[str, Any], dict[str, PageColumn]]


def _move_marks(view: RunView) -> list[list[Any]]:
    """Return arrivals and departures as [time_s, client, event, state]."""
    return [[each.time_s, each.client, each.event, each.state] for each in view.moves[:_MOST_MARKS]]


def _states(view: RunView, found: list[list[StateInterval]], names: Sequence[str], clock: Ticks) -> Part:
    """Return the state intervals of all clients, one client after the other.

    state_end: 0 to 2 for a wait without a message at its end, else 3 plus the number of the sender.
    """
    rows = [row for stretches in found for row in stretches]
    number = {name: place for place, name in enumerate(names)}
    types = {kind: place for place, kind in enumerate(sorted({row.type for row in rows}))}
    ends = [
        _ENDS[row.sender] if isinstance(row.sender, int) else len(_ENDS) + number[row.sender] for row in rows
    ]
    columns = {
        "state_count": whole_number_column([len(stretches) for stretches in found]),
        "state_start": whole_number_column(clock.ticks([row.start_s for row in rows]), rises=True),
        "state": whole_number_column([row.state for row in rows]),
        "state_end": whole_number_column(ends),
        "state_type": whole_number_column([types[row.type] for row in rows]),
    }
    notes = []
    if view.intervals("busy", ()) is None:
        notes.append("This run recorded no intervals of training: a client that is up counts as waiting.")
    elif max(map(len, found)) > _MERGED_FROM:
        notes.append(
            "Short waits may be missing: a device keeps about a thousand intervals, and closes the shortest "
            "gaps beyond them."
        )
    return {"wait_types": list(map(text.message_type, types)), "notes": notes}, columns


def _measures(view: RunView, clock: Ticks) -> Part:
    """Return each client's measure and iterations at the evaluations; NaN if unknown."""
    if view.measure is None:
        return {"measure": None, "notes": ["This run has no evaluations."]}, {}
    measure, panel = view.measure
    facts = {
        "name": measure.name,
        "label": measure.label,
        "is_share": measure.is_share,
        "higher_is_better": measure.higher_is_better,
    }
    columns = {
        "measure_time": whole_number_column(clock.ticks(panel.times), rises=True),
        "measure": float_column(panel.values),
        "mean": float_column(panel.mean_of(np.ones(len(view.clients), dtype=bool)).values),
    }
    if (done := view.panel("iterations")) is not None:
        columns |= {
            "done_time": whole_number_column(clock.ticks(done.times), rises=True),
            "done": float_column(done.values),
        }
    return {"measure": facts}, columns


def _weights(view: RunView, clock: Ticks) -> Part:
    """Return the learned weights: all of them, or the largest ones at each time."""
    times = view.graph_times
    if not len(times):
        return {"notes": ["This method learned no weights."]}, {}
    most = max(1, MOST_WEIGHTS // len(times))
    counts, parts, is_cut = [], [], False
    for time_s in times.tolist():
        source, target, weight = view.snapshot(time_s)
        inside = (source != target) & (np.minimum(source, target) >= 0)
        inside &= (np.maximum(source, target) < len(view.clients)) & np.isfinite(weight) & (weight != 0)
        kept = np.flatnonzero(inside)
        if len(kept) > most:
            kept, is_cut = np.sort(kept[np.argsort(-weight[kept], kind="stable")[:most]]), True
        counts.append(len(kept))
        parts.append((source[kept], target[kept], weight[kept]))
    source, target, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
    columns = {
        "weight_time": whole_number_column(clock.ticks(times), rises=True),
        "weight_count": whole_number_column(counts),
        "weight_from": whole_number_column(source),
        "weight_to": whole_number_column(target),
        "weight": float_column(weight),
    }
    note = f"Only the {most:,} largest weights of each evaluation are part of this page."
    facts = {"edge": view.edge_threshold, "edge_is_share": view.weights_are_shares}
    return facts | {"notes": [note] if is_cut else []}, columns


def _messages(messages: Messages | None, view: RunView, clock: Ticks, at_s: float) -> Part:
    if messages is None:
        note = "This run kept no messages (run.keep_messages)."
        return {"messages": None, "notes": [note]}, {}
    rows, from_s, to_s = messages.window(at_s, view.end_s)
    columns, texts = messages.columns(clock, rows)
    count = len(messages.table)
    facts: dict[str, Any] = texts | {"count": count, "from": from_s, "to": to_s, "bins": 0}
    if len(rows) == count:
        return {"messages": facts}, columns
    bins, facts["bins"] = messages.bins(view.end_s)
    note = (
        f"This page contains {len(rows):,} of {count:,} messages, around the time of --at. At other times, "
        "it shows only the number of messages."
    )
    return {"messages": facts, "notes": [note]}, columns | bins


def _links(messages: Messages) -> list[tuple[int, int]]:
    """Return the pairs of actors that exchanged the most messages."""
    pairs = messages.table.select(
        one=pl.min_horizontal("from", "to"), other=pl.max_horizontal("from", "to")
    ).filter(pl.col("one") != pl.col("other"))
    counts = pairs.group_by("one", "other").len().sort(-pl.col("len").cast(pl.Int64), "one", "other")
    return counts.select("one", "other").head(_MOST_LINKS).rows()


def _sources(sources: Sources | str, clients: int) -> Part:
    """Return the shares of all clients' recent training in each model, in 65,535ths, [E, N, N]."""
    if isinstance(sources, str):
        return {"sources": None, "no_sources": sources}, {}
    rows = sources.rows.filter(pl.col("kind") == "training")
    if rows.is_empty():
        return {"sources": None, "no_sources": "No model contains training of a client."}, {}
    times = sources.rows["time"].unique().sort()
    since = (times - sources.recent_s).clip(0.0)
    of_times = pl.DataFrame({"time": times, "place": range(len(times))})
    sums = (
        rows.join(of_times, on="time")
        .group_by("place", "client", "source_client")
        .agg(pl.col("weight").sum())
    )
    whole_weights = np.zeros((len(times), clients, clients))
    whole_weights[tuple(sums[name].to_numpy() for name in ("place", "client", "source_client"))] = sums[
        "weight"
    ].to_numpy()
    facts = {
        "times": times.to_list(),
        "since": since.to_list(),
        "recent": sources.recent_s,
        "note": sources.note,
    }
    return {"sources": facts}, {"made_of": PageColumn(_shares(whole_weights), "u2")}


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights as parts of the sum over the last axis, in 65,535ths."""
    totals = weights.sum(axis=-1, keepdims=True)
    shares = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
    return np.rint(np.nan_to_num(shares) * 65_535)
