"""The JSON Schema, and the reference page that is made from it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import Field, TypeAdapter, model_validator

import sim
from actors.settings.base import Settings
from actors.settings.tables import kind_alone
from docs.build.scenarios import reference
from sim.scenario.editor_schema import for_editors
from sim.scenario.protocol_lookup import list_protocols, list_settings
from sim.scenario.schema import scenario_schema
from sim.scenario.sections import Sections
from tests.scenario.texts import FULL, SMALL, changed

ROOT = Path(sim.__path__[0]).parent


@pytest.fixture(scope="module")
def protocols() -> dict[str, Any]:
    return list_settings()


@pytest.fixture(scope="module")
def validator(protocols: dict[str, Any]) -> jsonschema.Draft202012Validator:
    schema = for_editors(scenario_schema(protocols))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.long
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


MLP = 'name = "mlp"\nhidden = [8]'
LATENCY = 'latency = "20 ms"'


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('period = "500 ms"', 'perod = "3 s"', "protocol.perod"),
        ('period = "500 ms"', "period = 3", "protocol.period"),
        ('name = "gossip"', 'name = "gosip"', "protocol.name"),
        (MLP, 'name = "mlp"\nhiden = [8]', "model.hiden"),
        (MLP, 'name = "mlp"\nhidden = [8, 0]', "model.hidden.1"),
        (MLP, 'name = "mpl"', "model.name"),
        (LATENCY, 'latency = "20 mss"', "network.latency"),
        (LATENCY, 'latency = { kind = "constant", value = "1 s", low = 0 }', "network.latency.low"),
        (LATENCY, 'latency = { kind = "constant", value = "1 ss" }', "network.latency.value"),
        (LATENCY, 'latency = { kind = "pareto" }', "network.latency"),
        (LATENCY, 'latency = { kind = "pretto" }', "network.latency.kind"),
        (LATENCY, LATENCY + "\nlos = 0.1", "network.los"),
        (LATENCY, LATENCY + "\nserver = { uplink = 3 }", "network.server.uplink"),
        ("count = 4", 'count = 4\ntopology = "rung"', "clients.topology"),
        ("count = 4", 'count = 4\ntopology = { kind = "ring", degree = 3 }', "clients.topology.degree"),
        ("[run]", "[rum]", "rum"),
    ],
)
def test_an_error_is_at_the_key_that_is_wrong(
    validator: jsonschema.Draft202012Validator, old: str, new: str, key: str
) -> None:
    errors = validator.iter_errors(tomllib.loads(SMALL.replace(old, new, 1)))
    places = {".".join(map(str, error.absolute_path)) for error in errors}
    assert key in places
    # Nothing else is marked, but for tables in which something is missing now.
    around = {key.rpartition(".")[0], ""}
    assert places - {key} <= around


def test_an_unknown_key_is_answered_with_those_that_there_are(
    validator: jsonschema.Draft202012Validator,
) -> None:
    text = changed(SMALL, 'period = "500 ms"', 'perod = "3 s"')
    [error] = validator.iter_errors(tomllib.loads(text))
    assert "unknown key; allowed: name, alone, unusual, period, fanout, local_steps, merge" in error.message


def test_editors_find_all_keys_of_all_kinds_with_their_meanings(
    validator: jsonschema.Draft202012Validator,
) -> None:
    definitions = validator.schema["$defs"]
    protocol = definitions["ProtocolChoice"]["properties"]
    assert "cobo" in protocol["name"]["anyOf"][0]["enum"]
    assert protocol["rho"]["description"]
    [latency] = [
        option
        for option in definitions["Network"]["properties"]["latency"]["anyOf"]
        if option.get("type") == "object"
    ]
    assert {"kind", "median", "sigma", "low", "high"} <= latency["properties"].keys()


def test_the_schema_names_itself(validator: jsonschema.Draft202012Validator) -> None:
    assert validator.schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert validator.schema["$id"].startswith("urn:coterie:")


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


def test_no_protocol_is_described_by_the_settings_of_others(protocols: dict[str, Any]) -> None:
    """`make reference` writes these lines, and a method may have no settings besides those of its base."""
    choices = scenario_schema(protocols)["$defs"]["ProtocolChoice"]["anyOf"]
    about = {choice["title"]: choice["description"] for choice in choices if "title" in choice}
    lines = list_protocols()
    assert [about[name] for name in ("fedavg-plus", "oracle")] == [lines["fedavg-plus"], lines["oracle"]]
    assert about["gossip"].startswith("Push the model to random peers")
    assert all(about.values()) and len(set(about.values())) == len(lines)


def test_the_reference_is_up_to_date(protocols: dict[str, Any]) -> None:
    pages = sorted((ROOT / "docs" / "scenarios").iterdir())
    committed = {page.name: page.read_text(encoding="utf-8") for page in pages}
    made = reference(protocols)
    old = [name for name in {*made, *committed} if made.get(name) != committed.get(name)]
    assert not old, f"run `make reference`, which writes {', '.join(sorted(old))} of docs/scenarios anew"


class Free(Settings):
    kind: Literal["free"]
    size: int = 3


class Bound(Settings):
    kind: Literal["bound"]
    size: int


class OneOfTwo(Settings):
    kind: Literal["one-of-two"]
    size: int | None = None

    @model_validator(mode="after")
    def _stated(self) -> OneOfTwo:
        if self.size is None:
            raise ValueError("state the size")
        return self


def test_a_kind_is_written_alone_if_it_needs_no_other_key() -> None:
    """In the schema as in a file: no list names these kinds a second time."""
    kinds: Any = Annotated[Free | Bound | OneOfTwo, Field(discriminator="kind")]
    table = TypeAdapter[Any](Annotated[kinds, kind_alone(kinds)])
    assert table.json_schema()["anyOf"][0] == {"enum": ["free"]}
    assert table.validate_python("free") == Free(kind="free")
    for kind in ("bound", "one-of-two"):
        with pytest.raises(ValueError, match="size"):
            table.validate_python(kind)
