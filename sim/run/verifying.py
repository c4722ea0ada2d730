"""Verification of a run by a second run in a separate process, and the first difference."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sim.errors import NotVerified
from sim.plugins.source_files import INSTALLED, PRODUCT
from sim.results.store.run_directory import RunDirectory
from sim.results.trace import first_difference
from sim.run.interrupts import Interrupted, raise_interrupted, signals_handled_by
from sim.run.process import safe_path
from sim.run.save.saving import RunResult
from sim.scenario.scenario import Scenario


def verify(
    scenario: Scenario, result: RunResult, *, device: str = "auto", data_dir: Path | None = None
) -> str | None:
    """Run again in a new process with another hash seed; return the first difference, or None.

    A separate process reveals dependence on the order of sets, on addresses, or on state of the process. A
    signal also ends the second run, and raises `Interrupted`. Raises NotVerified if it leaves no results.
    """
    assert result.directory is not None
    with signals_handled_by(raise_interrupted), tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        command = [sys.executable, "-m", "sim", "run", str(result.directory / "scenario.toml")]
        # The user's files read other files next to them, which the copies in the results lack.
        for plugin in scenario.plugins:
            command += ["--set", f"{plugin.key}={plugin.name}"] if plugin.is_unchanged() else []
        command += ["--quiet", "--out", str(again), "--device", device, "--set", "run.compare_alone=false"]
        command += ["--data-dir", str(data_dir)] if data_dir is not None else []
        with safe_path():
            code, errors = _output(command, _environment())
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


def _environment() -> dict[str, str]:
    """Return the environment of a process with another hash seed and the same coterie."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    # This process may run from sources that differ from the installed package.
    path = [] if PRODUCT.name in INSTALLED else [str(PRODUCT)]
    path += [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return os.environ | {"PYTHONHASHSEED": seed} | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})


def _output(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Return exit code and stderr of a command. A signal to this process ends it and raises `Interrupted`."""
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
