"""Options of commands and of runs have an effect."""

import ast
import inspect
import re
import subprocess
import sys
from copy import copy
from dataclasses import fields
from pathlib import Path

import pytest

from sim.cli.commands import run
from sim.cli.resume_commands import resume
from sim.run.options import DEFAULT, RunOptions
from sim.run.verifying import WITHOUT_EFFECT, repeated_options
from sim.studies.worker import CellOptions
from tests.lists import require_listed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "where", "name", "folders"),
    [
        (RunOptions, "sim/run/options.py", "options", ("sim/run", "sim/core")),
        (CellOptions, "sim/studies/worker.py", "how", ("sim/studies",)),
    ],
)
def test_each_option_of_runs_is_read(
    options: type[RunOptions | CellOptions], where: str, name: str, folders: tuple[str, ...]
) -> None:
    """An option that no code reads has no effect, and no message says so."""
    read = {
        node.attr
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and re.search(rf"\b{name}$", ast.unparse(node.value))
    }
    unread = [each.name for each in fields(options) if each.name not in read]
    assert not unread, (
        f"no code reads {', '.join(unread)} of {options.__name__} in {where}: use them, or remove them"
    )


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


NOT_OF_RESUME = (
    *("file", "overrides", "unset", "seed"),  # the scenario is in the results
    *("out", "overwrite"),  # the results replace those of the interrupted run
    *("on", "address", "verify", "checkpoint_at", "trace", "track", "tensorboard"),
)
"""Options of `coterie run` that end with its process: `coterie resume` does not have them."""


def test_each_option_of_run_is_also_one_of_resume() -> None:
    """`resume` starts with new options: without its own, what the option added to the results is lost."""
    of_run, of_resume = (inspect.signature(command).parameters for command in (run, resume))
    where = f"`resume` in sim/cli/resume_commands.py, or to NOT_OF_RESUME in {__file__}"
    require_listed(of_run.keys() - of_resume.keys(), NOT_OF_RESUME, where)


@pytest.mark.parametrize("name", [each.name for each in fields(RunOptions)])
def test_each_option_of_run_that_may_change_the_trace_is_repeated_by_verify(name: str) -> None:
    other = copy(DEFAULT)
    object.__setattr__(other, name, "other")
    word = f"--{name.replace('_', '-')}"
    if name in WITHOUT_EFFECT:
        assert repeated_options(other) == []
        return
    assert repeated_options(other) == [word, "other"]
    assert name in inspect.signature(run).parameters, (
        f"add {name} to WITHOUT_EFFECT in sim/run/verifying.py if it does not change the trace; "
        f"else name the option of `run` in sim/cli/commands.py {word}, the name by which --verify repeats it"
    )
