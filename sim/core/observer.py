"""The observer measures clients. A measurement takes no virtual time and is invisible to clients."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from actors.supervisor import Supervisor
from sim.core.convergence import Plateau
from sim.core.divergence import Divergence
from sim.core.lives import ClientLife, group_by_architecture
from sim.core.observations import (
    check_observed_value,
    coalition_of,
    collaboration_weights,
    overrides_hook,
    remove_share_rounding,
)
from sim.core.personalized_models import Ensemble, evaluated_models, models_and_weights
from sim.core.rules import RunRules
from sim.kernel.clock import VirtualLoop
from sim.kernel.random import key
from sim.learning.engine import Engine, Scalar, Vector
from sim.learning.engine.vector_pool import LazyPoolRows
from sim.learning.evaluation import checksums_and_finite, measure_models
from sim.results.measures import ALONE, MEASURES, OWN_METRICS, measure_called, model_metric_name
from sim.results.metrics import ALL, Metrics
from sim.results.trace import Trace
from sim.world.network import SimulatedNetwork

ALWAYS = ("accuracy", "loss", "distance")  # reserved in all runs
OF_EVERY_CLIENT = ("iterations", "models_at_start")  # reported by coterie's code


def _require_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"observe({name!r:.60}, ...): the name must be text, not {type(name).__name__}")
    return name


def _name_taken_error(name: str, whose: str) -> TypeError:
    return TypeError(f"observe({name!r}): {whose} itself; choose another name, such as my_{name}")


def _require_free(name: str, evaluated: Sequence[str]) -> None:
    """Reject names that the observer or coterie's code uses. evaluated: names of the measured metrics."""
    own = {*OWN_METRICS, *ALWAYS, *evaluated, *[measure.name + ALONE for measure in MEASURES]}
    if name in own or name.partition("_of_")[0] in own:
        raise _name_taken_error(name, "coterie measures that")
    if name in OF_EVERY_CLIENT:
        raise _name_taken_error(name, "coterie records that")


class Observer:
    """Measures the clients, and records results in `metrics` and `trace`.

    by_name: clients by name; empty before the start. servers: names of the servers.
    """

    def __init__(
        self,
        rules: RunRules,
        loop: VirtualLoop,
        network: SimulatedNetwork,
        engine: Engine,
        supervisor: Supervisor,
        trace: Trace,
        reported: Callable[[float], None] | None,
        evaluated: Callable[[], object],
    ) -> None:
        """reported: called with reported iterations. evaluated: called after each evaluation."""
        self.metrics = Metrics()
        self.divergence = Divergence()
        self.models: dict[str, None] = {}  # names of models of clients that have several
        self.by_name: Mapping[str, ClientLife] = {}
        self.servers: Sequence[str] = ()
        self.at_end = False
        """True during and after the evaluation at the end of the run."""
        self._rules = rules
        self._loop = loop
        self._network = network
        self._engine = engine
        self._supervisor = supervisor
        self._trace = trace
        self._reported = reported
        self._tell_evaluated = evaluated
        # By actor and name: sum and count since the last evaluation, and True for coterie's values.
        self._reports: dict[tuple[str, str], list[Any]] = {}
        self._by_coterie: dict[tuple[str, str], bool] = {}  # by actor and name: True for coterie's values
        self.converged_s: float | None = None
        self.evaluated = list(rules.metrics)
        self.measure = measure_called(self.evaluated[0])
        """First metric of the run, which compares models."""
        higher = self.measure.higher_is_better
        converged = rules.converged
        self._plateau = None if converged is None else Plateau(converged, higher_is_better=higher)
        self._evaluated_s = -1.0
        # By architecture: the last measurement (clients, models, objective), and its values.
        self._latest: dict[str, tuple[object, Mapping[str, np.ndarray]]] = {}
        self._left: list[ClientLife] = []  # up at the last evaluation and not measured
        self._evaluations = 0
        self._first_checksums: dict[str, int] = {}
        self.models_changed: bool | None = None
        """True if an evaluation found any model changed. None before a second evaluation, and for methods
        that override `evaluated`."""

    def observe(self, actor: str, name: str, value: float) -> None:
        """Record a value that a method reports, for its mean. Raises TypeError for reserved names."""
        entry = self._reports.get((actor, name))
        if entry is None or entry[2]:
            _require_free(_require_name(name), self.evaluated)
            self._begin_mean(actor, name, value, by_coterie=False)
        else:
            entry[0] += value if type(value) is float else check_observed_value(name, value)
            entry[1] += 1

    def report(self, actor: str, name: str, value: float) -> None:
        """Record a value from coterie's own code, for the mean of the values with this name.

        Values of `iterations` are passed on instead. Raises TypeError for a name that the method also
        reports, because the mean would mix the values of both.
        """
        # A short path, as every message may cause a report.
        if name == "iterations":
            if self._reported is not None:
                self._reported(value)
            return
        entry = self._reports.get((actor, name))
        if entry is None or not entry[2]:
            self._begin_mean(actor, name, value, by_coterie=True)
        else:
            entry[0] += value if type(value) is float else check_observed_value(name, value)
            entry[1] += 1

    def _begin_mean(self, actor: str, name: str, value: float, *, by_coterie: bool) -> None:
        pair = (actor, name)
        if self._by_coterie.setdefault(pair, by_coterie) != by_coterie:
            raise _name_taken_error(name, "coterie records that")
        self._reports[pair] = [check_observed_value(name, value), 1, by_coterie]

    def _record_reports(self, now: float) -> None:
        """Record the means of reported values, by actor; values of methods come before coterie's."""
        order = {name: index for index, name in enumerate([*self.by_name, *self.servers])}
        reports, self._reports = self._reports, {}
        for actor, name in sorted(reports, key=lambda key: (order[key[0]], reports[key][2])):
            total, count, _ = reports[actor, name]
            self.metrics.add(now, actor, name, total / count)

    def evaluate_every(self, time_s: float) -> None:
        """Evaluate at each multiple of the interval from `time_s` until before the end.

        Without an interval, evaluate once, at `time_s`.
        """
        every_s = self._rules.evaluate_every_s
        end_s = self._rules.duration_s or math.inf

        def evaluate(number: int) -> None:
            self.evaluate()
            if every_s is not None:
                next_s = (number + 1) * every_s  # multiples rather than sums, which would drift
                if next_s < end_s and not math.isclose(next_s, end_s):
                    self._loop.call_at_observer(next_s, evaluate, number + 1)

        first = math.ceil(time_s / (every_s or math.inf))
        self._loop.call_at_observer(max(time_s, first * (every_s or 0.0)), evaluate, first)

    @property
    def has_measured(self) -> bool:
        """True after an evaluation of models other than the initial ones."""
        return self._evaluations > 1

    def evaluate(self, *, at_end: bool = False) -> None:
        """Measure the clients that are up: the drawn share that the rules set, or all at the end."""
        now = self._loop.time()
        self.at_end = at_end
        if now == self._evaluated_s:
            if at_end and self._left:
                self._evaluate_models(now, self._left, {client.index for client in self._left}, again=True)
            return
        self._evaluated_s = now
        up = [client for client in self.by_name.values() if client.up and client.actor is not None]
        if up:
            chosen = {client.index for client in (up if at_end else self._drawn(up))}
            self._left = [client for client in up if client.index not in chosen]
            self._evaluate_models(now, up, chosen)
            self._record_graph(now, up)
            self._record_coalitions(now, up)
        self._record_reports(now)
        iterations = [client.iterations for client in up]
        self.metrics.add_all(now, [client.name for client in up], "iterations", iterations)
        counts = self._network.counts
        computes = [client.compute for client in self.by_name.values()]
        totals = {
            "alive": len(up),
            "bytes_sent": counts.bytes,
            "messages_sent": counts.sent,
            # Work of all clients, as the cost of the measured accuracy.
            "steps_taken": sum([compute.training_steps for compute in computes]),
            "flops": sum([compute.flops for compute in computes]),
        }
        for name, total in totals.items():
            self.metrics.add(now, ALL, name, total)
        self._evaluations += 1
        if self._plateau is not None and self.converged_s is None:
            latest = self.metrics.latest(self.measure.name)
            if self._plateau.reached(now, {client.name: latest[client.name] for client in up}):
                self.converged_s = now
                if not at_end:  # a stopped loop would apply it to its next run
                    self._loop.stop()
        if not at_end:  # a resumed run does not repeat the evaluation at the end of an interrupted run
            self._engine.read_log.evaluated(now, self._trace.hash)
        self._tell_evaluated()

    def _drawn(self, up: list[ClientLife]) -> list[ClientLife]:
        """Draw the clients to measure, from a random stream that only this evaluation uses."""
        rules, number = self._rules, self._evaluations
        count = max(1, round(rules.evaluate_share * len(up)))
        if count == len(up):
            return up
        return sorted(up, key=lambda client: key(rules.seed, "evaluated", number, client.index))[:count]

    def _evaluate_models(
        self, now: float, up: Sequence[ClientLife], chosen: Container[int], *, again: bool = False
    ) -> None:
        """Check all models, and measure the models of `chosen`. again: True if they are checked already."""
        for clients in group_by_architecture(up):
            self._evaluate_alike(
                now, clients, [client.params for client in clients], chosen, again, self._shown
            )

    def _shown(self, clients: Sequence[ClientLife]) -> Sequence[Mapping[str, Ensemble]] | None:
        """Return the models to measure if a method overrides `evaluated`; None otherwise."""
        return evaluated_models(clients, self._supervisor, predict=self.measure.name != "distance")

    def _evaluate_alike(
        self,
        now: float,
        clients: Sequence[ClientLife],
        params: Sequence[Vector],
        chosen: Container[int],
        again: bool,
        shown_by: Callable[[Sequence[ClientLife]], Sequence[Mapping[str, Ensemble]] | None],
    ) -> None:
        """Evaluate clients with the same architecture. params: their models."""
        rows = self._engine.held(params)
        checked = self._engine.read_measurement(partial(checksums_and_finite, rows))
        finite = checked["finite"]
        if not again:
            judged_by_own = not overrides_hook(clients, "evaluated")
            for client, value in zip(clients, checked["checksums"].tolist(), strict=True):
                self._trace.checksum(now, client.name, value)
                if client.name not in self._first_checksums:
                    self._first_checksums[client.name] = value
                elif judged_by_own:
                    changed = value != self._first_checksums[client.name]
                    self.models_changed = bool(self.models_changed) or changed
        positions = [position for position, client in enumerate(clients) if client.index in chosen]
        if len(positions) < len(clients):
            self.divergence.check(now, [client.name for client in clients], finite, {}, finite)
            clients, rows = [clients[position] for position in positions], rows.of(positions)
            finite = finite[positions]
        if not clients:
            return
        numbers = [client.index for client in clients]
        shown = shown_by(clients)
        if shown is None:
            measured = self._measured_if_changed(clients, rows)
        else:
            first = [next(iter(models.values())) for models in shown]
            measured = self._measured(clients, *models_and_weights(self._engine, first))
        names = [client.name for client in clients]
        tested = self._engine.data.test.counts[numbers] > 0
        self.divergence.check(now, names, finite, measured, tested)
        for name, values in measured.items():
            self.metrics.add_all(now, names, name, values.tolist())
        if shown is not None:
            self._measure_by_name(now, clients, shown)

    def _measure_by_name(
        self, now: float, clients: Sequence[ClientLife], shown: Sequence[Mapping[str, Ensemble]]
    ) -> None:
        """Measure each model of clients that have several, and record it under its name."""
        names = [name for models in shown if len(models) > 1 for name in models]
        for model in dict.fromkeys(names):
            self.models[model] = None
            pairs = zip(clients, shown, strict=True)
            having = [(client, models[model]) for client, models in pairs if model in models]
            owners = [client for client, _ in having]
            ensembles = [ensemble for _, ensemble in having]
            measured = self._measured(owners, *models_and_weights(self._engine, ensembles))
            for name, values in measured.items():
                self.metrics.add_all(
                    now, [client.name for client in owners], model_metric_name(name, model), values.tolist()
                )

    def _measured_if_changed(
        self, clients: Sequence[ClientLife], rows: LazyPoolRows
    ) -> Mapping[str, np.ndarray]:
        """Measure one model of each client; return the last values if these models were measured last.

        All models are measured if any has changed: the last bits of a value may depend on the other models.
        """
        settings = clients[0].compute.settings
        models = [client.index for client in clients], rows.serials, settings.objective
        latest = self._latest.get(settings.architecture.key)
        if latest is None or latest[0] != models or self._rules.own_metrics:
            latest = models, self._measured(clients, rows)
            self._latest[settings.architecture.key] = latest
        return latest[1]

    def _measured(
        self, clients: Sequence[ClientLife], rows: Tensor | LazyPoolRows, shares: Tensor | None = None
    ) -> dict[str, np.ndarray]:
        """Measure one model or ensemble of each client. All have the same architecture."""
        numbers = [client.index for client in clients]
        task, first = self._rules.task, clients[0].compute.settings
        kernel = self._engine.kernel(first.architecture, first.objective)  # in the engine's precision
        data, own, workers = self._engine.data, self._rules.own_metrics, self._engine.workers
        names = [name for name in self.evaluated if name not in {each.name for each in own}]
        return self._engine.read_measurement(
            lambda: measure_models(
                task, kernel, rows, data.test, numbers, shares, names, data.others, workers, own
            )
        )

    def _record_graph(self, now: float, up: Sequence[ClientLife]) -> None:
        of_clients = [
            (client, collaboration_weights(client, self.by_name, self._supervisor))
            for client in (up if overrides_hook(up, "weights") else ())
        ]
        numbers = iter(self._numbers([weight for _, found in of_clients for weight in found.values()]))
        for client, found in of_clients:
            weights: Mapping[str, float] = {peer: next(numbers) for peer in found}
            if client.actor is not None and getattr(client.actor, "weights_are_shares", False):
                weights = remove_share_rounding(weights)
            for peer, weight in weights.items():
                self.metrics.graph(now, client.index, self.by_name[peer].index, weight)

    def _numbers(self, weights: Sequence[float | Scalar]) -> list[float]:
        """Return weights as numbers; those of the engine are read at once."""
        scalars = [weight for weight in weights if isinstance(weight, Scalar)]
        if not scalars:
            return [float(weight) for weight in weights]
        rows = self._engine.held(scalars)
        read = self._engine.read_measurement(lambda: {"weights": rows[:][:, 0].cpu().numpy()})
        values = iter(read["weights"].tolist())
        return [next(values) if isinstance(weight, Scalar) else float(weight) for weight in weights]

    def _record_coalitions(self, now: float, up: Sequence[ClientLife]) -> None:
        for client in up if overrides_hook(up, "coalition") else ():
            found = coalition_of(client, self.by_name, self._supervisor)
            if found is not None:
                members = [self.by_name[member].index for member in found.members]
                self.metrics.coalition(now, client.index, members, found.since, found.losses)
