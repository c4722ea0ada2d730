"""Lineage of clients' models: the contributions of clients' training, by a replay of the run."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sim.core.assembly import Classes
from sim.core.lives import ClientLife, group_by_architecture
from sim.core.observer import Observer
from sim.core.personalized_models import Ensemble
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.files.journal import frames
from sim.learning.engine.functions.user_functions import Apply
from sim.learning.engine.graph.batch_operations import Gradient
from sim.learning.engine.graph.operations import Train
from sim.learning.engine.handles import Vector
from sim.learning.engine.lineage import Lineage, Source
from sim.learning.engine.recorded import (
    PendingFactor,
    RecordedEngine,
    RecordedTerms,
    recorded_terms,
    training_steps,
)
from sim.learning.engine.replay_log import logged_factors
from sim.results.store.output_dir import READS
from sim.run.resume.explain import start_replay_of_run

Shown = Sequence[Mapping[str, Ensemble]] | None
WINDOWS = 8
_NUMBERS_AT_ONCE = 20_000_000  # weights in memory
TRAINING, START, GIVEN, COMPUTED = "training", "start", "given", "computed"
"""Kinds of sources: training of a client, initial models, values that a method gave, results of functions."""
SCHEMA = {
    "time": pl.Float64,
    "client": pl.Int64,
    "kind": pl.String,
    "source": pl.String,
    "source_client": pl.Int64,
    "from": pl.Float64,
    "to": pl.Float64,
    "weight": pl.Float64,
    "share": pl.Float64,
}


@dataclass(frozen=True)
class ModelAtTime:
    """Model of a client at a virtual time."""

    time_s: float
    client: int
    terms: RecordedTerms


@dataclass(frozen=True)
class RunLineage:
    """Sources of the models of a run.

    sources: one row per model, source, and window of time in which training began. weight: for training, the
    sum of |coefficient| times training steps; otherwise |coefficient|. share: part of the weights of all
    training that began in this window; null for other sources. reads: number of jobs that depend on other
    vectors in an unknown way, by reason and client; shares leave these dependencies out.
    """

    sources: pl.DataFrame
    reads: dict[tuple[str, str], int]
    names: tuple[str, ...]
    clusters: tuple[int, ...] | None


def lineage_of(
    path: Path,
    time_s: float | None = None,
    client: int | str | None = None,
    *,
    windows: int = WINDOWS,
    recent_s: float | None = None,
    data_dir: Path | None = None,
    code: bool = True,
    notice: Callable[[str], None] | None = None,
) -> RunLineage:
    """Return the sources of models of a run, for one client or all, at one time or at all evaluations.

    windows: number of equal windows of time in which training began. recent_s: instead, one window of this
    length before each model. Raises UserError like `start_replay_of_run`, and at a time without an evaluation
    if the method's `evaluated` reads values that the log lacks.
    """
    classes = Classes(engine=RecordedEngine, simulation=SimulationWithModels)
    with start_replay_of_run(path, data_dir=data_dir, code=code, notice=notice, classes=classes) as replay:
        simulation = replay.simulation
        engine, observer = simulation.engine, simulation.observer
        assert isinstance(engine, RecordedEngine) and isinstance(observer, EvaluatedModelsObserver)
        number = None if client is None else replay.client(client).index
        engine.now = simulation.loop.time
        end_s = (replay.planned_end_s or 0.0) if time_s is None else time_s
        replay.run_until(end_s)
        observer.note_last(at_end=time_s is None and replay.end_s is not None)
        if (failure := getattr(engine.read_log, "failure", None)) is not None:
            raise UserError(
                f"{path}: the method's evaluated() reads values that the log does not have at {end_s:g} s; "
                f"use the time of an evaluation: {', '.join(f'{each:g} s' for each in observer.times)}"
            ) from failure
        if time_s is not None:
            observer.moments = [each for each in observer.moments if each.time_s == time_s]
        moments = [each for each in observer.moments if number in (None, each.client)]
        return trace_model_sources(
            simulation, moments, logged_factors(frames(replay.folder / READS)), windows, recent_s
        )


class EvaluatedModelsObserver(Observer):
    """Observer that notes each evaluated model, without references to vectors.

    The model is the first one that the method's `evaluated` returns, if the method defines it; for an
    ensemble, the weighted sum of its models.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.moments: list[ModelAtTime] = []

    @property
    def times(self) -> list[float]:
        """Virtual times of the evaluations."""
        return sorted({each.time_s for each in self.moments})

    def note_last(self, *, at_end: bool) -> None:
        """Note the models of all clients that are up, unless they were evaluated at this time.

        at_end: True at the end of a run. The models are then evaluated, and the values read are logged.
        """
        now = self._loop.time()
        if self.moments and self.moments[-1].time_s == now:
            return
        if at_end:
            self.evaluate(at_end=True)
            return
        up = [client for client in self.by_name.values() if client.up and client.actor is not None]
        for clients in group_by_architecture(up):
            self._note(now, clients, [client.params for client in clients], self._shown(clients))

    def _evaluate_alike(
        self,
        now: float,
        clients: Sequence[ClientLife],
        params: Sequence[Vector],
        chosen: Container[int],
        again: bool,
        shown_by: Callable[[Sequence[ClientLife]], Shown],
    ) -> None:
        shown: Shown = None

        def noted(measured: Sequence[ClientLife]) -> Shown:
            nonlocal shown
            shown = shown_by(measured)
            return shown

        super()._evaluate_alike(now, clients, params, chosen, again, noted)
        measured = [pair for pair in zip(clients, params, strict=True) if pair[0].index in chosen]
        self._note(now, [client for client, _ in measured], [model for _, model in measured], shown)

    def _note(
        self, now: float, clients: Sequence[ClientLife], params: Sequence[Vector], shown: Shown
    ) -> None:
        for position, (client, model) in enumerate(zip(clients, params, strict=True)):
            ensemble = ((1.0, model),) if shown is None else next(iter(shown[position].values()))
            self.moments.append(ModelAtTime(now, client.index, _terms_of(ensemble)))


class SimulationWithModels(Simulation):
    """Simulation whose observer notes the evaluated models."""

    observed_by = EvaluatedModelsObserver


def _terms_of(ensemble: Ensemble) -> RecordedTerms:
    """Return the terms of an ensemble's weighted sum; arithmetic on its vectors would create vectors."""
    terms = []
    for share, model in ensemble:
        for owner, factor in recorded_terms(model.terms):
            number = factor.number if isinstance(factor, PendingFactor) else factor
            scaled = share * number
            terms.append(
                (owner, factor._replace(number=scaled) if isinstance(factor, PendingFactor) else scaled)
            )
    return tuple(terms)


def trace_model_sources(
    simulation: Simulation,
    moments: Sequence[ModelAtTime],
    factors: dict[int, float],
    windows: int = WINDOWS,
    recent_s: float | None = None,
) -> RunLineage:
    """Return the sources of models, from the records of the simulation's engine."""
    windows = windows if recent_s is None else 1
    engine = simulation.engine
    assert isinstance(engine, RecordedEngine)
    lineage, end_s = Lineage(engine.records, factors), max((each.time_s for each in moments), default=0.0)
    at_once = max(1, _NUMBERS_AT_ONCE // (windows * len(simulation.clients)))
    tables = [pl.DataFrame(schema=SCHEMA)]
    for first in range(0, len(moments), at_once):
        some = moments[first : first + at_once]
        table = _SourceWeights(simulation, engine, some, windows, end_s, recent_s)
        for source in lineage.sources([moment.terms for moment in some]):
            table.add(source)
        tables.append(table.frame())
    names = tuple([client.name for client in simulation.clients])
    reads = {
        (reason, names[client] if client >= 0 else ""): len(records)
        for (reason, client), records in sorted(lineage.reads.items())
    }
    return RunLineage(pl.concat(tables), reads, names, simulation.clusters)


class _SourceWeights:
    """Weights of sources, added up by model, client and window of time."""

    def __init__(
        self,
        simulation: Simulation,
        engine: RecordedEngine,
        moments: Sequence[ModelAtTime],
        windows: int,
        end_s: float,
        recent_s: float | None,
    ) -> None:
        """Start without sources. end_s: end of the last window. recent_s: length of a model's only window."""
        self._engine, self._moments, self._windows = engine, moments, windows
        self._names = [client.name for client in simulation.clients]
        self._end_s = end_s
        self._times = np.array([moment.time_s for moment in moments])
        self._recent_s = recent_s
        self._widths = np.array(
            [sum(owner.width for owner, _ in moment.terms[:1]) or 1 for moment in moments], dtype=float
        )
        self._training = np.zeros((len(self._names), windows, len(moments)))
        self._others: dict[tuple[str, str], np.ndarray] = {}

    def add(self, source: Source) -> None:
        share = np.abs(source.coefficients) * source.columns.length / self._widths
        if source.record is None:
            if source.owner not in self._engine.given:
                return  # zeros at which an optimizer's state starts
            kind = START if self._engine.given[source.owner] == 0 else GIVEN
            self._add_other(kind, "", share)
            return
        record = self._engine.records[source.record]
        if isinstance(record.operation, Train | Gradient):
            window = int(record.time_s / self._end_s * self._windows) if self._end_s else 0
            window = min(window, self._windows - 1)
            if self._recent_s is not None:
                share = share * (record.time_s >= self._times - self._recent_s)
            self._training[record.payload.client, window] += share * training_steps(record)
        else:
            name = type(record.operation).__name__
            if isinstance(record.operation, Apply):
                name = f"{record.operation.function.name}()"
            self._add_other(COMPUTED, name, share)

    def _add_other(self, kind: str, name: str, share: np.ndarray) -> None:
        weights = self._others.setdefault((kind, name), np.zeros(len(self._moments)))
        weights += share

    def frame(self) -> pl.DataFrame:
        totals = self._training.sum(axis=0)
        rows: list[tuple[Any, ...]] = []
        for number, (time_s, client, _) in enumerate(map(_moment_values, self._moments)):
            for (kind, name), weights in self._others.items():
                if weights[number]:
                    rows.append((time_s, client, kind, name, None, None, None, weights[number], None))
            for source, window in np.argwhere(self._training[:, :, number]):
                weight, total = self._training[source, window, number], totals[window, number]
                first, last = self._bounds(time_s, int(window))
                name = self._names[source]
                rows.append(
                    (time_s, client, TRAINING, name, int(source), first, last, weight, weight / total)
                )
        return pl.DataFrame(rows, SCHEMA, orient="row")

    def _bounds(self, time_s: float, window: int) -> tuple[float, float]:
        """Return start and end of a window of a model's training."""
        if self._recent_s is not None:
            return max(0.0, time_s - self._recent_s), time_s
        return self._end_s * window / self._windows, self._end_s * (window + 1) / self._windows


def _moment_values(moment: ModelAtTime) -> tuple[float, int, RecordedTerms]:
    return moment.time_s, moment.client, moment.terms
