"""Variations that the headers of the scenarios name: each is an indented line of options, and runs."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.scenario.scenario import load_scenario
from sim.studies.cells import Plan, plan
from tests.simulation.test_scenarios import FOLDER, LONG, SHORT, skip_without_data

# Those whose runs take many seconds even in the short form: a slow test runs them, another reads them.
HEAVY = (*LONG, "l2c_cifar10", "mapl", "scool_full")


def header(path: Path) -> str:
    """A scenario's first comment, as it stands there."""
    return re.match(r"(#.*\n)*", path.read_text(encoding="utf-8"))[0]  # type: ignore[index]


def variations() -> list[tuple[str, str]]:
    """Scenarios and options, such as ("gossip", "--set network.loss=0.2"); of several values, each."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        block = "\n".join(re.findall(r"^#     (.*)$", header(path), re.MULTILINE)).replace("\\\n", " ")
        found += [(path.stem, shlex.join(shlex.split(line, comments=True))) for line in block.splitlines()]
    return found


def planned(name: str, options: str) -> Plan:
    """The runs that the options ask for, which are --set and --unset alone."""
    flags, values = shlex.split(options)[::2], shlex.split(options)[1::2]
    assert set(flags) <= {"--set", "--unset"}, options
    given = list(zip(flags, values, strict=True))
    overrides, unset = ([value for flag, value in given if flag == of] for of in ("--set", "--unset"))
    return plan(FOLDER / f"{name}.toml", overrides, unset=unset)


def shortened(name: str, overrides: Sequence[str]) -> list[str]:
    """Its short form, less what that says of a list that is taken away, or of another method."""
    another = any(each.startswith("protocol.name=") for each in overrides)
    replaced = tuple(each.partition("=")[0] for each in overrides if each.endswith("=[]"))
    others = (*replaced, *(["protocol."] if another else []))
    return [*overrides, *[each for each in SHORT[name] if not each.startswith(others)]]


def run(name: str, options: str, out: Path) -> None:
    skip_without_data(name)
    for cell in planned(name, options).cells:
        overrides = shortened(name, cell.overrides)
        scenario = load_scenario(FOLDER / f"{name}.toml", overrides, unset=cell.unset)
        summary = run_scenario(scenario, RunOptions(out=out, device="cpu")).summary
        assert summary["finished"] and not summary["failures"], overrides


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_headers_name_options_in_blocks_alone(path: Path) -> None:
    prose = re.sub(r"^#     .*$", "", header(path), flags=re.MULTILINE)
    assert not re.search(r"--\w", prose), f"{path.name}: options stand in a block, which a test runs"


@pytest.mark.long
@pytest.mark.parametrize(("name", "options"), [each for each in variations() if each[0] not in HEAVY])
def test_a_variation_runs(name: str, options: str, tmp_path: Path) -> None:
    run(name, options, tmp_path)


@pytest.mark.parametrize(("name", "options"), [each for each in variations() if each[0] in HEAVY])
def test_a_long_variation_is_valid(name: str, options: str) -> None:
    assert planned(name, options).cells


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [each for each in variations() if each[0] in HEAVY])
def test_a_long_variation_runs(name: str, options: str, tmp_path: Path) -> None:
    run(name, options, tmp_path)
