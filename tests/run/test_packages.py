"""What must be installed for what: `import` and `run` do without the extras, and who needs one says so."""

import ast
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from sim.cli.artifacts import app
from sim.errors import UserError
from sim.learning.vision import network
from tests.simulation.worlds import DIGITS, write

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED = (
    "matplotlib",
    "starlette",
    "uvicorn",
    "torchvision",
    "tensorboard",
    "ray",
    "uvloop",
    "wandb",
    "mlflow",
    "opacus",
    "perfetto",
    "datasets",
    "PIL",
    "rocrate",
)
PART_OF = {
    "sklearn": "scikit-learn",
    "mlflow": "mlflow-skinny",
    "PIL": "pillow",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "typing_extensions": "pydantic",
}
OF_A_RUN = ("kernel", "world", "learning", "scenario", "run", "files", "plugins")
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Nothing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Nothing())
from sim.__main__ import main
main()
"""


def required(*groups: str) -> list[Requirement]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][group] for group in groups)]
    return [Requirement(line) for lines in lists for line in lines if not line.startswith("coterie[")]


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in found}


def test_requirements_have_lower_bounds_only() -> None:
    """An upper bound would take a user's newer torch away."""
    for each in required(*PROJECT["optional-dependencies"]):
        assert [one.operator for one in each.specifier] == [">="], each


def test_what_make_installs_is_pinned_and_allowed() -> None:
    versions = pinned()
    for each in required(
        "dev", "compare", "watch", "vision", "tensorboard", "trace", "sockets", "pack", "hf", "bench"
    ):
        assert each.specifier.contains(versions[canonicalize_name(each.name)]), each


@pytest.mark.long
def test_what_is_imported_is_required() -> None:
    """Also what is imported within a function, and what comes with another package today."""
    everywhere = imported("actors", "protocols", "sim")
    assert "torch" in everywhere
    assert everywhere <= names_of(
        "compare",
        "watch",
        "vision",
        "tensorboard",
        "trace",
        "wandb",
        "mlflow",
        "privacy",
        "huggingface",
        "hf",
        "ray",
        "sockets",
        "tune",
        "pack",
    )
    # The commands ask for what theirs need.
    assert imported("actors", "protocols", *[f"sim/{part}" for part in OF_A_RUN]) <= names_of(
        "privacy", "huggingface", "hf", "ray"
    )


def imported(*folders: str) -> set[str]:
    """The packages, of other people, that the code of some folders imports."""
    found: set[str] = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module))
    tops = {name.partition(".")[0] for name in found} - {
        *sys.stdlib_module_names,
        "actors",
        "protocols",
        "sim",
    }
    return {canonicalize_name(PART_OF.get(name, name)) for name in tops}


def names_of(*extras: str) -> set[str]:
    return {canonicalize_name(each.name) for each in required(*extras)}


@pytest.mark.long
def test_a_run_needs_no_extra(tmp_path: Path) -> None:
    code = WITHOUT.format(names=sorted(IMPORTED))
    file = write(tmp_path, DIGITS)
    command = [sys.executable, "-c", code, "run", str(file), "--out", str(tmp_path / "runs"), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("runs/*/report.html"))


@pytest.mark.parametrize("command", [["check", "scenarios/quickstart.toml"], ["list"], ["--version"]])
def test_without_locks_on_folders_no_command_begins(command: list[str]) -> None:
    """As on Windows."""
    code = WITHOUT.format(names=["fcntl"])
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("coterie does not run on this system: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (["compare", "runs"], "matplotlib", "compare"),
        (["watch", "."], "uvicorn", "watch"),
        (["pack", "runs"], "rocrate", "pack"),
        (["watch", "."], "starlette", "watch"),
        (["run", "quickstart", "--tensorboard"], "tensorboard", "tensorboard"),
        (["run", "quickstart", "--track", "wandb"], "wandb", "wandb"),
        (["run", "quickstart", "--track", "tensorboard", "--track", "mlflow"], "mlflow", "mlflow"),
    ],
)
def test_who_needs_an_extra_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], package: str, extra: str
) -> None:
    missing(monkeypatch, package)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    assert f"needs the package {package}; run pip install 'coterie[{extra}]'" in result.output


def test_networks_of_torchvision_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    missing(monkeypatch, "torchvision")
    with pytest.raises(UserError, match=r"resnet18.* needs the package torchvision"):
        network("resnet18", 3, 10)


def missing(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("sim.errors.find_spec", lambda name: None if name == package else find(name))
