"""JSON Schema of scenario files, for completion in editors, and its contents in words."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import models_json_schema

from actors.settings.base import Settings
from sim.scenario.sections import Sections
from sim.scenario.sections.sweep import Sweep

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class OwnTable:
    """A section of the user's code. path: the keys that lead to it, "*" for any item of a list."""

    path: str
    name: str
    section: type[Settings]


def scenario_schema(protocols: Mapping[str, type[Settings]], own: Iterable[OwnTable] = ()) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of scenario files, with these protocols and user's tables."""
    models: list[type[Settings]] = [Sections, Sweep, *protocols.values()]
    references, schema = models_json_schema([(model, "validation") for model in models])
    definitions = schema["$defs"]
    choices = []
    for name, settings in protocols.items():
        table = definitions[_definition(references[settings, "validation"])]
        choices.append(
            {
                "title": name,
                "description": table.get("description", ""),
                "type": "object",
                "properties": {"name": {"const": name}, **table.get("properties", {})},
                "required": ["name", *table.get("required", ())],
                "additionalProperties": False,
            }
        )
    # The user's protocol: its settings are checked when its class is loaded.
    custom = {"type": "object", "properties": {"name": {"pattern": ":"}}, "required": ["name"]}
    definitions["ProtocolChoice"] = {"anyOf": [*choices, custom]}
    for name in {_definition(references[settings, "validation"]) for settings in protocols.values()}:
        del definitions[name]  # only the choices use them
    root = definitions.pop("Sections")
    root["properties"]["sweep"] = {"$ref": "#/$defs/Sweep"}
    for table in own:
        named = {"pattern": _code_name_pattern(table.name), "table": _section_schema(table, definitions)}
        for node in _nodes(root, table.path.split("."), definitions):
            node.setdefault("x-named", []).append(named)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": definitions}


def _code_name_pattern(name: str) -> str:
    """Return a pattern for the name of the user's code, with any path to its file."""
    file, _, label = name.rpartition(":")
    return f"(^|/){re.escape(file.rpartition('/')[2])}:{label}$"


def _section_schema(table: OwnTable, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a section, and add the schemas that it needs to the definitions."""
    schema = table.section.model_json_schema()
    definitions.update(schema.pop("$defs", {}))
    for key, value in schema["properties"].items():
        if value.get("const") == table.name:  # a file may use another path
            schema["properties"][key] = {"pattern": _code_name_pattern(table.name)}
    return schema


def _nodes(node: dict[str, Any], parts: Sequence[str], definitions: Schema) -> Iterator[dict[str, Any]]:
    """Return the nodes of the schema at a path that allow the user's code."""
    options = [node, *node.get("anyOf", ())]
    if not parts:
        yield from [option for option in options if "x-own" in option]
        return
    for option in options:
        if parts[0] == "*" and "items" in option:
            yield from _nodes(option["items"], parts[1:], definitions)
        tables = option.get("discriminator", {}).get("mapping", {}).values() or [option.get("$ref")]
        for table in [resolve({"$ref": each}, definitions) for each in tables if each] or [option]:
            if parts[0] in table.get("properties", {}):
                yield from _nodes(table["properties"][parts[0]], parts[1:], definitions)


def _definition(reference: Schema) -> str:
    return reference["$ref"].removeprefix("#/$defs/")


def resolve(schema: Schema, definitions: Schema) -> Schema:
    """Return the schema, or the definition that it refers to."""
    return definitions[_definition(schema)] if "$ref" in schema else schema


def allowed_values(schema: Schema, definitions: Schema) -> str:
    """Describe the allowed values of a key in words."""
    if "x-allowed" in schema:
        return schema["x-allowed"]
    if "const" in schema:
        return _quoted(schema["const"])
    if "enum" in schema:
        words = [_quoted(word) for word in schema["enum"]]
        return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
    if "$ref" in schema:
        return f"a table with the keys {', '.join(resolve(schema, definitions)['properties'])}"
    if "discriminator" in schema:
        key, mapping = schema["discriminator"]["propertyName"], schema["discriminator"]["mapping"]
        users = ', or names your code, "my_file.py:name"' if "x-own" in schema else ""
        return f"a table whose {key} is one of {', '.join(map(_quoted, mapping))}{users}"
    if "x-own" in schema:
        return 'a table whose kind names your code, "my_file.py:name"'
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option.get("type") != "null"]
        return ", or ".join(allowed_values(option, definitions) for option in options)
    if schema["type"] == "array":
        if "prefixItems" in schema:
            items = schema["prefixItems"]
            return f"a list of {len(items)}, each {allowed_values(items[0], definitions)}"
        return f"a list, each {allowed_values(schema['items'], definitions)}"
    names = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}
    return names[schema["type"]] + _bounds(schema)


def _bounds(schema: Schema) -> str:
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
        "exclusiveMaximum": "less than",
        "multipleOf": "a multiple of",
    }
    # Omit technical bounds such as 2**63.
    bounds = [
        f"{word} {schema[key]:,}".removesuffix(".0")
        for key, word in words.items()
        if abs(schema.get(key, 1e18)) < 1e15
    ]
    return f", {' and '.join(bounds)}" if bounds else ""


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
