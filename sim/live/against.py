"""Comparison of a live run with the simulation of the same scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import spearmanr

from sim.core.simulation import Simulation
from sim.live.loop import CAP_S
from sim.results.metrics import Metrics
from sim.run.setup.builder import building_process
from sim.scenario.scenario import Scenario
from sim.scenario.sections.devices import DeviceOverride, Devices

OTHER_SPEEDS = (0.99, 0.995, 1.005, 1.01)
"""Slowdowns of all devices in the simulations that estimate chance differences."""
ITERATIONS_MOST, CLIENT_MOST = 0.01, 0.02
"""Maximum relative difference of the iterations of all clients, and of one client, from the simulation."""
RAW_MOST = 0.3
"""Maximum relative difference of step times and iterations from the prediction for a measured machine."""
CURVE_LEAST = 0.002
"""Distance of curves that is always accepted: equal steps may differ in the last bits of sums."""
MEDIAN_LATE_S, P95_LATE_S = 0.001, 0.015
_PERCENTILES = (5, 25, 50, 75, 95, 99)


@dataclass(frozen=True)
class ComparedRunData:
    """Compared data of a run.

    iterations: iterations of the clients that are up at the end. events: rows of the table of events.
    """

    metrics: Metrics
    iterations: Mapping[str, int]
    events: pl.DataFrame
    measure: str
    busy_s: Mapping[str, float]
    steps: Mapping[str, int]

    @classmethod
    def of(cls, simulation: Simulation, events: pl.DataFrame) -> ComparedRunData:
        """Return the data of an ended simulation, or of one that was filled with a live run's results."""
        clients = simulation.clients
        return cls(
            simulation.observer.metrics,
            {client.name: client.iterations for client in simulation.clients_up},
            events,
            simulation.observer.measure.name,
            {client.name: client.device.busy_s for client in clients},
            {client.name: client.work.steps + client.work.gradients for client in clients},
        )

    @property
    def latencies_s(self) -> np.ndarray:
        """Seconds from sending to delivery, for each delivered message."""
        sent = self.events.filter(pl.col("event") == "sent").select("message", start="time")
        ended = self.events.filter(pl.col("event") == "delivered").select("message", end="time")
        both = sent.join(ended, on="message")
        return (both["end"] - both["start"]).to_numpy()

    def message_s(self, process_by_actor: Mapping[str, str]) -> dict[str, float]:
        """Return the mean seconds from sending to delivery, for each pair of a sender and a receiver.

        Pairs in the same process do not count, unless `process_by_actor` is empty.
        """
        sent = self.events.filter(pl.col("event") == "sent").select("message", "actor", "peer", start="time")
        ended = self.events.filter(pl.col("event") == "delivered").select("message", end="time")
        took = (
            sent.join(ended, on="message")
            .group_by("actor", "peer")
            .agg(pl.col("end").mean() - pl.col("start").mean())
        )
        return {
            f"{actor} to {peer}": seconds
            for actor, peer, seconds in took.sort("actor", "peer").iter_rows()
            if not process_by_actor or process_by_actor.get(actor) != process_by_actor.get(peer)
        }

    @property
    def bytes_by_actor(self) -> dict[str, float]:
        """Bytes that each actor sent."""
        sent = self.events.filter(pl.col("event") == "sent")
        return dict(sent.group_by("actor").agg(pl.col("bytes").sum()).sort("actor").iter_rows())

    @property
    def by_type(self) -> dict[str, tuple[int, int]]:
        """Sent messages of each class, and their bytes."""
        sent = self.events.filter(pl.col("event") == "sent")
        rows = sent.group_by("type").agg(pl.len(), pl.col("bytes").sum()).sort("type").rows()
        return {kind: (count, length) for kind, count, length in rows}

    @property
    def wrong_sizes(self) -> int:
        """Number of messages with a size on the wire that differs from the simulator's."""
        sent = self.events.filter(pl.col("event") == "sent").select("message", "bytes")
        ended = self.events.filter(pl.col("event") == "delivered").select("message", read="bytes")
        return sent.join(ended, on="message").filter(pl.col("bytes") != pl.col("read")).height


def simulate_for_comparison(
    scenario: Scenario, data_dir: Path | None, slowdown: float = 1.0
) -> ComparedRunData:
    """Return the data of a simulation, with an optional slowdown of all devices."""
    if slowdown != 1.0:
        all_clients = tuple(range(scenario.clients.count))
        other = DeviceOverride(clients=all_clients, slowdown=slowdown)
        # Not model_copy, which keeps the cached property of the earlier overrides.
        settings = dict(scenario.devices) | {"override": (*scenario.devices.override, other)}
        devices = Devices.model_construct(**settings)
        scenario = replace(scenario, devices=devices)
    kept = scenario.run.model_copy(update={"keep_messages": True, "compare_alone": False})
    with building_process(replace(scenario, run=kept), data_dir, "cpu") as prepared:
        simulation = prepared.simulation
        simulation.run()
        table = pl.DataFrame(pl.from_arrow(simulation.trace.to_table()))
        return ComparedRunData.of(simulation, table)


def compare_with_simulation(
    live: ComparedRunData,
    scenario: Scenario,
    data_dir: Path | None,
    process_by_actor: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Compare a live run with its simulation, and with simulations of slightly slower or faster devices.

    The devices of the latter simulations are up to 1% slower or faster, which a measurement cannot
    distinguish. docs/live.md explains each key. process_by_actor: the process of each actor; message times
    are compared only between different processes.
    """
    predicted = simulate_for_comparison(scenario, data_dir)
    others = [simulate_for_comparison(scenario, data_dir, slowdown) for slowdown in OTHER_SPEEDS]
    return {
        "iterations": _iterations(predicted, live),
        "chance_iterations": [_iterations(predicted, other) for other in others],
        "step_time_s": [_step_time_s(predicted), _step_time_s(live)],
        "latency_s": {
            f"p{share}": [_percentile(each.latencies_s, share) for each in (predicted, live)]
            for share in _PERCENTILES
        },
        "bytes_by_type": _pair_by_name(predicted.by_type, live.by_type),
        "ratios": {
            "iterations": ratio(predicted.iterations, live.iterations),
            "message times": ratio(*[each.message_s(process_by_actor or {}) for each in (predicted, live)]),
            "bytes": ratio(predicted.bytes_by_actor, live.bytes_by_actor),
        },
        "wrong_sizes": live.wrong_sizes,
        "measure": live.measure,
        "curves": {
            "predicted": _curve(predicted),
            "measured": _curve(live),
            "others": [_curve(other) for other in others],
        },
        "furthest": _largest_curve_distance(_curve(predicted), _curve(live)),
        "chance_furthest": max(_largest_curve_distance(_curve(predicted), _curve(other)) for other in others),
    }


def caveat(live: Mapping[str, Any]) -> str:
    """Return sentences about what the verdicts on a live run do not show; empty for a raw run.

    live: the entry of the summary.
    """
    if live["raw"]:
        return ""
    messages, jobs = live["forgiven"]["messages"], live["forgiven"]["jobs"]
    return (
        f"Events that are less than {CAP_S:g} s late count from their planned times. Therefore, equal "
        "numbers of iterations show that the code behaves the same on sockets, but not that the modeled "
        f"times are right; --raw tests the times. Not counted as late: {messages['count']:,} messages "
        f"({messages['seconds']:.3g} s in total) and {jobs['count']:,} jobs "
        f"({jobs['seconds']:.3g} s) that were over 1 ms late."
    )


def verdicts(summary: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return (claim, finding, whether the claim holds) for each claim about a compared run.

    The list is empty if the machine was too busy.
    """
    found, live = summary["against"], summary["live"]
    if live["too_busy"]:
        return []
    if live["raw"]:
        return _raw_verdicts(found)
    total, most = found["iterations"]["all"], found["iterations"]["most"]
    late = live["delivered_late_s"] or {"median": 0.0, "p95": 0.0}
    furthest, chance = found["furthest"], found["chance_furthest"]
    return [
        ("iterations of all clients within 1%", f"{total:+.2%}", abs(total) <= ITERATIONS_MOST),
        ("iterations of each client within 2%, or one", f"{most:.2%}", found["iterations"]["fits"]),
        (
            "delivered within 1 ms of the due time at the median",
            f"{1e3 * late['median']:.2f} ms",
            late["median"] <= MEDIAN_LATE_S,
        ),
        (
            "delivered within 15 ms at the 95th percentile",
            f"{1e3 * late['p95']:.2f} ms",
            late["p95"] <= P95_LATE_S,
        ),
        ("no message with a wrong size", f"{found['wrong_sizes']}", not found["wrong_sizes"]),
        (
            f"{found['measure']} as close to the prediction as with devices 1% slower",
            f"{furthest:.4f} (chance {chance:.4f})",
            furthest <= max(chance, CURVE_LEAST),
        ),
    ]


def _raw_verdicts(found: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return the verdicts on a raw run: the quality of its prediction."""
    predicted, measured = (float(np.mean(list(each.values()))) for each in found["step_time_s"])
    step = measured / predicted - 1
    return [
        ("step times within 30%", f"{step:+.1%}", abs(step) <= RAW_MOST),
        *[_ratio_verdict(what, each) for what, each in found["ratios"].items() if each is not None],
        ("no message with a wrong size", f"{found['wrong_sizes']}", not found["wrong_sizes"]),
    ]


def _ratio_verdict(what: str, found: Mapping[str, Any]) -> tuple[str, str, bool]:
    low, high = (share - 1 for share in found["interval"])
    finding = f"{found['ratio'] - 1:+.1%}, 95% interval {low:+.1%} to {high:+.1%}"
    return f"{what} within 30%", finding, abs(found["ratio"] - 1) <= RAW_MOST


def ratio(predicted: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, Any] | None:
    """Return the ratio of measured to predicted values with common names, and its 95% interval.

    The interval comes from resampling. None if no measured value has a prediction.
    """
    both = [name for name in predicted if name in measured]
    one, other = (np.array([each[name] for name in both], float) for each in (predicted, measured))
    if not one.sum():
        return None
    draws = np.random.Generator(np.random.Philox(1)).integers(len(both), size=(2_000, len(both)))
    sums = one[draws].sum(axis=1)
    found = other[draws].sum(axis=1)[sums > 0] / sums[sums > 0]
    interval = [float(np.percentile(found, share)) for share in (2.5, 97.5)]
    return {"ratio": float(other.sum() / one.sum()), "interval": interval, "compared": len(both)}


def ranking(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Compare the rankings of several methods by their final quality.

    Returns Spearman's rank correlation, and its 95% interval over resampled methods; None for fewer than
    three methods.
    """
    if len(summaries) < 3:
        return None
    ends = [
        (each["protocol"], *[each["against"]["curves"][key][1][-1] for key in ("predicted", "measured")])
        for each in summaries
    ]
    predicted, measured = (np.array([end[column] for end in ends]) for column in (1, 2))
    draws = np.random.Generator(np.random.Philox(1)).integers(len(ends), size=(2_000, len(ends)))
    found = [
        float(spearmanr(predicted[draw], measured[draw]).statistic)
        for draw in draws
        if np.ptp(predicted[draw]) > 0 and np.ptp(measured[draw]) > 0
    ]
    return {
        "methods": ends,
        "rank_correlation": float(spearmanr(predicted, measured).statistic),
        "interval": [float(np.percentile(found, share)) for share in (2.5, 97.5)] if found else None,
    }


def _iterations(predicted: ComparedRunData, live: ComparedRunData) -> dict[str, Any]:
    """Return the relative differences of iterations: in total, and for the client with the largest
    difference.

    A client with few iterations may differ by one iteration, which may end just before or after the run.
    """
    first, second = predicted.iterations, live.iterations
    both = [name for name in first if name in second]
    total = sum(first[name] for name in both)
    shares = {name: abs(second[name] - first[name]) / max(1.0, first[name]) for name in both}
    fits = [shares[name] <= CLIENT_MOST or abs(second[name] - first[name]) <= 1 for name in both]
    return {
        "all": sum(second[name] for name in both) / total - 1 if total else 0.0,
        "most": max(shares.values(), default=0.0),
        "fits": all(fits),
        "clients": {name: [first[name], second[name]] for name in both},
    }


def _step_time_s(found: ComparedRunData) -> dict[str, float]:
    """Return each client's device time per training step or gradient."""
    return {name: found.busy_s[name] / steps for name, steps in found.steps.items() if steps}


def _percentile(values: np.ndarray, share: float) -> float | None:
    return float(np.percentile(values, share)) if len(values) else None


def _pair_by_name(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    names: Iterable[str] = dict.fromkeys([*first, *second])
    return {name: [first.get(name, (0, 0)), second.get(name, (0, 0))] for name in names}


def _curve(found: ComparedRunData) -> list[list[float]]:
    """Return pairs of a time and the mean quality at that time."""
    series = found.metrics.mean(found.measure)
    return [series.times.tolist(), series.values.tolist()]


def _largest_curve_distance(first: list[list[float]], second: list[list[float]]) -> float:
    """Return the largest distance of two curves, at common times."""
    values = dict(zip(*second, strict=True))
    shared = [abs(value - values[at]) for at, value in zip(*first, strict=True) if at in values]
    return max(shared, default=0.0)
