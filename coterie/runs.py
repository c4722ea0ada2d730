"""Runs of scenarios from Python: `run`, `load`, `resume`, `fork`, and their results."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

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
from coterie.results import Run, RunFailed
from coterie.reuse import finished_run
from protocols.framework.client import Client
from sim.cli.console import ProgressLine, Terminal
from sim.core.run_hook import RunHook
from sim.errors import UserError, require_current_folder
from sim.plugins.loader import require_not_loading
from sim.results.evaluations import Evaluation
from sim.results.frames import failure_origin_text
from sim.run.options import RunOptions
from sim.run.resume.resuming import ResumableRun
from sim.run.running import run_scenario
from sim.run.save.saving import RunResult
from sim.scenario.scenario import Scenario, load_contents, load_scenario
from sim.studies.index import INDEX
from sim.studies.option_values import as_toml


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
    no_code: bool = False,
    reuse: bool = False,
    on_evaluation: Callable[[Evaluation], object] | None = None,
    hooks: Sequence[RunHook] = (),
) -> Run:
    """Run a scenario and return its results.

    scenario: the name of a known scenario, a file, or its contents as nested dicts, in which `protocol.name`
    may be a class. protocol: a method's name or class that replaces the scenario's. set: other values of
    keys, such as {"network.loss": 0.1}; None removes a key. Where a key names your code, for example
    `model.name`, its value may be the class or function, if that is defined in a file. seed: replaces
    run.seed. out: the parent of the results folder. overwrite: replace earlier results of the same scenario
    and seed. device: "auto", "cpu" or "cuda". data_dir: the folder of the data sets. quiet: show no progress
    and no notices. on_evaluation: a function that is called with each `Evaluation` during the run; it does
    not change the run. hooks: `RunHook` objects, which are called at more points of the run. no_code: reject
    Python code that is not part of coterie. reuse: return the finished results of the same scenario and
    version in `out`, if there are any; no function or hook is called then.

    A class is run as given, and the files that define it are kept with the results. If a class is defined in
    a notebook, only the class's own source is kept, so the run cannot be repeated from its folder. Raises
    UserError if the run cannot start, and RunFailed, with the results, if the run failed. An error that
    `on_evaluation` raises ends the run and is raised unchanged, with a note that names the folder of the
    results so far.
    """
    require_not_loading()
    require_current_folder()
    overrides, unset = options(set)
    seed, device, method = seed_of(seed), device_of(device), None
    quiet, overwrite = flag_of(quiet, "quiet"), flag_of(overwrite, "overwrite")
    code, reuse = not flag_of(no_code, "no_code"), flag_of(reuse, "reuse")
    if isinstance(protocol, str):
        overrides.append(f"protocol.name={as_toml(protocol)}")
    elif isinstance(protocol, type):
        method = protocol
    elif protocol is not None:
        raise refusal("protocol", protocol, "must be the name of a method, or its class")
    if isinstance(scenario, Scenario):
        if overrides or unset or seed is not None or method is not None:
            raise UserError(
                "set, seed and protocol cannot change a Scenario object; instead, pass the scenario's name, "
                "file or contents"
            )
        loaded = scenario
    elif isinstance(scenario, Mapping):
        contents, named = contents_of(scenario)
        method = method or (named if protocol is None else None)
        _require_code(code, method)
        loaded = load_contents(contents, overrides, seed, unset=unset, code=code, method=method)
    elif isinstance(scenario, str | Path):
        _require_code(code, method)
        path = path_of(scenario, "scenario")
        loaded = load_scenario(path, overrides, seed, unset=unset, code=code, method=method)
    else:
        raise refusal("scenario", scenario, "must be a name, a path, or the contents as a dict")
    if loaded.sweep is not None:
        what = scenario if isinstance(scenario, str | Path) else "the scenario"
        raise UserError(f"{what} contains a sweep; run it with `coterie sweep`")
    folder, data = folder_of(out, "out"), _optional(data_dir, "data_dir")
    if reuse and (found := finished_run(loaded, folder, device)) is not None:
        return _with_method(Run(found), method)
    more: dict[str, Any] = {"overwrite": overwrite, "device": device, "data_dir": data, "hooks": hooks}
    return _with_method(_ran(loaded, quiet, on_evaluation, out=folder, **more), method)


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
    no_code: bool = False,
    on_evaluation: Callable[[Evaluation], object] | None = None,
) -> Run:
    """Resume an interrupted run, or extend a finished one, as if it had never stopped.

    until: the new end in virtual time, in seconds or as a string, for example "20 min". protocol: the
    method's class, if it was defined in a notebook and is unchanged; otherwise the copy of the method in the
    results is executed, unless `no_code` is set, which rejects it. The other arguments are as for `run`.
    Raises as `run` does.
    """
    require_not_loading()
    device, quiet, code = device_of(device), flag_of(quiet, "quiet"), not flag_of(no_code, "no_code")
    method = method_of(protocol)
    _require_code(code, method)
    earlier = ResumableRun.find(folder_of(directory, "directory"))
    changes = []
    if until is not None:
        end_s = seconds(until, "until")
        earlier.require_extensible()
        earlier.require_later(end_s)
        changes = [f"run.duration={end_s!r} s"]
    scenario = earlier.scenario(changes, code=code, method=method)
    earlier.require_unfinished(scenario)
    data = _optional(data_dir, "data_dir")
    more: dict[str, Any] = {"out": earlier.path.parent, "device": device, "data_dir": data}
    return _with_method(_ran(scenario, quiet, on_evaluation, earlier, **more), method)


def fork(
    directory: str | Path | Run,
    at: float | str,
    set: Mapping[str, Any],
    *,
    protocol: type[Client] | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    quiet: bool = False,
    no_code: bool = False,
    on_evaluation: Callable[[Evaluation], object] | None = None,
) -> Run:
    """Fork a run: repeat it until `at`, then continue with other values of keys.

    at: virtual time, in seconds or as a string, for example "20 s". set: other values of keys; None removes a
    key. The other arguments are as for `resume`. Raises as `run` does.
    """
    require_not_loading()
    device, quiet, code = device_of(device), flag_of(quiet, "quiet"), not flag_of(no_code, "no_code")
    method = method_of(protocol)
    _require_code(code, method)
    earlier = ResumableRun.find(folder_of(directory, "directory"), seconds(at, "at"))
    scenario = earlier.scenario(*options(set), code=code, method=method)
    data = _optional(data_dir, "data_dir")
    more: dict[str, Any] = {"out": earlier.path.parent, "device": device, "data_dir": data}
    return _with_method(_ran(scenario, quiet, on_evaluation, earlier, **more), method)


def _require_code(code: bool, method: type[Client] | None) -> None:
    """Raise UserError for a class if code is rejected."""
    if method is not None and not code:
        raise UserError(f"no_code = True: protocol = {method.__name__} is code that is not part of coterie")


def _with_method(run: Run, method: type[Client] | None) -> Run:
    """Return the run, with its method's class for later replays: the class may be defined in a notebook."""
    run._method = method
    return run


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
            failed.add_note(failure_origin_text(traceback))
        raise failed
