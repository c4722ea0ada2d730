"""The JSON Schema, and the reference page that is made from it."""

import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import sim
from sim.protocol_loader import find_protocol, list_protocols
from sim.reference import reference
from sim.schema import scenario_schema
from sim.settings.sections import Sections
from tests.scenario.texts import FULL, SMALL, changed

ROOT = Path(sim.__path__[0]).parent


@pytest.fixture(scope="module")
def protocols() -> dict[str, Any]:
    return {name: find_protocol(name).Settings for name in list_protocols()}


@pytest.fixture(scope="module")
def validator(protocols: dict[str, Any]) -> jsonschema.Draft202012Validator:
    schema = scenario_schema(protocols)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("text", [SMALL, FULL], ids=["small", "full"])
def test_scenarios_fit_the_schema(validator: jsonschema.Draft202012Validator, text: str) -> None:
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []


def test_the_scenarios_that_come_with_it_fit_the_schema(validator: jsonschema.Draft202012Validator) -> None:
    for path in (ROOT / "scenarios").glob("*.toml"):
        contents = tomllib.loads(path.read_text())
        assert [f"{path}: {error.message}" for error in validator.iter_errors(contents)] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count = 4", "count = 0"),
        ('latency = "20 ms"', "latency = 20"),
        ('latency = "20 ms"', 'latency = "20 mss"'),
        ("batch_size", "batchsize"),
        ('period = "500 ms"', "period = 3"),
        ('period = "500 ms"', 'perod = "3 s"'),
        ('"15 s"', '"15"'),
    ],
)
def test_the_schema_refuses_what_is_wrong(
    validator: jsonschema.Draft202012Validator, old: str, new: str
) -> None:
    assert not validator.is_valid(tomllib.loads(changed(SMALL, old, new)))


def test_a_protocol_of_the_users_own_is_allowed(validator: jsonschema.Draft202012Validator) -> None:
    text = changed(SMALL, 'name = "gossip"', 'name = "mine.py:Mine"\nanything = 3')
    assert validator.is_valid(tomllib.loads(text))


def test_every_definition_is_used(validator: jsonschema.Draft202012Validator) -> None:
    text = str(validator.schema)
    unused = [name for name in validator.schema["$defs"] if f"'#/$defs/{name}'" not in text]
    assert unused == []


def test_every_key_is_documented(protocols: dict[str, Any]) -> None:
    definitions = Sections.model_json_schema()["$defs"]
    undocumented = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        for key, schema in definition["properties"].items()
        if "description" not in schema and key not in ("kind", "name")
    ]
    assert undocumented == []


def test_the_reference_is_up_to_date(protocols: dict[str, Any]) -> None:
    committed = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert committed == reference(protocols), "run `make reference`"
