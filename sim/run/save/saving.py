"""Writing of results: the description of a run before its start, and its results at the end."""

import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from polars.exceptions import PanicException

from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.plugins.loader import Plugin
from sim.results.report.page import write_report
from sim.results.store.run_directory import RunDirectory
from sim.run.save.provenance import conditions_of_run, provenance
from sim.scenario.resolved import digest, to_toml
from sim.scenario.scenario import Scenario


@dataclass(frozen=True)
class RunResult:
    """Result directory of a run, and contents of summary.json."""

    directory: Path | None
    """Result directory; None if it could not be written."""
    summary: dict[str, Any]
    unwritten: tuple[str, ...] = ()
    """Files that could not be written, or only elsewhere: "<file>: <reason>"."""
    signal: int | None = None
    """Number of the signal, if any, that interrupted the run or arrived while results were written."""

    @property
    def interrupted(self) -> bool:
        return bool(self.summary["interrupted"])


def create_directory(
    scenario: Scenario,
    out: Path,
    device: str,
    overwrite: bool = False,
    *,
    made: Mapping[str, str] | None = None,
    fork: Mapping[str, Any] | None = None,
    parent: pa.Table | None = None,
) -> RunDirectory:
    """Create the directory of a run before its start, with the run's description.

    made: the conditions besides the scenario that affect the values (`conditions_of_run`), by default without
    the data. fork: the entry `fork` of the summary. parent: for a fork, the metrics of its parent. Raises
    UserError if results cannot be written.
    """
    directory = RunDirectory.create(
        out, scenario.name, scenario.run.seed, digest(scenario), overwrite=overwrite
    )
    try:
        made = made or conditions_of_run(scenario, torch.device(device))
        _write_description(directory, scenario, device, made, fork)
        if parent is not None:
            directory.write_parent(parent)  # resuming a killed fork then does not need its parent
    except OSError as error:
        directory.discard()
        raise UserError(f"cannot write results to {out}: {error.strerror}") from error
    except BaseException:
        directory.discard()
        raise
    return directory


def save(
    directory: RunDirectory,
    scenario: Scenario,
    simulation: Simulation,
    summary: dict[str, Any],
    *,
    energy: pa.Table | None = None,
    overwrite: bool = False,
    report: bool = True,
) -> RunResult:
    """Write the results, and move them to their directory; replace earlier results with `overwrite`.

    energy: energy.parquet, if the scenario states constants. If there is not even space for the summary, the
    results go to a temporary folder.
    """
    saved = _save(directory, simulation, summary, energy, overwrite, report)
    if saved.directory is not None:
        return saved
    again = _save_elsewhere(directory, scenario, simulation, summary, energy, report)
    directory.discard()
    return replace(again, unwritten=saved.unwritten + again.unwritten)


def _save_elsewhere(
    first: RunDirectory,
    scenario: Scenario,
    simulation: Simulation,
    summary: dict[str, Any],
    energy: pa.Table | None,
    report: bool,
) -> RunResult:
    try:
        folder = Path(tempfile.mkdtemp(prefix="coterie-"))
    except OSError:
        return RunResult(None, summary)
    try:
        directory = create_directory(
            scenario,
            folder,
            str(simulation.engine.device),
            made=conditions_of_run(scenario, simulation.engine.device, simulation.engine.data),
            fork=summary.get("fork"),
        )
        saved = _save(directory, simulation, summary, energy, False, report, first)
        if saved.directory is None:
            directory.discard()
    except UserError:
        saved = RunResult(None, summary)
    if saved.directory is None:
        with suppress(OSError):
            folder.rmdir()
    return saved


def _write_description(
    directory: RunDirectory,
    scenario: Scenario,
    device: str,
    made: Mapping[str, str],
    fork: Mapping[str, Any] | None,
) -> None:
    """Write the scenario, its provenance, and copies of the user's code, which the scenario then names."""
    copies = {plugin.key: _copy_user_code(directory, plugin) for plugin in scenario.plugins}
    directory.write_scenario(to_toml(scenario, copies))
    given = {"overrides": list(scenario.overrides), "notices": list(scenario.notices)}
    contents = provenance(device) | {"made_by": made} | given
    directory.write_provenance(contents if fork is None else contents | {"fork": fork})


def _copy_user_code(directory: RunDirectory, plugin: Plugin) -> str:
    """Write a copy of the user's code; return its name for the scenario."""
    if plugin.sources is None:
        return plugin.name
    directory.write_code(plugin.folder, plugin.sources.files)
    return plugin.within(f"{plugin.folder}/")


def _save(
    directory: RunDirectory,
    simulation: Simulation,
    summary: dict[str, Any],
    energy: pa.Table | None,
    overwrite: bool,
    report: bool,
    first: RunDirectory | None = None,
) -> RunResult:
    """Write the results. first: the intended directory, with the files from before the run."""
    # Small files come first, and the report last, as it is made from the others.
    parts: dict[str, Callable[[], object]] = {
        "summary.json": partial(directory.write_summary, summary),
        "intervals.parquet": lambda: directory.write_intervals(simulation.intervals()),
        "metrics.parquet and graph.parquet": lambda: directory.write_metrics(simulation.observer.metrics),
        "events.parquet": lambda: directory.write_events(simulation.trace),
    }
    if energy is not None:
        parts["energy.parquet"] = lambda: directory.write_energy(energy)
    if first is not None and first.wrote_parent:
        parts["parent.parquet"] = lambda: directory.copy(first.path / "parent.parquet")
    if report:
        parts["report.html"] = lambda: write_report(directory)
    unwritten = []
    for name, write in parts.items():
        try:
            write()
        except (Exception, PanicException) as error:  # any error: keep the other results
            unwritten.append(f"{name}: {_reason(error)}")
            if name == "summary.json":
                return RunResult(None, summary, tuple(unwritten))
    try:
        return RunResult(directory.finalise(replace=overwrite and not unwritten), summary, tuple(unwritten))
    except OSError as error:
        return RunResult(None, summary, (*unwritten, f"{directory.path}: {_reason(error)}"))


def _reason(error: BaseException) -> str:
    """Describe an error in one line; for an unexpected error with its class and line of code."""
    reason = (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0]
    if isinstance(error, OSError | UserError):
        return reason
    *_, frame = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {reason} ({Path(frame.filename).name}, line {frame.lineno})"
