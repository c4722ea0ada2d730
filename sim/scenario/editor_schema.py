"""The JSON Schema in the form in which editors mark the one key that is wrong, not the table around it.

Under ``oneOf`` and ``anyOf`` a validator can only say that a table fits none of its kinds. Here the kind
decides, by ``if`` and ``then``, what else a table may hold, and it is the unknown key that is not allowed.
What editors complete they look for outside of ``then``: the keys of all kinds stand there, with their
meanings only.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sim.plugins.section import USERS_CODE
from sim.scenario.schema import Schema, resolve

Choice = tuple[Schema, Schema]
"""The schema of a table's kind, or name, and the schema of tables of that kind or name."""

_NULL: Schema = {"type": "null"}  # which TOML does not have
_OURS = ("discriminator", "x-own", "x-named")  # no keywords of JSON Schema


def for_editors(schema: Schema) -> dict[str, Any]:
    """A scenario's schema, as `scenario_schema` makes it, for editors."""
    definitions = schema["$defs"]
    *ours, custom = definitions["ProtocolChoice"]["anyOf"]
    protocols: list[Choice] = [({"enum": [table["title"]]}, table) for table in ours]
    users: Choice = (custom["properties"]["name"], {})
    definitions = {name: table for name, table in definitions.items() if name != "ProtocolChoice"}
    converted = {name: _converted(table, definitions) for name, table in definitions.items()}
    converted["ProtocolChoice"] = _by_name("name", protocols, definitions, [users])
    root = _converted({key: value for key, value in schema.items() if key != "$defs"}, definitions)
    # A file may hold nothing but the sweep of another file's scenario.
    is_sweep_alone = {"properties": {"sweep": {"required": ["scenario"]}}, "required": ["sweep"]}
    root |= {"if": is_sweep_alone, "then": {"maxProperties": 1}, "else": {"required": root.pop("required")}}
    head = {"$schema": schema["$schema"], "$id": "urn:coterie:scenario"}
    return head | root | {"$defs": _used(converted, root)}


def _used(definitions: Schema, root: Schema) -> Schema:
    """The definitions without those that nothing refers to."""
    text = json.dumps([root, definitions])
    kept = {name: table for name, table in definitions.items() if f'"#/$defs/{name}"' in text}
    return kept if len(kept) == len(definitions) else _used(kept, root)


def _converted(schema: Any, definitions: Schema) -> Any:
    """The schema with `if` and `then` instead of `anyOf` and `oneOf`; all other keywords stay."""
    if isinstance(schema, list):
        return [_converted(item, definitions) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    rest = {
        key: _converted(value, definitions)
        for key, value in schema.items()
        if key not in ("anyOf", "oneOf", *_OURS) and (key, value) != ("default", None)
    }
    if schema.get("additionalProperties") is False:
        # `false` would be the table's error; the title is what validators quote.
        known = ", ".join(schema.get("properties", {})) or "none"
        rest["additionalProperties"] = {"not": {"title": f"unknown key; allowed: {known}"}}
    if "discriminator" in schema or "x-own" in schema:
        rest |= _by_kind(schema, definitions)
    if "anyOf" in schema:
        rest |= _any_of([option for option in schema["anyOf"] if option != _NULL], definitions)
    return rest


def _any_of(options: Sequence[Schema], definitions: Schema) -> dict[str, Any]:
    """The schema of a key with plain values or a table; mistakes in the table are reported at its keys."""
    tables = [each for each in options if _tables(each, definitions)[0].get("type") == "object"]
    plain = [_converted(option, definitions) for option in options if option not in tables]
    if not tables:
        return plain[0] if len(plain) == 1 else {"anyOf": plain}
    [table] = [_converted(option, definitions) for option in tables]
    if not plain:
        return table
    known = {"type": "object", "properties": _meanings(_tables(tables[0], definitions))}
    return {"anyOf": [*plain, known], "if": {"type": "object"}, "then": table}


def _tables(option: Schema, definitions: Schema) -> list[Schema]:
    """The tables that an option may be."""
    kinds = option.get("discriminator", {}).get("mapping", {}).values()
    return [resolve({"$ref": kind}, definitions) for kind in kinds] or [resolve(option, definitions)]


def _by_kind(schema: Schema, definitions: Schema) -> dict[str, Any]:
    """The schema of a table that comes in several kinds, or names the user's code."""
    discriminator = schema.get("discriminator", {"propertyName": "kind", "mapping": {}})
    tags: dict[str, list[str]] = {}
    for tag, reference in discriminator["mapping"].items():
        tags.setdefault(reference, []).append(tag)
    tables: list[Choice] = [({"enum": names}, {"$ref": reference}) for reference, names in tags.items()]
    others: list[Choice] = []
    if "x-own" in schema:
        # Those that are known by name first; the keys of any other are known when it is loaded.
        tables += [({"pattern": named["pattern"]}, named["table"]) for named in schema.get("x-named", ())]
        others = [({"pattern": USERS_CODE}, schema["x-own"])]
    return _by_name(discriminator["propertyName"], tables, definitions, others)


def _by_name(
    key: str, tables: Sequence[Choice], definitions: Schema, others: Sequence[Choice] = ()
) -> dict[str, Any]:
    """A table whose `key` says which of these it is; of `others`, which may hold anything, keys are shown."""
    known: list[Schema] = [{"enum": [tag for choice, _ in tables for tag in choice.get("enum", ())]}]
    choices = [choice for choice in known if choice["enum"]] + [choice for choice, _ in others]
    meanings = _meanings([resolve(table, definitions) for _, table in (*tables, *others)])
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


def _meanings(tables: Sequence[Schema]) -> dict[str, Schema]:
    """The keys of all these tables with their descriptions, of the first table each, and no constraints."""
    found: dict[str, Schema] = {}
    for table in tables:
        for key, schema in table.get("properties", {}).items():
            found.setdefault(key, {name: schema[name] for name in ("description",) if name in schema})
    return found
