"""Options of commands and of runs have an effect."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import coterie
from sim.cli.commands import app, run
from sim.cli.live import live
from sim.cli.resume_commands import fork, resume
from sim.cli.studies import sweep
from sim.live.running import _READ, LiveOptions
from sim.live.worker import ProcessOrder
from sim.run.options import DEFAULT, RunOptions
from sim.run.verifying import WITHOUT_EFFECT, command_line_options
from sim.studies.artifacts.packing import PackOptions
from sim.studies.worker import CellOptions
from tests.lists import require_listed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "where", "name", "folders"),
    [
        (RunOptions, "sim/run/options.py", "options", ("sim/run", "sim/core")),
        (CellOptions, "sim/studies/worker.py", "how", ("sim/studies",)),
        (PackOptions, "sim/studies/artifacts/packing.py", "options", ("sim/studies/artifacts",)),
        (LiveOptions, "sim/live/running.py", "live", ("sim/live",)),
        (ProcessOrder, "sim/live/worker.py", "(_?assignment|order|own)", ("sim/live",)),
    ],
)
def test_each_option_of_runs_is_read(options: type, where: str, name: str, folders: tuple[str, ...]) -> None:
    """An option that no code reads has no effect, and no message says so."""
    read = {attribute for folder in folders for attribute in attributes_of(name, folder)}
    unread = [each.name for each in fields(options) if each.name not in read]
    assert not unread, (
        f"no code reads {', '.join(unread)} of {options.__name__} in {where}: use them, or remove them"
    )


def attributes_of(name: str, folder: str) -> set[str]:
    """The attributes of a variable that the code of a folder reads."""
    return {
        node.attr
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and re.search(rf"\b{name}$", ast.unparse(node.value))
    }


def test_live_runs_read_the_options_that_they_accept() -> None:
    unread = set(_READ) - attributes_of("options", "sim/live")
    assert not unread, f"no code reads {unread} of _READ in sim/live/running.py: use them, or remove them"


def test_ruff_finds_an_option_of_a_command_that_is_not_passed_on() -> None:
    code = '"""A command."""\n\n\ndef run(label: str) -> None:\n    print("run")\n'
    ruff = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "-"]
    for name, found in (("sim/cli/commands.py", True), ("sim/run/options.py", False)):
        result = subprocess.run(
            [*ruff, f"--stdin-filename={name}"],
            input=code,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert ("ARG001" in result.stdout) == found, result.stdout + result.stderr


class Missing(NamedTuple):
    """Options of one command that a related one does not have. where: the file of the second."""

    of: Callable[..., Any]
    in_: Callable[..., Any]
    where: str
    names: tuple[str, ...]


SCENARIO = ("overrides", "unset")  # `set` of a function
NEW_RUN = ("file", "seed", "out", "overwrite")  # the results of a run have its scenario and their folder
EXPORTS = ("trace", "track", "tensorboard")
MISSING = {
    # Results of an interrupted run are replaced: what an option added to them would be lost.
    "resume": Missing(
        run,
        resume,
        "sim/cli/resume_commands.py",
        (*NEW_RUN, *SCENARIO, *EXPORTS, "on", "address", "verify", "checkpoint_at"),
    ),
    "fork": Missing(resume, fork, "sim/cli/resume_commands.py", ("until", "checkpoint_every")),
    "sweep": Missing(
        run,
        sweep,
        "sim/cli/studies.py",
        (*EXPORTS, "seed", "overwrite", "verify", "checkpoint_every", "checkpoint_at"),
    ),
    "live": Missing(
        run,
        live,
        "sim/cli/live.py",
        (*EXPORTS, "device", "on", "address", "verify", "checkpoint_every", "checkpoint_at"),
    ),
    "coterie.run": Missing(
        run,
        coterie.run,
        "coterie/runs.py",
        ("file", *SCENARIO, *EXPORTS, "on", "address", "verify", "checkpoint_every", "checkpoint_at"),
    ),
    "coterie.resume": Missing(resume, coterie.resume, "coterie/runs.py", ("anyway", "checkpoint_every")),
    "coterie.sweep": Missing(
        sweep,
        coterie.sweep,
        "coterie/sweeps.py",
        ("file", *SCENARIO, "on", "address", "gpus", "reports", "checkpoints", "dry_run", "no_code"),
    ),
    "coterie.fork": Missing(
        fork, coterie.fork, "coterie/runs.py", (*SCENARIO, "from_toml", "without", "anyway")
    ),
}
"""For each command and function: the options of a related one that it does not have."""


@pytest.mark.parametrize("name", MISSING)
def test_each_option_is_also_one_of_related_commands_and_functions(name: str) -> None:
    of, in_, where, names = MISSING[name]
    there, here = (inspect.signature(command).parameters for command in (of, in_))
    listed = f'`{in_.__name__}` in {where}, or to MISSING["{name}"] in {__file__}'
    require_listed(there.keys() - here.keys(), names, listed)


@pytest.mark.parametrize("name", [each.name for each in fields(RunOptions)])
def test_each_option_of_run_that_may_change_the_trace_is_repeated_by_verify(name: str) -> None:
    other = copy(DEFAULT)
    object.__setattr__(other, name, "other")
    word = f"--{name.replace('_', '-')}"
    if name in WITHOUT_EFFECT:
        assert command_line_options(other) == []
        return
    assert command_line_options(other) == [word, "other"]
    assert name in inspect.signature(run).parameters, (
        f"add {name} to WITHOUT_EFFECT in sim/run/verifying.py if it does not change the trace; "
        f"else name the option of `run` in sim/cli/commands.py {word}, the name by which --verify repeats it"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--until", "2 min"], "--until: a live run cannot continue"),
        (["--checkpoint-every", "1 min"], "--checkpoint-every: a live run cannot continue"),
        (["--anyway"], "--anyway: a live run cannot continue"),
        (["--device", "cuda"], "--device cuda: live runs compute on CPUs; must be auto or cpu"),
        (["--device", "cpu"], None),
        ([], None),
    ],
)
def test_a_killed_live_run_refuses_options_for_continuing(
    arguments: list[str], message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[list[Path]] = []
    monkeypatch.setattr("sim.live.logs.logs_of_killed_runs", lambda path: [path])
    monkeypatch.setattr("sim.cli.resume_commands._write_results", lambda folders, *_: written.append(folders))
    found = CliRunner().invoke(app, ["resume", str(tmp_path), *arguments])
    assert (found.exit_code, written) == ((2, []) if message else (0, [[tmp_path]]))
    assert message is None or message in found.output
