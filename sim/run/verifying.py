"""Verification of a run by a second run in a separate process, and the first difference."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from sim.errors import NotVerified
from sim.plugins.source_files import INSTALLED, PRODUCT
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import first_difference
from sim.run.interrupts import Interrupted, raise_interrupted, signals_handled_by
from sim.run.options import DEFAULT, RunOptions
from sim.run.process import without_current_folder
from sim.run.save.saving import RunResult
from sim.scenario.scenario import Scenario

WITHOUT_EFFECT = (
    *("out", "overwrite", "progress", "notice", "on_evaluation", "hooks", "report", "workers", "anyway"),
    *("checkpoint_every_s", "checkpoint_at_end", "checkpoints_s", "seat"),
)
"""Fields of `RunOptions` that do not change the trace: the second run has their defaults."""


def verify(scenario: Scenario, result: RunResult, options: RunOptions = DEFAULT) -> str | None:
    """Run again in a new process with another hash seed; return the first difference, or None.

    options: those of the first run, which are repeated except for `WITHOUT_EFFECT`. A separate process
    reveals dependence on the order of sets, on addresses, or on state of the process. A signal also ends the
    second run, and raises `Interrupted`. Raises NotVerified if the second run leaves no results.
    """
    assert result.directory is not None
    with signals_handled_by(raise_interrupted), tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        command = [sys.executable, "-m", "sim", "run", str(result.directory / "scenario.toml")]
        # The user's files read other files next to them, which the copies in the results lack.
        for plugin in scenario.plugins:
            command += ["--set", f"{plugin.key}={plugin.name}"] if plugin.is_unchanged() else []
        command += ["--quiet", "--out", str(again), "--set", "run.compare_alone=false"]
        command += command_line_options(options)
        with without_current_folder():
            code, errors = _run_command(command, _environment())
        # A failed run also has results to compare.
        found = [path for path in again.iterdir() if (path / "summary.json").is_file()]
        if len(found) != 1:
            raise NotVerified(f"it left no results, with exit code {code}:\n{errors.strip()}")
        second = RunDirectory.load(found[0])
        if second.summary()["trace_hash"] == result.summary["trace_hash"]:
            return None
        first = RunDirectory.load(result.directory)
        difference = first_difference(
            first.scan("events").collect().to_arrow(), second.scan("events").collect().to_arrow()
        )
        return difference or "the hashes differ, in messages that run.keep_messages = false does not store"


def command_line_options(options: RunOptions) -> list[str]:
    """Return the options that differ from their defaults as words of a command line, such as --data-dir."""
    words: list[str] = []
    for field in fields(RunOptions):
        value = getattr(options, field.name)
        if field.name in WITHOUT_EFFECT or value == field.default:
            continue
        word = f"--{field.name.replace('_', '-')}"
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [word] if each is True else [word, str(each)]
    return words


def _environment() -> dict[str, str]:
    """Return the environment of a process with another hash seed and the same coterie."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    # This process may run from sources that differ from the installed package.
    path = [] if PRODUCT.name in INSTALLED else [str(PRODUCT)]
    path += [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return os.environ | {"PYTHONHASHSEED": seed} | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})


def _run_command(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Return exit code and stderr of a command. A signal also ends the command, and raises `Interrupted`."""
    process: subprocess.Popen[str] | None = None
    signals: list[int] = []

    def end(number: int) -> None:
        signals.append(number)
        if process is not None:
            process.kill()

    with signals_handled_by(end):
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if signals:  # during its start
            process.kill()
        _, errors = process.communicate()
    if signals:
        raise Interrupted(signals[0])
    return process.returncode, errors
