"""A finished run as arrays by client and time, read from its results folder."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sim.results.measures import ALONE, MEASURES, OWN_METRICS, Measure, base_metric_name
from sim.results.metrics import ALL, EDGE_THRESHOLD, Series
from sim.results.population import (
    ARRIVALS,
    DEPARTURES,
    ClientPanelData,
    LifecycleEvent,
    Population,
    metric_panel,
)
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import LIFECYCLE_EVENTS

_SMALL = 200_000  # rows of a table
_MESSAGES_MOST = 1_000_000  # messages with known times


class Snapshot(NamedTuple):
    """The learned graph at one time, as arrays [E]; absent pairs have weight 0."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float64]


class Gain(NamedTuple):
    """A client's results with peers and alone; `difference` is above 0 if the result with peers is better."""

    client: int
    with_peers: float
    alone: float
    difference: float


class RunView:
    """Lazy view of a results folder. Clients are numbered as in the summary's `client_names`."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.summary: dict[str, Any] = directory.summary()
        self.scenario_text = directory.scenario_text()
        self._panels: dict[str, ClientPanelData | None] = {}
        self._small: dict[str, pl.LazyFrame] = {}

    def get(self, *keys: str) -> Any:
        """Return a value of the summary; None if a key of the path is absent or null."""
        value: Any = self.summary
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _table(self, name: str) -> pl.LazyFrame:
        """Return a table of the run; small tables are cached."""
        if name not in self._small:
            rows = self._directory.scan(name)
            if rows.select(pl.len()).collect().item() > _SMALL:
                return rows
            self._small[name] = rows.collect().lazy()
        return self._small[name]

    @property
    def question(self) -> str:
        """First comment of the scenario: its question."""
        comment = re.match(r"(?:[ \t]*#[^\n]*(?:\n|\Z))+", self.scenario_text)
        return " ".join(re.sub(r"(?m)^[ \t]*#+", "", comment[0]).split()) if comment else ""

    @cached_property
    def clients(self) -> tuple[str, ...]:
        return tuple(self.summary["client_names"])

    @cached_property
    def clusters(self) -> NDArray[np.int64] | None:
        """True cluster of each client [N]; None if the data set has no clusters."""
        clusters = self.get("clusters")
        return None if clusters is None else np.array(clusters, dtype=np.int64)

    @property
    def edge_threshold(self) -> float:
        """Weight above which a pair is an edge of the learned graph."""
        found = self.get("graph", "edge_threshold")
        return EDGE_THRESHOLD if found is None else float(found)

    @property
    def weights_are_shares(self) -> bool:
        """True if weights are compared with the client's largest weight."""
        return bool(self.get("graph", "weights_are_shares"))

    @cached_property
    def end_s(self) -> float:
        """Virtual time (s) of the end of the run."""
        return float(self.get("virtual_seconds") or 0.0)

    @cached_property
    def measure(self) -> tuple[Measure, ClientPanelData] | None:
        """Measure of the run, or else the first of MEASURES that was recorded, with its values; or None."""
        judged = self.get("measure")
        for measure in sorted(MEASURES, key=lambda each: each.name != judged):
            panel = self.panel(measure.name)
            if panel is not None:
                return measure, panel
        return None

    @property
    def evaluate_share(self) -> float:
        """Share of clients that each evaluation measures; the last evaluation measures all."""
        found = self.get("evaluate_share")
        return float(found) if isinstance(found, int | float) else 1.0

    @cached_property
    def population(self) -> Population | None:
        """Newcomers and survivors; None without a suitable measure, or if evaluations sample clients."""
        if self.measure is None or not self.measure[0].tells_moves or self.evaluate_share < 1:
            return None
        measure, panel = self.measure
        return Population(panel, self.moves, higher_is_better=measure.higher_is_better)

    @property
    def fork_s(self) -> float | None:
        """Virtual time (s) at which a fork leaves its parent; None if the run is no fork."""
        at_s = self.get("fork", "at")
        return float(at_s) if isinstance(at_s, int | float) else None

    @cached_property
    def parent(self) -> ClientPanelData | None:
        """The clients' values of the measure in the parent run after `fork_s`; None if unknown."""
        if self.measure is None or not self._directory.has("parent"):
            return None
        return metric_panel(self._table("parent"), self.measure[0].name, self.clients)

    def panel(self, name: str) -> ClientPanelData | None:
        """Return a metric of all clients; None if not recorded."""
        if name not in self._panels:
            self._panels[name] = metric_panel(self._table("metrics"), name, self.clients)
        return self._panels[name]

    @cached_property
    def metric_names(self) -> list[str]:
        """Names of all metrics of clients, servers and the whole run, in order of appearance."""
        names = self._table("metrics").select(pl.col("name").unique(maintain_order=True))
        return list(names.collect()["name"])

    @cached_property
    def observed(self) -> list[str]:
        """Names of the quantities observed by the method, in order of appearance."""
        rows = self._table("metrics").filter(pl.col("actor") != ALL, pl.col("value").is_finite())
        names = rows.select(pl.col("name").unique(maintain_order=True)).collect()["name"].to_list()
        own = {*OWN_METRICS, "iterations", *[measure.name for measure in MEASURES]}
        return [name for name in names if base_metric_name(name) not in own]

    def observations(self, name: str) -> list[tuple[str, ClientPanelData]]:
        """Return an observed quantity's values, as ("clients", panel) and ("servers", panel) if known."""
        rows = self._table("metrics")
        others = rows.filter(~pl.col("actor").is_in([ALL, *self.clients]), name=name)
        servers = others.select(pl.col("actor").unique().sort()).collect()["actor"].to_list()
        panels = (("clients", self.panel(name)), ("servers", metric_panel(rows, name, servers)))
        return [(kind, panel) for kind, panel in panels if panel is not None]

    @cached_property
    def others(self) -> list[tuple[Measure, ClientPanelData]]:
        """Other measures of the clients' models, with their values."""
        judged = None if self.measure is None else self.measure[0]
        panels = [(measure, self.panel(measure.name)) for measure in MEASURES if measure != judged]
        return [(measure, panel) for measure, panel in panels if panel is not None]

    def last(self, name: str) -> NDArray[np.float64] | None:
        """Return each client's last value [N] of a metric, NaN without values; None if not recorded."""
        panel = self.panel(name)
        if panel is None:
            return None
        return panel.last

    @cached_property
    def at_the_end(self) -> NDArray[np.float64]:
        """Measure of each client [N] at the last evaluation.

        NaN for a client that was down, or whose model was not finite.
        """
        nothing = np.full(len(self.clients), np.nan)
        if self.measure is None:
            return nothing
        panel, evaluated_s = self.measure[1], self.bytes_sent.times
        # The last finite value may be long before the end.
        return nothing if evaluated_s.size and panel.times[-1] < evaluated_s[-1] else panel.values[-1]

    @cached_property
    def iterations(self) -> NDArray[np.float64] | None:
        """Iterations of each client [N] over all sessions, as measured by evaluations; None if unknown."""
        panel = self.panel("iterations")
        if panel is None:
            return None
        return np.array([_sum_over_sessions(panel.of(client).values) for client in range(len(self.clients))])

    @cached_property
    def worst_first(self) -> list[int]:
        """Clients by their last result, the worst first; clients without any result come last.

        Of clients with equal results, the one with the fewest iterations is first.
        """
        count = len(self.clients)
        measured = np.full(count, np.nan)
        if self.measure is not None:
            last = self.last(self.measure[0].name)
            assert last is not None
            measured = last if self.measure[0].higher_is_better else -last
        done = np.zeros(count) if self.iterations is None else self.iterations
        return np.lexsort((np.arange(count), done, measured)).tolist()

    @cached_property
    def gains(self) -> list[Gain]:
        """Gain over training alone of each client with a result at the end, smallest first."""
        alone = None if self.measure is None else self.last(self.measure[0].name + ALONE)
        if self.measure is None or alone is None:
            return []
        differences = (self.at_the_end - alone) * (1 if self.measure[0].higher_is_better else -1)
        found = list(
            map(Gain, range(len(alone)), self.at_the_end.tolist(), alone.tolist(), differences.tolist())
        )
        return sorted([gain for gain in found if not np.isnan(gain.difference)], key=lambda g: g.difference)

    @cached_property
    def up_s(self) -> NDArray[np.float64]:
        """Time (s) that each client was up [N]."""
        return np.array([sum(end - start for start, end in spans) for spans in self.presence])

    @cached_property
    def spent_s(self) -> NDArray[np.float64]:
        """Virtual time (s) at which each client exhausted its budget [N]; NaN if it had not."""
        spent = self.get("budget", "spent_seconds") or [None] * len(self.clients)
        return np.array(spent, dtype=np.float64)

    @cached_property
    def training_s(self) -> NDArray[np.float64]:
        """Time (s) in which each client [N] could train: it was up, and its budget was not exhausted."""
        until = np.nan_to_num(self.spent_s, nan=np.inf).tolist()
        spans = zip(self.presence, until, strict=True)
        return np.array([sum(max(0.0, min(end, most) - start) for start, end in of) for of, most in spans])

    @cached_property
    def _totals(self) -> pl.DataFrame:
        return self._table("metrics").filter(actor=ALL).collect()

    def total(self, name: str) -> Series:
        """Return a total over clients over time, such as "flops"; empty if not recorded."""
        frame = self._totals.filter(name=name)
        return Series(frame["time"].to_numpy(), frame["value"].to_numpy())

    @cached_property
    def bytes_sent(self) -> Series:
        """Bytes sent by all clients, over time."""
        return self.total("bytes_sent")

    @cached_property
    def happenings(self) -> list[LifecycleEvent]:
        """Lifecycle events of clients, in order."""
        rows = self._table("events").filter(
            pl.col("event").is_in(LIFECYCLE_EVENTS),
            pl.col("actor").is_in(list(self.clients)),
            pl.col("time").is_finite(),  # damaged tables may have others
        )
        clients = range(len(self.clients))
        numbers = pl.col("actor").replace_strict(self.clients, clients, return_dtype=pl.Int64)
        frame = rows.select("time", numbers, "event", pl.col("detail").fill_null("")).collect()
        return [LifecycleEvent(*happening) for happening in frame.iter_rows()]

    @property
    def moves(self) -> list[LifecycleEvent]:
        """Arrivals and departures during the run, in order."""
        return [happening for happening in self.happenings if happening.event in ARRIVALS + DEPARTURES]

    @cached_property
    def presence(self) -> list[list[tuple[float, float]]]:
        """Sessions (start_s, end_s) of each client.

        A client without lifecycle events was never up, as each session starts with one. Only if no client has
        any, as in damaged results, the table does not tell, and all clients count as up for the whole run.
        """
        up_since: dict[int, float] = {}
        presence: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for time_s, client, event, _ in self.happenings:
            if event == "start" or event in ARRIVALS:
                up_since.setdefault(client, time_s)
            elif client in up_since:
                presence[client].append((up_since.pop(client), time_s))
        for client, start_s in up_since.items():
            presence[client].append((start_s, self.end_s))
        otherwise = [] if self.happenings else [(0.0, self.end_s)]
        return [presence.get(client, otherwise) for client in range(len(self.clients))]

    def up_at(self, time_s: float) -> NDArray[np.bool_]:
        """Return the mask [N] of clients that were up at a time."""
        return np.array([any(start <= time_s <= end for start, end in spans) for spans in self.presence])

    @cached_property
    def _has_intervals(self) -> bool:
        """True if the run recorded intervals of devices."""
        rows = self._table("intervals").filter(pl.col("actor").is_in(list(self.clients)))
        return not rows.head(1).collect().is_empty()

    @cached_property
    def has_messages(self) -> bool:
        """True if the trace contains delivered messages."""
        return not self._table("events").filter(event="delivered").head(1).collect().is_empty()

    @cached_property
    def one_message_in(self) -> int:
        """Number k: the times of every k-th message are read; 1 unless there are very many messages."""
        messages = self._table("events").select(pl.col("message").max()).collect().item()
        return 1 + (messages or 0) // _MESSAGES_MOST

    @cached_property
    def latencies_s(self) -> dict[str, NDArray[np.float64]]:
        """Latencies (s) by type of message, of every k-th message with k = `one_message_in`."""
        events = self._table("events").filter(pl.col("message") % self.one_message_in == 0)
        sent = events.filter(pl.col("event") == "sent").select("message", pl.col("time").alias("sent"))
        arrived = events.filter(pl.col("event") == "delivered").select("message", "time", "type")
        took = arrived.join(sent, on="message").select("type", took=pl.col("time") - pl.col("sent")).collect()
        parts = took.partition_by("type", as_dict=True)
        return {kind: part["took"].to_numpy() for (kind,), part in parts.items()}

    def messages_between(self) -> dict[tuple[str, str], int]:
        """Return the number of messages between two actors, by sorted pair, the most first."""
        ends = {"one": pl.min_horizontal("actor", "peer"), "other": pl.max_horizontal("actor", "peer")}
        sent = self._table("events").filter(pl.col("event") == "sent").select(**ends)
        counts = sent.group_by("one", "other").len().sort(-pl.col("len").cast(pl.Int64), "one", "other")
        return {(one, other): count for one, other, count in counts.collect().iter_rows()}

    def messages_to_clients(self, **counted: pl.Expr) -> dict[str, NDArray[np.float64]]:
        """Count events of messages to each client [N] by condition, excluding membership messages."""
        sums = [when.sum().alias(name) for name, when in counted.items()]
        others = ~pl.col("type").is_in(self.get("membership", "types") or [])
        rows = self._table("events").filter(pl.col("peer").is_in(list(self.clients)), others)
        found = (
            pl.DataFrame({"peer": self.clients})
            .lazy()
            .join(rows.group_by("peer").agg(sums), on="peer", how="left", maintain_order="left")
        )
        frame = found.collect(engine="streaming")
        return {name: frame[name].fill_null(0).to_numpy().astype(np.float64) for name in counted}

    def last_arrivals(
        self, clients: Sequence[int], instants: Sequence[NDArray[np.float64]]
    ) -> list[pl.DataFrame] | None:
        """Return, for each of `clients`, the last message delivered at each of its `instants`, if any.

        Rows are in order, with time, actor (the sender) and type. Only these rows of the trace are in memory.
        None if the run kept no messages, to distinguish it from a run without messages.
        """
        if not self.has_messages:
            return None
        names = [self.clients[client] for client in clients]
        peers = np.repeat(np.array(names, object), [len(each) for each in instants])
        wanted = pl.DataFrame(
            {"peer": peers, "time": np.concatenate([[], *instants])}, {"peer": pl.String, "time": pl.Float64}
        )
        arrived = self._table("events").with_row_index("row").filter(event="delivered")
        rows = arrived.select("row", "time", "peer", "actor", "type").join(
            wanted.lazy(), on=["peer", "time"], how="semi"
        )
        found = rows.collect(engine="streaming").sort("row")
        last = found.unique(["peer", "time"], keep="last", maintain_order=True)
        parts, nothing = last.partition_by("peer", as_dict=True), last.clear()
        return [parts.get((name,), nothing) for name in names]

    def intervals(self, state: str, clients: Sequence[int]) -> list[NDArray[np.float64]] | None:
        """Return, for each of `clients`, its intervals [K, 2] (start_s, end_s) in a state, ascending.

        None if the run recorded no intervals of devices, to distinguish it from a run with idle devices.
        """
        if not self._has_intervals:
            return None
        if not clients:
            return []
        names = pl.Series([self.clients[client] for client in clients], dtype=pl.String)
        rows = self._table("intervals").filter(pl.col("actor").is_in(names.to_list()), state=state)
        frame = rows.sort("start").collect()
        owner = frame["actor"].cast(pl.String).replace_strict(names, range(len(names)), return_dtype=pl.Int64)
        order = np.argsort(owner.to_numpy(), kind="stable")
        ends = np.cumsum(np.bincount(owner.to_numpy(), minlength=len(names)))
        return np.split(frame.select("start", "end").to_numpy()[order], ends[:-1])

    @cached_property
    def busy_s(self) -> NDArray[np.float64] | None:
        """Time (s) in which each client's device was busy with jobs [N]; None if not recorded."""
        spans = self.intervals("busy", range(len(self.clients))) or ()
        return np.array([np.diff(each).sum() for each in spans]) if any(map(len, spans)) else None

    @cached_property
    def device_s_per_step(self) -> NDArray[np.float64] | None:
        """Device time (s) per step or gradient of each client [N], NaN without steps; None if unknown."""
        steps, gradients = self.last("training_steps"), self.last("gradients")
        if steps is not None and gradients is not None:
            steps = steps + gradients
        if steps is None or self.busy_s is None or not (steps > 0).any():
            return None
        return np.divide(self.busy_s, steps, out=np.full(len(steps), np.nan), where=steps > 0)

    @cached_property
    def coalition_rows(self) -> list[tuple[Any, ...]]:
        """Rows of the table of coalitions; empty if the method forms none."""
        has_any = self._directory.has("coalitions")
        return self._table("coalitions").collect().rows() if has_any else []

    @cached_property
    def graph_times(self) -> NDArray[np.float64]:
        """Times at which the graph was recorded, ascending."""
        rows = self._table("graph").select(pl.col("time").unique().sort())
        return rows.collect()["time"].to_numpy()

    def snapshot_times(self, most: int) -> NDArray[np.float64]:
        """Return up to `most` evenly spaced times of the graph, with the first and the last."""
        return self.graph_times[evenly_spaced_positions(len(self.graph_times), most)]

    def snapshot(self, time_s: float) -> Snapshot:
        """Return the learned graph at one of its times."""
        frame = self._table("graph").filter(pl.col("time") == time_s).collect()
        source, target = (frame[end].to_numpy().astype(np.int64) for end in ("source", "target"))
        return Snapshot(source, target, frame["weight"].to_numpy())


def _sum_over_sessions(counts: NDArray[np.float64]) -> float:
    """Return the sum of the last counts of all sessions; a falling count marks a new session from 0."""
    ended = counts[:-1][np.diff(counts) < 0]
    return float(ended.sum() + counts[-1]) if counts.size else 0.0


def evenly_spaced_positions(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of the positions 0 .. count-1, evenly spaced, with the first and the last."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))
