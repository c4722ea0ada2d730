"""Contents of summary.json for an ended run."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import polars as pl

from actors.status import ActorStatus
from actors.supervisor import Failure, failures_in_short
from protocols.framework.node import AreYouThere
from protocols.membership.view import MembershipMessage
from sim.core.budget import Work
from sim.core.simulation import Simulation
from sim.results.measures import VALIDATION_LOSS, Measure, measure_called, model_metric_name, own_measures
from sim.results.metrics import (
    ALL,
    EDGE_THRESHOLD,
    Series,
    accuracy_summary,
    bytes_to_target,
    gain_summary,
    graph_summary,
    share_better,
    time_to_target,
    weights_over_largest,
)
from sim.results.population import (
    ARRIVALS,
    DEPARTURES,
    LifecycleEvent,
    Population,
    metric_panel,
    settled_summary,
)
from sim.run.energy.meter import JOULES
from sim.scenario.scenario import Scenario
from sim.world.network import Counts

_COUNTS_MAX = 100_000  # counts of samples by class and client in a summary


def summarise(
    scenario: Scenario,
    simulation: Simulation,
    alone: dict[str, float] | None,
    wall_s: float,
    interrupted: bool,
) -> dict[str, Any]:
    """Return the contents of summary.json; docs/results.md explains each key."""
    # A dict keeps the order and has fast lookups.
    up = dict.fromkeys(client.name for client in simulation.clients_up)
    initial = sum(client.up_at_start for client in simulation.clients)
    summary = {
        **_of_the_run(scenario, simulation, wall_s),
        "clients": {"initial": initial, **vars(simulation.churn), "alive": len(up)},
        **_of_the_models(simulation, alone, up, scenario.run.settled_iterations),
        **_of_the_messages(simulation),
        "engine": {**_engine(simulation), "threads": scenario.engine.threads},
        "budget": budget_summary(simulation),
        "work": _work([client.work for client in simulation.clients]),
        "device_time": dict(simulation.device_seconds()),
        "clusters": simulation.clusters,
        "class_counts": _class_counts(simulation),
        "samples": [client.compute.samples for client in simulation.clients],
        "client_names": [client.name for client in simulation.clients],
        "places": None if simulation.network.positions is None else dict(simulation.network.positions),
        "rounds": _round_wait_counts(simulation),
        "population": _population(simulation),
        **_of_the_failures(simulation, up),
        "interrupted": interrupted,
        "uncounted": sorted({name for kind in simulation.architectures for name in kind.uncounted}),
        "notices": list(scenario.notices),
    }
    run, judged_by = scenario.run, simulation.observer.measure
    if run.evaluate_share < 1:
        summary["evaluate_share"] = run.evaluate_share
    if run.target_accuracy is not None:
        summary["target"] = _target(simulation, measure_called("accuracy"), run.target_accuracy)
    elif run.target is not None:
        summary["target"] = _target(simulation, judged_by, run.target)
    return summary


def _of_the_run(scenario: Scenario, simulation: Simulation, wall_s: float) -> dict[str, Any]:
    """Return the description of the run, and its duration."""
    return {
        "scenario": scenario.name,
        "protocol": scenario.protocol.label,
        "alone": scenario.protocol.alone,
        "tuned": None if scenario.tuned is None else scenario.tuned.model_dump(),
        "seed": scenario.run.seed,
        "overrides": list(scenario.overrides),
        "virtual_seconds": simulation.loop.time(),
        "planned_seconds": scenario.run.duration,
        "converged_seconds": simulation.observer.converged_s,
        "wall_seconds": wall_s,
        "trace_hash": simulation.trace.hash(),
    }


def _of_the_models(
    simulation: Simulation,
    alone: dict[str, float] | None,
    up: Collection[str],
    settled_iterations: int | None,
) -> dict[str, Any]:
    """Return the quality of the models of clients that are up, and the learned graph."""
    observer, higher = simulation.observer, simulation.observer.measure.higher_is_better
    latest = {name: observer.metrics.latest(name) for name in observer.evaluated}
    measured = {name: value for name, value in latest[observer.measure.name].items() if name in up}
    finite = {name: value for name, value in measured.items() if math.isfinite(value)}
    found: dict[str, Any] = {
        "measure": observer.measure.name,
        "accuracy": accuracy_summary(_finite(latest.get("accuracy", {}), up)),
        "models": _models(simulation, up),
        "settled": _settled_clients_quality(simulation, finite, settled_iterations)
        if observer.measure.tells_moves
        else None,
        "better_than_alone": share_better(measured, alone, higher_is_better=higher) if alone else None,
        "help": gain_summary(measured, alone, higher_is_better=higher) if alone else None,
        "graph": _graph(simulation),
        "coalitions": _coalitions(simulation),
    }
    if own := own_measures(observer.evaluated):
        found["own_measures"] = [
            {"name": each.name, "label": each.label, "higher_is_better": each.higher_is_better}
            for each in own
        ]
    for name in observer.evaluated:
        if name != "accuracy":
            values = _finite(latest[name], up)
            found[name] = {"mean": _mean(values), "clients": len(values)}
    if VALIDATION_LOSS in observer.evaluated:
        stopped = _quality_at_best_validation(simulation, up)
        found[observer.measure.name] |= {"stopped": _mean(stopped)}
    return found


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _quality_at_best_validation(simulation: Simulation, up: Collection[str]) -> list[float]:
    """Return each client's quality at the evaluation with its lowest validation loss."""
    metrics = pl.DataFrame(simulation.observer.metrics.to_table())
    losses = metrics.filter(pl.col("name") == VALIDATION_LOSS, pl.col("value").is_finite())
    least = losses.group_by("actor").agg(pl.col("time").get(pl.col("value").arg_min()))
    judged_by = metrics.filter(pl.col("name") == simulation.observer.measure.name)
    found = dict(judged_by.join(least, on=("actor", "time")).select("actor", "value").iter_rows())
    return [found[client] for client in up if math.isfinite(found.get(client, math.nan))]


def _coalitions(simulation: Simulation) -> dict[str, Any] | None:
    """Return the coalitions of clients that are up at the end, the benefit graph, and the losses.

    None for methods that form no coalitions.
    """
    metrics = simulation.observer.metrics
    names = [client.name for client in simulation.clients]
    up = {client.index for client in simulation.clients_up}
    found = {client: row for client, row in metrics.coalitions().items() if client in up}
    if not found:
        return None
    helpers: dict[int, list[int]] = {client: [] for client in found}
    for (client, helper), weight in sorted(metrics.weights().items()):
        if weight > 0 and client in helpers:
            helpers[client].append(helper)
    numbers = sorted({row["coalition"] for row in found.values()})
    members = [[client for client in sorted(found) if found[client]["coalition"] == k] for k in numbers]
    return {
        "members": [[names[client] for client in coalition] for coalition in members],
        "benefit_graph": {names[client]: [names[helper] for helper in helpers[client]] for client in helpers},
        "losses": {
            names[client]: {name: row[name] for name in ("alone", "full", "equilibrium")}
            for client, row in sorted(found.items())
        },
    }


def _models(simulation: Simulation, up: Collection[str]) -> dict[str, dict[str, float | None]] | None:
    """Return the quality of each of a client's models, by model name; None if clients have one model."""
    observer = simulation.observer
    if not observer.models:
        return None
    latest = {
        name: observer.metrics.latest(model_metric_name(observer.measure.name, name))
        for name in observer.models
    }
    return {name: accuracy_summary(_finite(values, up)) for name, values in latest.items()}


def _finite(values: Mapping[str, float], up: Collection[str]) -> list[float]:
    return [value for client, value in values.items() if client in up and math.isfinite(value)]


def _of_the_messages(simulation: Simulation) -> dict[str, Any]:
    """Return the counts of sent, lost and dropped messages."""
    counts = simulation.network.counts
    names = ("sent", "delivered", "lost", "dropped", "duplicated", "in_flight", "bytes")
    return {
        "messages": {name: getattr(counts, name) for name in names},
        "membership": _membership_traffic(counts),
        "bytes_by_type": counts.by_type,
        "loss_reasons": dict(counts.reasons),
        "mailbox_overflows": sum(
            ActorStatus(actor).overflows for actor in simulation.supervisor.running.values()
        ),
    }


def _of_the_failures(simulation: Simulation, up: Collection[str]) -> dict[str, Any]:
    failures = simulation.supervisor.failures
    return {
        "non_finite": _non_finite_models(simulation, up),
        "failed": _failed(failures),
        "failures": failures_in_short(failures),
        "failure_traceback": failures[0].traceback if failures else None,
    }


def _target(simulation: Simulation, measure: Measure, target: float) -> dict[str, float | None]:
    """Return the time at which the mean of a metric first reached the target, and the bytes sent so far."""
    metrics, sign = simulation.observer.metrics, 1 if measure.higher_is_better else -1
    times, values = metrics.mean(measure.name)
    reached = Series(times, sign * values)
    found = {
        measure.name: target,
        "seconds": time_to_target(reached, sign * target),
        "bytes": bytes_to_target(reached, metrics.series(ALL, "bytes_sent"), sign * target),
    }
    joules = metrics.series(ALL, JOULES)
    # Both are totals that grow with time.
    return found | ({"joules": bytes_to_target(reached, joules, sign * target)} if joules.times.size else {})


def _engine(simulation: Simulation) -> dict[str, Any]:
    """Return the engine's statistics, its device, and the memory of its vectors."""
    engine, statistics = simulation.engine, simulation.engine.statistics
    return {
        "jobs": statistics.jobs,
        "batches": statistics.batches,
        "mean_batch": statistics.mean_batch,
        "seconds": statistics.seconds,
        "updates": statistics.updates,
        "device": str(engine.device),
        "ways": engine.backends,
        "memory": engine.bytes_held,
        "memory_per_client": engine.bytes_held / len(simulation.clients),
    }


def _class_counts(simulation: Simulation) -> list[list[int]] | None:
    """Return each client's training samples per class; None without classes, or with very many counts."""
    clients = simulation.clients
    classes = clients[0].compute.classes
    if simulation.rules.task != "classification" or len(clients) * classes > _COUNTS_MAX:
        return None
    counts: list[list[int]] = simulation.engine.data.train.class_counts(classes)[: len(clients)].tolist()
    return counts


def budget_summary(simulation: Simulation) -> dict[str, Any] | None:
    """Return the entry of the budget; None without a budget.

    The entry contains the budget of each client, the number of clients up that have exhausted theirs, and for
    each client the time at which this happened, or None.
    """
    budget = simulation.rules.budget
    if budget is None:
        return None
    finished = sum(client.compute.spent_s is not None for client in simulation.clients_up)
    spent_s = [client.compute.spent_s for client in simulation.clients]
    return {budget.kind: budget.limit, "finished": finished, "spent_seconds": spent_s}


def _work(works: Sequence[Work]) -> dict[str, Any]:
    """Return the clients' work over all sessions, by the names of `Work`: least, mean, most, and each."""
    found = {field.name: [getattr(work, field.name) for work in works] for field in fields(Work)}
    return {
        name: {"min": min(each), "mean": sum(each) / len(each), "max": max(each), "clients": each}
        for name, each in found.items()
    }


def _failed(failures: Sequence[Failure]) -> dict[str, Any] | None:
    """Return the permanently failed actors, and the number of restarts; None without failures."""
    if not failures:
        return None
    stopped = [failure for failure in failures if failure.action == "stop"]
    first = (stopped or failures)[0]
    return {
        "stopped": list(dict.fromkeys(failure.name for failure in stopped)),
        "restarts": sum(failure.action == "restart" for failure in failures),
        "errors": len({failure.error for failure in stopped or failures}),
        "first": {
            "actor": first.name,
            "seconds": first.time_s,
            "error": first.error,
            "place": first.location,
        },
    }


def undefined_metric_lines(simulation: Simulation) -> list[str]:
    """Return a line for each metric that is undefined for the test samples of some clients.

    The area under the curve needs samples of two classes, and R^2 two samples.
    """
    observer, lines = simulation.observer, []
    for name in observer.evaluated:
        if reason := measure_called(name).undefined_if:
            values = {
                client: value
                for client, value in observer.metrics.latest(name).items()
                if client not in observer.divergence.present
            }
            without = sorted(client for client, value in values.items() if math.isnan(value))
            if without:
                who = ", ".join(without[:3]) + (", ..." if len(without) > 3 else "")
                lines.append(
                    f"{name} is undefined for {len(without)} of {len(values)} clients ({who}), whose test "
                    f"samples {reason}; its mean is over the other clients"
                )
    return lines


def _non_finite_models(simulation: Simulation, up: Collection[str]) -> dict[str, Any] | None:
    """Return the first model that was not finite, and clients that are up with one at the end, or None."""
    divergence = simulation.observer.divergence
    if (first := divergence.first) is None:
        return None
    at_end = [client for client in up if client in divergence.present]
    return {"client": first.client, "seconds": first.time_s, "found": first.found, "at_end": at_end}


def _round_wait_counts(simulation: Simulation) -> dict[str, int] | None:
    """Return the number of waits for a round's messages, and of waits without any message, or None."""
    total, in_vain = map(sum, zip(*[life.waits for life in simulation.lives], strict=True))
    return {"waits": total, "in_vain": in_vain} if total else None


def _membership_traffic(counts: Counts) -> dict[str, int | list[str]]:
    """Return the counts of membership messages."""
    # A set: a dataclass with slots creates two classes, and both are subclasses.
    names = {kind.__name__ for kind in (*MembershipMessage.__subclasses__(), AreYouThere)}
    totals = {name: total for name, total in counts.by_type.items() if name in names}
    sent, size = (sum(each) for each in zip((0, 0), *totals.values(), strict=True))
    return {"sent": sent, "bytes": size, "types": sorted(totals)}


def _population(simulation: Simulation) -> dict[str, Any] | None:
    """Return statistics on newcomers and departures; None if the quality cannot show them."""
    judged_by = simulation.observer.measure
    if not judged_by.tells_moves or simulation.rules.evaluate_share < 1:
        return None
    names = {client.name: client.index for client in simulation.clients}
    metrics = pl.DataFrame(simulation.observer.metrics.to_table()).lazy()
    panel = metric_panel(metrics, judged_by.name, list(names))
    if panel is None:
        return None
    moves = [
        LifecycleEvent(time_s, names[actor], event, detail)
        for time_s, actor, event, detail in simulation.trace.lifecycles
        if actor in names and event in ARRIVALS + DEPARTURES
    ]
    return Population(panel, moves, higher_is_better=judged_by.higher_is_better).summary()


def _settled_clients_quality(
    simulation: Simulation, measured: Mapping[str, float], least: int | None
) -> dict[str, float | None] | None:
    """Return the quality of clients that are up for long enough; None in a run without arrivals."""
    came = {actor for _, actor, event, _ in simulation.trace.lifecycles if event in ARRIVALS}
    if not any(client.name in came for client in simulation.clients):
        return None
    iterations = {client.name: client.iterations for client in simulation.clients_up}
    stayed = [name for name in iterations if name not in came]
    higher = simulation.observer.measure.higher_is_better
    return settled_summary(measured, iterations, stayed, least, higher_is_better=higher)


def _graph(simulation: Simulation) -> dict[str, float | bool | None]:
    weights = simulation.observer.metrics.weights()
    if not weights:
        return {"l1": None, "edge_precision": None, "edge_recall": None}
    up = simulation.clients_up
    actors = [client.actor for client in up if client.actor is not None]
    are_shares = any(actor.weights_are_shares for actor in actors)
    if are_shares:
        weights = weights_over_largest(weights)
    threshold = max([actor.edge_threshold for actor in actors], default=EDGE_THRESHOLD)
    members, clusters = [client.index for client in up], simulation.clusters
    found: dict[str, float | None] = {"l1": None, "edge_precision": None, "edge_recall": None}
    return {
        **(found if clusters is None else graph_summary(weights, clusters, members, threshold=threshold)),
        "edge_threshold": threshold,
        "weights_are_shares": are_shares,
    }
