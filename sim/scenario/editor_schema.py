"""JSON Schema for editors, which marks the invalid key instead of the whole table.

Under ``oneOf`` and ``anyOf``, a validator can only report that a table fits none of its kinds. Here, ``if``
and ``then`` select the allowed keys by the kind, so the validator reports the unknown key. Editors complete
only keys outside of ``then``: therefore the keys of all kinds are listed there, with descriptions only.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sim.plugins.section import USERS_CODE
from sim.scenario.schema import Schema, resolve

Choice = tuple[Schema, Schema]
"""Schema of the kind (or name) of a table, and schema of tables with this kind (or name)."""

_NULL: Schema = {"type": "null"}  # TOML has no null
_OURS = ("discriminator", "x-own", "x-named")  # not keywords of JSON Schema


def for_editors(schema: Schema) -> dict[str, Any]:
    """Return the schema of `scenario_schema`, converted for editors."""
    definitions = schema["$defs"]
    *ours, custom = definitions["ProtocolChoice"]["anyOf"]
    protocols: list[Choice] = [({"enum": [table["title"]]}, table) for table in ours]
    users: Choice = (custom["properties"]["name"], {})
    definitions = {name: table for name, table in definitions.items() if name != "ProtocolChoice"}
    converted = {name: _converted(table, definitions) for name, table in definitions.items()}
    converted["ProtocolChoice"] = _by_name("name", protocols, definitions, [users])
    root = _converted({key: value for key, value in schema.items() if key != "$defs"}, definitions)
    # A file may contain only the sweep of another file's scenario.
    is_sweep_alone = {"properties": {"sweep": {"required": ["scenario"]}}, "required": ["sweep"]}
    root |= {"if": is_sweep_alone, "then": {"maxProperties": 1}, "else": {"required": root.pop("required")}}
    head = {"$schema": schema["$schema"], "$id": "urn:coterie:scenario"}
    return head | root | {"$defs": _referenced(converted, root)}


def _referenced(definitions: Schema, root: Schema) -> Schema:
    """Return the definitions that are referred to."""
    text = json.dumps([root, definitions])
    kept = {name: table for name, table in definitions.items() if f'"#/$defs/{name}"' in text}
    return kept if len(kept) == len(definitions) else _referenced(kept, root)


def _converted(schema: Any, definitions: Schema) -> Any:
    """Return the schema with `if` and `then` instead of `anyOf` and `oneOf`; keep all other keywords."""
    if isinstance(schema, list):
        return [_converted(item, definitions) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {
        key: _converted(value, definitions)
        for key, value in schema.items()
        if key not in ("anyOf", "oneOf", *_OURS) and (key, value) != ("default", None)
    }
    if schema.get("additionalProperties") is False:
        # `false` would be an error of the table; validators quote the title.
        known = ", ".join(schema.get("properties", {})) or "none"
        found["additionalProperties"] = {"not": {"title": f"unknown key; allowed: {known}"}}
    if "discriminator" in schema or "x-own" in schema:
        found |= _by_kind(schema, definitions)
    if "anyOf" in schema:
        found |= _any_of([option for option in schema["anyOf"] if option != _NULL], definitions)
    return found


def _any_of(options: Sequence[Schema], definitions: Schema) -> dict[str, Any]:
    """Return the schema of a key with plain values or a table, which reports errors at the table's keys."""
    tables = [each for each in options if _tables(each, definitions)[0].get("type") == "object"]
    plain = [_converted(option, definitions) for option in options if option not in tables]
    if not tables:
        return plain[0] if len(plain) == 1 else {"anyOf": plain}
    [table] = [_converted(option, definitions) for option in tables]
    if not plain:
        return table
    known = {"type": "object", "properties": _key_descriptions(_tables(tables[0], definitions))}
    return {"anyOf": [*plain, known], "if": {"type": "object"}, "then": table}


def _tables(option: Schema, definitions: Schema) -> list[Schema]:
    """Return the schemas of the tables that an option allows."""
    kinds = option.get("discriminator", {}).get("mapping", {}).values()
    return [resolve({"$ref": kind}, definitions) for kind in kinds] or [resolve(option, definitions)]


def _by_kind(schema: Schema, definitions: Schema) -> dict[str, Any]:
    """Return the schema of a table of several kinds, or of one that names the user's code."""
    discriminator = schema.get("discriminator", {"propertyName": "kind", "mapping": {}})
    tags: dict[str, list[str]] = {}
    for tag, reference in discriminator["mapping"].items():
        tags.setdefault(reference, []).append(tag)
    tables: list[Choice] = [({"enum": names}, {"$ref": reference}) for reference, names in tags.items()]
    others: list[Choice] = []
    if "x-own" in schema:
        # Plugins that are known by name come first; the keys of others are known only after loading.
        tables += [({"pattern": named["pattern"]}, named["table"]) for named in schema.get("x-named", ())]
        others = [({"pattern": USERS_CODE}, schema["x-own"])]
    return _by_name(discriminator["propertyName"], tables, definitions, others)


def _by_name(
    key: str, tables: Sequence[Choice], definitions: Schema, others: Sequence[Choice] = ()
) -> dict[str, Any]:
    """Return the schema of a table that names its kind in `key`.

    `others` may contain any keys; only their known keys are listed.
    """
    known: list[Schema] = [{"enum": [tag for choice, _ in tables for tag in choice.get("enum", ())]}]
    choices = [choice for choice in known if choice["enum"]] + [choice for choice, _ in others]
    meanings = _key_descriptions([resolve(table, definitions) for _, table in (*tables, *others)])
    table = {
        "type": "object",
        "required": [key],
        "properties": meanings | {key: choices[0] if len(choices) == 1 else {"anyOf": choices}},
    }
    contents = [
        {"if": {"properties": {key: choice}, "required": [key]}, "then": _converted(each, definitions)}
        for choice, each in tables
    ]
    return table | ({"allOf": contents} if contents else {})


def _key_descriptions(tables: Sequence[Schema]) -> dict[str, Schema]:
    """Return the keys of all these tables with their first description, without constraints."""
    found: dict[str, Schema] = {}
    for table in tables:
        for key, schema in table.get("properties", {}).items():
            found.setdefault(key, {name: schema[name] for name in ("description",) if name in schema})
    return found
