"""Runs of scenarios from Python: `run`, `load`, `resume`, `fork`, and their results."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from coterie import preview
from coterie.arguments import (
    client_of,
    contents_of,
    device_of,
    flag_of,
    folder_of,
    index_of,
    method_of,
    options,
    path_of,
    refusal,
    seconds,
    seed_of,
    text_of,
)
from protocols.framework.client import Client
from sim.cli.console import ProgressLine, Terminal
from sim.core.run_hook import RunHook
from sim.errors import UserError, require_current_folder
from sim.plugins.loader import require_not_loading
from sim.results.evaluations import Evaluation, evaluations
from sim.results.frames import where_from
from sim.results.store.run_directory import RunDirectory, load_checked
from sim.results.view import RunView
from sim.run.options import RunOptions
from sim.run.resume.lineage import lineage_of
from sim.run.resume.resuming import ResumableRun
from sim.run.resume.trained_models import TrainedModel, trained_models
from sim.run.running import run_scenario
from sim.run.save.saving import RunResult
from sim.scenario.scenario import Scenario, load_contents, load_scenario
from sim.studies.cells import as_toml
from sim.studies.index import INDEX
from sim.world.participants import client_number

if TYPE_CHECKING:
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
        """Messages and events of clients, in order."""
        return self._table("events")

    @cached_property
    def intervals(self) -> pl.DataFrame:
        """Intervals in which each device was busy, with the kind of work."""
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
        """Report, a page that needs no network."""
        return self.directory / "report.html"

    def lineage(
        self, client: int | str | None = None, at: float | str | None = None, *, windows: int = 8
    ) -> pl.DataFrame:
        """Replay the run, and return whose training the clients' models consist of.

        client: its number or name; None for all clients. at: virtual time, in seconds or as a string such as
        "20 s"; None for all evaluations. One row per model, source and period: `time` and `client` of the
        model; `kind` (training, start, given or computed), `source` and `source_client`; the period `from`
        and `to` in which training began, one of `windows` equal ones; `weight`, the sum of |coefficient|
        times training steps; and `share`, its part of the period's weights. Raises UserError for a run that
        cannot be replayed.
        """
        time_s = None if at is None else seconds(at, "at")
        which = None if client is None else client_of(client)
        return lineage_of(self.directory, time_s, which, windows=index_of(windows, "windows", 1)).sources

    def state_dict(
        self, client: int | str, at: float | str | None = None, *, model: str | None = None
    ) -> dict[str, torch.Tensor]:
        """Return the parameters and buffers of a client's model, with the names of its torch module.

        client: its number or name. at: virtual time, in seconds or as a string such as "20 s"; None for the
        end of the run. model: its name, for methods with several models for each client; by default the first
        one. The models are computed again from the last checkpoint at or before that time; models of the same
        time are kept. Raises UserError if they differ from the run's, and for a client without a model.
        """
        return self._trained(client, at, model).state()

    def model(
        self, client: int | str, at: float | str | None = None, *, model: str | None = None
    ) -> torch.nn.Module:
        """Return a client's model as the torch module that your code creates, in evaluation mode.

        The arguments are those of `state_dict`.
        """
        return self._trained(client, at, model).module()

    def predict(
        self, client: int | str, inputs: Any, at: float | str | None = None, *, model: str | None = None
    ) -> np.ndarray:
        """Return the outputs of a client's model: scores of each class, or predicted numbers, [samples, ...].

        inputs: an array [samples, ...] of samples as the model receives them in the run, after normalization.
        The other arguments are those of `state_dict`.
        """
        return self._trained(client, at, model).outputs(inputs)

    def _trained(self, client: int | str, at: float | str | None, model: str | None) -> TrainedModel:
        """Return a client's model; the models of all clients at the last time are kept."""
        wanted = client_number(client_of(client), self._view.clients, "client =")
        time_s = None if at is None else seconds(at, "at")
        key = time_s, text_of(model, "model")
        if self._kept is None or self._kept[0] != key:
            found = trained_models(self.directory, time_s=time_s, name=key[1], method=self._method)
            self._kept = key, {each.client: each for each in found}
        models, name = self._kept[1], self._view.clients[wanted]
        if name not in models:
            raise UserError(f"{name} has no model at that time; clients with a model: {', '.join(models)}")
        return models[name]

    def _table(self, name: str) -> pl.DataFrame:
        return self._results.scan(name).collect()

    def __repr__(self) -> str:
        return f"<Run {self.directory.name}: {preview.headline(self._view)}>"

    def _repr_html_(self) -> str:
        return preview.page(self._view)


class RunFailed(RuntimeError):
    """Error: clients of the run failed, or all models diverged. The results are kept."""

    directory: Path
    """Folder of the results."""

    @property
    def run(self) -> Run:
        """Results of the run."""
        return Run(self.directory)


def run(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    *,
    protocol: str | type[Client] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    out: str | Path = "runs",
    overwrite: bool = False,
    device: str = "auto",
    data_dir: str | Path | None = None,
    quiet: bool = False,
    on_evaluation: Callable[[Evaluation], object] | None = None,
    hooks: Sequence[RunHook] = (),
) -> Run:
    """Run a scenario and return its results.

    scenario: the name of a known scenario, a file, or its contents as nested dicts, in which `protocol.name`
    may be a class. protocol: a method's name or class that replaces the scenario's. set: other values of
    keys, such as {"network.loss": 0.1}; None removes a key. Where a key names your code, for example
    `model.name`, its value may be the class or function, if that is defined in a file. seed: replaces
    run.seed. out: the parent of the results folder. quiet: show no progress. on_evaluation: a function that
    is called with each `Evaluation` during the run; it does not change the run. hooks: `RunHook` objects,
    which are called at more points of the run.

    A class is run as given, and the files that define it are kept with the results. Of a class that is
    defined in a notebook only its own source is kept, so that the run cannot be repeated from its folder.
    Raises UserError if the run cannot start, and RunFailed, with the results, if the run failed. An error
    that `on_evaluation` raises ends the run and is raised unchanged, with a note that names the folder of the
    results so far.
    """
    require_not_loading()
    require_current_folder()
    overrides, unset = options(set)
    seed, device, method = seed_of(seed), device_of(device), None
    quiet, overwrite = flag_of(quiet, "quiet"), flag_of(overwrite, "overwrite")
    if isinstance(protocol, str):
        overrides.append(f"protocol.name={as_toml(protocol)}")
    elif isinstance(protocol, type):
        method = protocol
    elif protocol is not None:
        raise refusal("protocol", protocol, "must be the name of a method, or its class")
    if isinstance(scenario, Scenario):
        if overrides or unset or seed is not None or method is not None:
            raise UserError("a Scenario cannot be changed; instead, pass its name, file or contents")
        loaded = scenario
    elif isinstance(scenario, Mapping):
        contents, named = contents_of(scenario)
        method = method or (named if protocol is None else None)
        loaded = load_contents(contents, overrides, seed, unset=unset, method=method)
    elif isinstance(scenario, str | Path):
        loaded = load_scenario(path_of(scenario, "scenario"), overrides, seed, unset=unset, method=method)
    else:
        raise refusal("scenario", scenario, "must be a name, a path, or the contents as a dict")
    if loaded.sweep is not None:
        raise UserError(f"{scenario} contains a sweep; run it with `coterie sweep`")
    folder, data = folder_of(out, "out"), _optional(data_dir, "data_dir")
    return _ran(
        loaded,
        quiet,
        on_evaluation,
        out=folder,
        overwrite=overwrite,
        device=device,
        data_dir=data,
        hooks=hooks,
    )


def load(directory: str | Path) -> Run:
    """Return the results of an earlier run; for a sweep use `Sweep(directory).load()`. Raises UserError."""
    if os.path.isfile(folder_of(directory, "directory") / INDEX):
        raise UserError(f"{directory} is a sweep; read its runs with coterie.Sweep(directory).load()")
    return Run(directory)


def resume(
    directory: str | Path | Run,
    *,
    until: float | str | None = None,
    protocol: type[Client] | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    quiet: bool = False,
    on_evaluation: Callable[[Evaluation], object] | None = None,
) -> Run:
    """Resume an interrupted run, or extend a finished one, as if it had never stopped.

    until: the new end in virtual time, in seconds or as a string, for example "20 min". protocol: the
    method's class, if it was defined in a notebook and is unchanged; otherwise the copy of the method in the
    results is executed. Raises as `run` does.
    """
    require_not_loading()
    device, quiet = device_of(device), flag_of(quiet, "quiet")
    earlier = ResumableRun.find(folder_of(directory, "directory"))
    changes = []
    if until is not None:
        end_s = seconds(until, "until")
        earlier.require_extensible()
        earlier.require_later(end_s)
        changes = [f"run.duration={end_s!r} s"]
    scenario = earlier.scenario(changes, method=method_of(protocol))
    earlier.require_unfinished(scenario)
    data = _optional(data_dir, "data_dir")
    return _ran(
        scenario, quiet, on_evaluation, out=earlier.path.parent, earlier=earlier, device=device, data_dir=data
    )


def fork(
    directory: str | Path | Run,
    at: float | str,
    set: Mapping[str, Any],
    *,
    protocol: type[Client] | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    quiet: bool = False,
    on_evaluation: Callable[[Evaluation], object] | None = None,
) -> Run:
    """Fork a run: repeat it until `at`, then continue with other values of keys.

    at: virtual time, in seconds or as a string, for example "20 s". protocol: as for `resume`. Raises as
    `run` does.
    """
    require_not_loading()
    device, quiet = device_of(device), flag_of(quiet, "quiet")
    earlier = ResumableRun.find(folder_of(directory, "directory"), seconds(at, "at"))
    scenario = earlier.scenario(*options(set), method=method_of(protocol))
    data = _optional(data_dir, "data_dir")
    return _ran(
        scenario, quiet, on_evaluation, out=earlier.path.parent, earlier=earlier, device=device, data_dir=data
    )


def _optional(folder: str | Path | None, name: str) -> Path | None:
    return None if folder is None else folder_of(folder, name)


def _ran(
    scenario: Scenario,
    quiet: bool,
    on_evaluation: Callable[[Evaluation], object] | None,
    earlier: ResumableRun | None = None,
    **options: Any,
) -> Run:
    """Run the scenario, show the progress, and read the results."""
    callback = None if on_evaluation is None else _outside(on_evaluation)
    line = nullcontext() if quiet else ProgressLine(Terminal(stderr=True))
    with _beside_a_running_loop(), line as progress:
        for notice in () if quiet else scenario.notices:
            print(notice, file=sys.stderr)
        notify: Callable[[str], None] | None = None if progress is None else progress.print
        chosen = RunOptions(progress=progress, notice=notify, on_evaluation=callback, **options)
        result = run_scenario(scenario, chosen, earlier=earlier)
    _require_success(result)
    assert result.directory is not None
    return Run(result.directory)


@contextmanager
def _beside_a_running_loop() -> Iterator[None]:
    """Let a loop with virtual time run inside a running event loop, such as that of a notebook."""
    waiting = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(waiting)


def _outside(on_evaluation: Callable[[Evaluation], object]) -> Callable[[Evaluation], None]:
    """Return the user's function, wrapped to hide the running event loop, so that it cannot schedule tasks.

    Raises UserError if it is not callable, or is a coroutine function.
    """
    if not callable(on_evaluation) or inspect.iscoroutinefunction(on_evaluation):
        raise refusal(
            "on_evaluation", on_evaluation, "must be a function that takes an Evaluation, without async"
        )

    def called(evaluation: Evaluation) -> None:
        with _beside_a_running_loop():
            on_evaluation(evaluation)

    return called


def _require_success(result: RunResult) -> None:
    """Print warnings and raise an error for a failed run; KeyboardInterrupt for an interrupted one."""
    from sim.results.outcome import why_failed

    for warning in result.summary.get("warnings", ()):
        print(f"warning: {warning}", file=sys.stderr)
    if result.unwritten:
        raise RuntimeError("; ".join(["not all results could be written", *result.unwritten]))
    if result.signal is not None:
        raise KeyboardInterrupt(f"interrupted; results are in {result.directory}")
    if (reason := why_failed(result.summary, length=None)) is not None:
        assert result.directory is not None
        failed = RunFailed(f"the run failed: {reason}; results so far are in {result.directory}")
        failed.directory = result.directory
        if traceback := result.summary.get("failure_traceback"):
            failed.add_note(where_from(traceback))
        raise failed
