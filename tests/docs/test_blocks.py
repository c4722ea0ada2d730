"""The documents' code blocks: Python is executed, scenarios are read, commands run (shortened)."""

from __future__ import annotations  # the blocks that are compiled here inherit it

import inspect
import os
import re
import runpy
import shlex
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from sim.cli.live import app
from sim.scenario.scenario import load_scenario
from tests.simulation.test_scenarios import SHORT
from tests.simulation.worlds import DIGITS, write

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/examples").rglob("*.*"))}
README_EXAMPLE = "docs/examples/pull_gossip.py"  # as my_file.py, which a test of its own compares
SHORTER = {
    **SHORT,
    "labels": ["run.budget.steps=20"],
    "minimal": ["run.duration=10 s"],
    "ranking": [],
    "segmentation": [],
}
# What prepares a shell or a machine: its targets are looked up, it is not run again in the middle of tests.
SHELL = re.compile(
    r"(make (?P<target>[\w-]+)|source \.venv/bin/activate|cd (?P<folder>\S+)|python figure.py )"
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: `language` as the fence says, "" for commands."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, match[2], textwrap.dedent(match[3])))
    return found


def of(*languages: str) -> list[Block]:
    return [block for block in blocks() if block.language in languages]


def commands() -> list[tuple[Block, str]]:
    return [(block, line) for block in of("", "sh") for line in joined(block.text) if line]


def joined(text: str) -> list[str]:
    """The commands of a block, continued lines made one, comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.join(shlex.split(line, comments=True)) for line in lines]


def test_there_is_no_block_of_another_language() -> None:
    """`test_docstrings` runs sessions ("pycon"), `test_extending` applies diffs, and "text" is output."""
    assert {block.language for block in blocks()} == {"", "python", "toml", "pycon", "diff", "text"}
    assert {block.page.name for block in of("pycon")} == {"api.md"}
    assert {block.page.name for block in of("diff")} == {"extending.md"}


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_is_of_an_example_or_runs_by_itself(block: Block) -> None:
    if is_of_an_example(block):
        return  # examples have tests of their own
    names: dict[str, Any] = {"__name__": "block"}
    exec(compile(block.text, str(block), "exec"), names)
    made = [value for value in names.values() if getattr(value, "__module__", None) == "block"]
    assert made, f"{block} defines nothing"
    assert not any("self" in inspect.signature(value).parameters for value in made if callable(value)), (
        f"{block} shows a method that no example has"
    )


def is_of_an_example(block: Block) -> bool:
    """Whether an example has these lines, perhaps as methods of a class."""
    method = as_method(block.text)
    return any(block.text.strip() in textwrap.dedent(text) or method in text for text in EXAMPLES.values())


def as_method(text: str) -> str:
    """A block that shows a method of a class, as it is written there."""
    return re.sub(r"\n{3,}", "\n\n", textwrap.indent(text, "    ").strip("\n"))


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_toml_is_read(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = tomllib.loads(block.text)
    if "include" in contents:  # an editor's
        return
    if any(block.text.strip() in text for text in EXAMPLES.values()):
        return  # of a scenario that a test runs
    named = re.findall(r"([\w-]+\.\w+):\w+\"", block.text)
    monkeypatch.chdir(next((path.parent for path in EXAMPLES if path.name in named), ROOT))
    scenario = load_scenario(write(tmp_path, tomli_w.dumps(merged(tomllib.loads(DIGITS), contents))))
    assert all(getattr(scenario, section) for section in contents), f"{block}: a section is empty"


def merged(base: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """A scenario with the keys that a block states in the place of those of the same name."""
    both = {**base, **stated}
    for key in base.keys() & stated.keys():
        if (
            isinstance(base[key], dict)
            and isinstance(stated[key], dict)
            and not {"kind", "name"} & stated[key].keys()
        ):
            both[key] = merged(base[key], stated[key])
    return both


@pytest.mark.long
@pytest.mark.parametrize(
    ("block", "command"), commands(), ids=[f"{block}: {command}" for block, command in commands()]
)
def test_commands_run(block: Block, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = command.split()
    if match := SHELL.match(command):
        if match["target"]:
            assert re.search(rf"^{match['target']}\b.*:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert words[0] == "coterie", f"{block}: {command}"
    monkeypatch.chdir(folder_of(block))
    on_cluster = words[1] == "run" and "--on" in words
    of_results = words[1] in ("compare", "runs", "reproduce") or words[2].startswith("runs/")
    if of_results or on_cluster:  # of what is not there: its options are looked up
        said = CliRunner().invoke(app, [words[1], "--help"], env={"COLUMNS": "200"}).output
        assert all(word in said for word in words if word.startswith("--")), f"{block}: {command}"
        if on_cluster:
            load_scenario(ROOT / "scenarios" / f"{words[2]}.toml")
        return
    arguments = shlex.split(command.replace("my_file.py", README_EXAMPLE))[1:]
    if "--full" in arguments:  # thousands of runs, which a slow test of the shipped studies looks at
        arguments.remove("--full")
    result = CliRunner().invoke(app, [*arguments, *shortened(words, tmp_path)])
    assert result.exit_code == 0, f"{block}: {command}\n{result.output}"


@pytest.mark.long
@pytest.mark.parametrize("page", sorted((ROOT / "docs/fidelity").glob("*.md")), ids=lambda page: page.stem)
def test_the_fidelity_pages_name_whole_commands(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a line: an option alone leaves open of what, and no test could tell whether it is one."""
    monkeypatch.chdir(ROOT)
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    codes = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    for words in [shlex.split(code) for code in codes if " --" in f" {code}" or code.startswith("coterie ")]:
        assert words[0] in ("coterie", "make"), f"{page.name}: {shlex.join(words)}"
        if words[1] == "run":
            words = ["coterie", "check", *words[2:]]
        elif words[1] == "sweep":
            words.append("--dry-run")
        if words[1] in ("check", "sweep"):
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == 0, f"{page.name}: {shlex.join(words)}\n{result.output}"


def folder_of(block: Block) -> Path:
    """Where the page's commands are given: where it goes to first, or the project."""
    match = re.search(r"^ *cd (\S+)$", block.page.read_text(encoding="utf-8"), re.MULTILINE)
    return ROOT / match[1] if match else ROOT


def shortened(words: list[str], out: Path) -> list[str]:
    """Options with which a run ends soon, and leaves nothing behind."""
    if words[1] in ("sweep", "tune"):
        return ["--dry-run"]
    if words[1] != "run":
        return []
    settings = SHORTER[Path(words[2]).stem]
    if any(word.startswith("protocol.name=") for word in words):
        settings = [each for each in settings if not each.startswith("protocol.")]
    return [*[part for each in settings for part in ("--set", each)], "--out", os.fspath(out), "--quiet"]


def test_the_tutorial_draws_its_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "docs/examples/tutorial"
    options = ["--set", "run.name=step-1", "--set", "run.budget.steps=20", "--out", str(tmp_path), "--quiet"]
    assert CliRunner().invoke(app, ["run", str(folder / "labels.toml"), *options]).exit_code == 0
    [run] = tmp_path.iterdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["figure.py", run.name])
    runpy.run_path(str(folder / "figure.py"))
    drawn = (tmp_path / "figure.html").read_text(encoding="utf-8")
    assert '"name":"step-1"' in drawn
    assert "mean test accuracy" in drawn
