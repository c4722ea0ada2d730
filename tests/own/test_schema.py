"""What `coterie schema` says of tables that name the user's code: any, and those that a scenario names."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from tests.own.worlds import scenario_with
from tests.simulation.worlds import write

WAVE = """
from protocols import Duration

def mine(rng, base: Duration, sigma: float = 0.5):
    return base

def other(rng, deep: int):
    return deep
"""


def printed(*arguments: str) -> jsonschema.Draft202012Validator:
    result = CliRunner().invoke(app, ["schema", *arguments])
    assert result.exit_code == 0, result.output
    return jsonschema.Draft202012Validator(json.loads(result.stdout))


def places(validator: jsonschema.Draft202012Validator, contents: Any) -> set[str]:
    return {".".join(map(str, error.absolute_path)) for error in validator.iter_errors(contents)}


@pytest.mark.long
def test_code_of_ones_own_is_allowed_and_known_once_it_is_named(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, "network.latency", WAVE, keys='base = "1 s"')
    text = path.read_text().replace(
        "[devices]\n", '[devices]\nslow_times = [{ kind = "own.py:other", deep = 3 }]\n'
    )
    fine = tomllib.loads(write(tmp_path, text).read_text())
    wrong = tomllib.loads(
        text.replace('base = "1 s"', "base = 3, sgma = 1").replace("deep = 3", "deep = 'no'")
    )
    no_code = tomllib.loads(text.replace("own.py:mine", "nonsense"))
    anything, named = printed(), printed(str(path))
    for validator in (anything, named):
        validator.check_schema(validator.schema)
        assert places(validator, fine) == set()
        assert "network.latency.kind" in places(validator, no_code)
    assert places(anything, wrong) == set(), "its keys are not known"
    assert places(named, wrong) >= {
        "network.latency.base", "network.latency.sgma", "devices.slow_times.0.deep",
    }  # fmt: skip
    model = fine | {"model": {"name": "net.py:Net", "hidden": 3}}
    assert places(anything, model) == set()
