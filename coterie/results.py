"""Results of a run in Python: tables, curves, figures, and trained models."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from coterie import preview
from coterie.arguments import client_of, folder_of, index_of, seconds, text_of
from protocols.framework.client import Client
from sim.errors import UserError
from sim.results.evaluations import Evaluation, evaluations
from sim.results.report import curves
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.view import RunView
from sim.run.resume.client_samples import test_samples_of_client
from sim.run.resume.exploring import explore_run
from sim.run.resume.lineage import lineage_of
from sim.run.resume.trained_models import TrainedModel, trained_models
from sim.world.participants import client_number

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import torch


class Run:
    """Results of a run: tables as polars data frames (use `.to_pandas()` for pandas), read on first use.

    A notebook shows its headline numbers, the main metric over time, and the graph.
    """

    def __init__(self, directory: Path | str) -> None:
        """Raise UserError for a folder that has no results, or damaged ones."""
        self.directory = folder_of(directory, "directory")
        """Folder of the results."""
        self._results: RunDirectory = load_checked(self.directory)
        self._view = RunView(self._results)
        self._method: type[Client] | None = None  # if the run was given a class
        self._kept: tuple[tuple[float | None, str | None], dict[str, TrainedModel]] | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """Content of summary.json: accuracies, messages, bytes, virtual and real time, failures."""
        return self._view.summary

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """Measurements: columns `time` (virtual seconds), `actor`, `name`, `value`."""
        return self._table("metrics")

    @cached_property
    def graph(self) -> pl.DataFrame:
        """Collaboration graph over time; empty for methods that learn none."""
        return self._table("graph")

    @cached_property
    def events(self) -> pl.DataFrame:
        """Messages, and events of clients and servers, in order."""
        return self._table("events")

    @cached_property
    def intervals(self) -> pl.DataFrame:
        """Intervals in which the device of a client or server was busy or down; virtual seconds."""
        return self._table("intervals")

    @property
    def evaluations(self) -> list[Evaluation]:
        """Results of each evaluation, as `on_evaluation` receives them."""
        return list(evaluations(self._results))

    @property
    def scenario(self) -> str:
        """Scenario with all defaults, as TOML."""
        return self._view.scenario_text

    @property
    def report(self) -> Path:
        """Path of the report, a page that needs no network."""
        return self.directory / "report.html"

    def curve(self, metric: str | None = None) -> pl.DataFrame:
        """Return a metric over virtual time: columns `time`, `mean`, `low` and `high`.

        metric: a name in `metrics`; None for the main metric. mean, low, high: the mean, and the 10% and 90%
        quantiles, over the clients with a finite value; for a metric of servers or of the whole run, over its
        values. Raises UserError for an unknown name.
        """
        name = self._metric(metric)
        rows = self.metrics.filter(pl.col("name") == name, pl.col("value").is_finite())
        of_clients = rows.filter(pl.col("actor").is_in(list(self._view.clients)))
        value, rows = pl.col("value"), rows if of_clients.is_empty() else of_clients
        return (
            rows.group_by("time")
            .agg(
                mean=value.mean(),
                low=value.quantile(0.1, "linear"),
                high=value.quantile(0.9, "linear"),
            )
            .sort("time")
        )

    def plot(self, metric: str | None = None) -> go.Figure:
        """Return the report's figure of a metric over virtual time, as a plotly figure.

        metric: a name in `metrics` of clients or servers; None for the main metric. Raises UserError for an
        unknown name.
        """
        import plotly.graph_objects as go

        name, view = self._metric(metric), self._view
        measures = {
            each.name: (each, panel)
            for each, panel in [*([view.measure] if view.measure else []), *view.others]
        }
        if metric is None or (view.measure is not None and name == view.measure[0].name):
            figure = curves.progress_over_time(view)
        elif name in measures:
            figure = curves.measure_curve(view, *measures[name])
        else:
            figure = next(
                (curves.observation_curve(view, name, *each) for each in view.observations(name)), None
            )
        if figure is None:
            raise UserError(
                f"metric = {name!r}: has no values of clients or servers; `curve` returns its values"
            )
        return go.Figure(data=figure.data, layout=figure.layout)

    def _metric(self, metric: str | None) -> str:
        """Return the name of a metric of the run, by default the main one. Raises UserError."""
        name, measure = text_of(metric, "metric"), self._view.measure
        if name is None and measure is not None:
            return measure[0].name
        names = self.metrics["name"].unique(maintain_order=True).to_list()
        if not names:
            asked = "" if name is None else f"metric = {name!r}: "
            raise UserError(f"{asked}the run has no metrics")
        if name is None or name not in names:
            raise UserError(f"metric = {name!r}: must be one of the run's metrics: {', '.join(names)}")
        return name

    def lineage(
        self, client: int | str | None = None, at: float | str | None = None, *, windows: int = 8
    ) -> pl.DataFrame:
        """Replay the run, and return the contribution of each client's training to the clients' models.

        client: its number or name; None for all clients. at: virtual time, in seconds or as a string such as
        "20 s"; None for all evaluations. One row per model, source and period: `time` and `client` of the
        model; `kind` (training, start, given or computed), `source` and `source_client`; `from` and `to`, the
        period in which the training began (one of `windows` equal periods); `weight`, the sum of the updates'
        absolute coefficients in the model times their training steps; and `share`, the part of this weight in
        all weights of the period. Raises UserError for a run that cannot be replayed.
        """
        time_s = None if at is None else seconds(at, "at")
        which = None if client is None else client_of(client)
        return lineage_of(self.directory, time_s, which, windows=index_of(windows, "windows", 1)).sources

    def explore(
        self,
        at: float | str | None = None,
        client: int | str | None = None,
        *,
        beside: Run | str | Path | None = None,
    ) -> Path:
        """Write explore.html, a page in which you step through the run, and return its path.

        at: virtual time that the page shows first, in seconds or as a string such as "20 s". client: number
        or name of the client that the page shows first. beside: a second run with the same past, such as a
        fork of this run, which the page shows beside it; the page is then in the second run's folder. Replays
        the runs; the copy of your code in the results is executed.
        """
        time_s = None if at is None else seconds(at, "at")
        which = None if client is None else client_of(client)
        other = beside.directory if isinstance(beside, Run) else beside
        return explore_run(
            self.directory, at_s=time_s, client=which, beside=None if other is None else Path(other)
        )

    def state_dict(
        self, client: int | str, at: float | str | None = None, *, model: str | None = None
    ) -> dict[str, torch.Tensor]:
        """Return the parameters and buffers of a client's model, with the names of its torch module.

        client: its number or name. at: virtual time, in seconds or as a string such as "20 s"; None for the
        end of the run. model: name of the model, for methods with several models for each client; by default
        the first one. The models of all clients are computed again from the last checkpoint at or before that
        time, and kept for further calls with the same time and `model`. Raises UserError if they differ from
        the run's, or if the client has no model.
        """
        return self._trained(client, at, model).state()

    def model(
        self, client: int | str, at: float | str | None = None, *, model: str | None = None
    ) -> torch.nn.Module:
        """Return a client's model as the torch module that your code creates, in evaluation mode.

        The arguments are as for `state_dict`.
        """
        return self._trained(client, at, model).module()

    def predict(
        self, client: int | str, inputs: Any, at: float | str | None = None, *, model: str | None = None
    ) -> np.ndarray:
        """Return the outputs of a client's model: scores of each class, or predicted numbers, [samples, ...].

        inputs: an array [samples, ...] of samples as the model receives them in the run, after normalization.
        The other arguments are as for `state_dict`.
        """
        return self._trained(client, at, model).outputs(inputs)

    def test_samples(self, client: int | str) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples on which the run evaluates a client: inputs [samples, ...] and targets.

        client: its number or name. The inputs are normalized, and the classes have the client's labels, as in
        the run, so `predict` accepts the inputs. The data set is read again. Raises UserError if it has
        changed since the run.
        """
        number = client_number(client_of(client), self._view.clients, "client =")
        return test_samples_of_client(self.directory, number, method=self._method)

    def _trained(self, client: int | str, at: float | str | None, model: str | None) -> TrainedModel:
        """Return a client's model; the models of all clients at the last requested time are kept."""
        wanted = client_number(client_of(client), self._view.clients, "client =")
        time_s = None if at is None else seconds(at, "at")
        key = time_s, text_of(model, "model")
        if self._kept is None or self._kept[0] != key:
            found = trained_models(self.directory, time_s=time_s, name=key[1], method=self._method)
            self._kept = key, {each.client: each for each in found}
        models, name = self._kept[1], self._view.clients[wanted]
        if name not in models:
            others = ", ".join(models) or "none"
            raise UserError(f"{name} has no model at that time; clients with a model: {others}")
        return models[name]

    def _table(self, name: str) -> pl.DataFrame:
        return self._results.scan(name).collect()

    def __repr__(self) -> str:
        return f"<Run {self.directory.name}: {preview.headline(self._view)}>"

    def _repr_html_(self) -> str:
        return preview.page(self._view)


class RunFailed(RuntimeError):
    """Error: clients or servers of the run failed, or all models diverged. The results are kept."""

    directory: Path
    """Folder of the results."""

    @property
    def run(self) -> Run:
        """Results of the run."""
        return Run(self.directory)
