"""Runs of scenarios from Python: `run`, `load`, `resume`, `fork`, and what they return."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from coterie import preview
from coterie.arguments import (
    contents_of,
    device_of,
    flag_of,
    folder_of,
    method_of,
    options,
    path_of,
    refusal,
    seconds,
    seed_of,
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
from sim.run.resume.resuming import ResumableRun
from sim.run.running import run_scenario
from sim.run.save.saving import RunResult
from sim.scenario.scenario import Scenario, load_contents, load_scenario
from sim.studies.cells import as_toml
from sim.studies.index import INDEX


class Run:
    """The results of a run: tables as polars data frames (`.to_pandas()` makes others), read when asked for.

    In a notebook it shows its headline numbers, the course of what clients are judged by, and the graph.
    """

    def __init__(self, directory: Path | str) -> None:
        """Raises UserError for a folder that has no results, or damaged ones."""
        self.directory = folder_of(directory, "directory")
        """The folder of the results."""
        self._results: RunDirectory = load_checked(self.directory)
        self._view = RunView(self._results)

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json says: accuracies, messages, bytes, virtual and real time, failures."""
        return self._view.summary

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """What was measured: columns `time` (virtual seconds), `actor`, `name`, `value`."""
        return self._table("metrics")

    @cached_property
    def graph(self) -> pl.DataFrame:
        """The collaboration graph over time; empty for methods that learn none."""
        return self._table("graph")

    @cached_property
    def events(self) -> pl.DataFrame:
        """Messages and what happened to clients, in order."""
        return self._table("events")

    @cached_property
    def intervals(self) -> pl.DataFrame:
        """When each device was at work, and on what."""
        return self._table("intervals")

    @property
    def evaluations(self) -> list[Evaluation]:
        """What each evaluation has found, as `on_evaluation` is told it."""
        return list(evaluations(self._results))

    @property
    def scenario(self) -> str:
        """The scenario with all that it left open, as TOML."""
        return self._view.scenario_text

    @property
    def report(self) -> Path:
        """The report, a page that needs no network."""
        return self.directory / "report.html"

    def _table(self, name: str) -> pl.DataFrame:
        return self._results.scan(name).collect()

    def __repr__(self) -> str:
        return f"<Run {self.directory.name}: {preview.headline(self._view)}>"

    def _repr_html_(self) -> str:
        return preview.page(self._view)


class RunFailed(RuntimeError):
    """A run of which clients failed, or whose models all diverged. Its results are there all the same."""

    directory: Path
    """The folder of the results."""

    @property
    def run(self) -> Run:
        """What the run has measured."""
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

    scenario: the name of a known one, a file, or its contents as nested dicts, in which `protocol.name` may
    be a class. protocol: a method's name, or the class itself, in place of the scenario's. set: other values
    of keys, such as {"network.loss": 0.1}; None takes a key away. Where a key names your code, `model.name`
    say, its value may be the class or function, if that is written in a file. seed: instead of run.seed. out:
    where the folder of the results goes. quiet: show no progress. on_evaluation: a function that is called
    with each `Evaluation` while the run goes on; it changes nothing of the run. hooks: objects of `RunHook`,
    which are called at more moments of the run.

    A class is run as it is, and the files that it is written in are kept with the results; of one that was
    written in a notebook only its own source, so that the run cannot be repeated from its folder. Raises
    UserError for what cannot be run, and RunFailed where the run failed, which has its results. What
    `on_evaluation` raises ends the run, and is raised as it is, with a note of where the results until then
    are.
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
        raise refusal("protocol", protocol, "must be a method's name, or its class")
    if isinstance(scenario, Scenario):
        if overrides or unset or seed is not None or method is not None:
            raise UserError("a Scenario is run as it is; to change it, give its name, file or contents")
        loaded = scenario
    elif isinstance(scenario, Mapping):
        contents, named = contents_of(scenario)
        method = method or (named if protocol is None else None)
        loaded = load_contents(contents, overrides, seed, unset=unset, method=method)
    elif isinstance(scenario, str | Path):
        loaded = load_scenario(path_of(scenario, "scenario"), overrides, seed, unset=unset, method=method)
    else:
        raise refusal("scenario", scenario, "must be a name, a path, or contents as a dict")
    if loaded.sweep is not None:
        raise UserError(f"{scenario}: holds a sweep, which `coterie sweep` runs")
    place, data = folder_of(out, "out"), _optional(data_dir, "data_dir")
    return _ran(
        loaded,
        quiet,
        on_evaluation,
        out=place,
        overwrite=overwrite,
        device=device,
        data_dir=data,
        hooks=hooks,
    )


def load(directory: str | Path) -> Run:
    """The results of an earlier run; `Sweep(directory).load()` has those of a sweep. Raises UserError."""
    if os.path.isfile(folder_of(directory, "directory") / INDEX):
        raise UserError(f"{directory}: is a sweep; coterie.Sweep(directory).load() has its runs")
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
    """Go on with a run that was interrupted, or prolong one that has ended, as if it had not been.

    until: the virtual time at which it ends instead, in seconds or such as "20 min". protocol: the method's
    class, if it was written in a notebook and is unchanged; else the copy of the method that the results have
    is executed. Raises as `run` does.
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
    """Give a run another future: the same until `at`, and then with other values of keys.

    at: virtual time, in seconds or such as "20 s". protocol: as for `resume`. Raises as `run` does.
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
    """Run, show how far it is, and read the results."""
    told = None if on_evaluation is None else _outside(on_evaluation)
    line = nullcontext() if quiet else ProgressLine(Terminal(stderr=True))
    with _beside_a_running_loop(), line as progress:
        for said in () if quiet else scenario.notices:
            print(said, file=sys.stderr)
        say: Callable[[str], None] | None = None if progress is None else progress.say
        chosen = RunOptions(progress=progress, notice=say, on_evaluation=told, **options)
        result = run_scenario(scenario, chosen, earlier=earlier)
    _require_success(result)
    assert result.directory is not None
    return Run(result.directory)


@contextmanager
def _beside_a_running_loop() -> Iterator[None]:
    """Let a loop of virtual time run to its end while another one waits: a notebook's, for the cell."""
    waiting = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(waiting)


def _outside(on_evaluation: Callable[[Evaluation], object]) -> Callable[[Evaluation], None]:
    """A function of the user's that finds no loop of virtual time running, on which it could set up things.

    UserError for what cannot be called, or only by await.
    """
    if not callable(on_evaluation) or inspect.iscoroutinefunction(on_evaluation):
        raise refusal("on_evaluation", on_evaluation, "must be a function of an Evaluation, without async")

    def told(evaluation: Evaluation) -> None:
        with _beside_a_running_loop():
            on_evaluation(evaluation)

    return told


def _require_success(result: RunResult) -> None:
    """Say what went wrong; KeyboardInterrupt for a run that was interrupted."""
    from sim.results.outcome import why_failed

    for warning in result.summary.get("warnings", ()):
        print(f"warning: {warning}", file=sys.stderr)
    if result.unwritten:
        raise RuntimeError("; ".join(["not all results could be written", *result.unwritten]))
    if result.signal is not None:
        raise KeyboardInterrupt(f"interrupted; results are in {result.directory}")
    if (reason := why_failed(result.summary, length=None)) is not None:
        assert result.directory is not None
        failed = RunFailed(f"the run failed: {reason}; what it has measured is in {result.directory}")
        failed.directory = result.directory
        if traceback := result.summary.get("failure_traceback"):
            failed.add_note(where_from(traceback))
        raise failed
