"""All keys that a scenario may have, and valid values of them, from the classes that describe scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

from protocols.settings import Settings
from sim.protocol_loader import find_protocol, list_protocols
from sim.settings.sections import Sections
from tests.fuzz.tables import Place, has, put, shown, words
from tests.fuzz.values import odd_value

Schema = dict[str, Any]
_DEEPEST = 6
_TIMES = ("0 s", "1 ms", "50 ms", "1 s", "20 s")
# Compiling takes up to minutes, as documented, and measuring all ways may take long as well.
_NOT_TRIED = ("compiled", "fastest")


class Grammar:
    """The JSON Schema of one class of settings."""

    def __init__(self, settings: type[Settings]) -> None:
        self._root = settings.model_json_schema()
        self._definitions: Schema = self._root.get("$defs", {})

    def places(self) -> Iterator[tuple[Place, Schema]]:
        """Every key with its schema, of every kind of its tables; of lists only the first item."""
        yield from self._places(self._root, (), 0)

    def value(self, schema: Schema, rng: Random, depth: int = 0) -> Any:
        """A random value of a schema, nearly always valid; None where there is none to be written."""
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice([word for word in schema["enum"] if word not in _NOT_TRIED])
        options = [option for option in _options(schema) if option.get("type") != "null"]
        if options:
            return self.value(rng.choice(options), rng, depth)
        match schema.get("type"):
            case "object":
                return self._table(schema, rng, depth)
            case "array":
                return self._list(schema, rng, depth)
            case "integer" | "number":
                return _number(schema, rng)
            case "boolean":
                return rng.random() < 0.5
        example = rng.choice(schema.get("examples") or ["x"])
        return rng.choice(_TIMES) if example == "20 s" else example

    def _table(self, schema: Schema, rng: Random, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        table = {}
        for key, own in schema.get("properties", {}).items():
            if key in required or (depth < _DEEPEST and rng.random() < 0.3):
                value = self.value(own, rng, depth + 1)
                if value is not None:
                    table[key] = value
        return table

    def _list(self, schema: Schema, rng: Random, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(item, rng, depth + 1) for item in schema["prefixItems"]]
        count = max(schema.get("minItems", 0), rng.choice((0, 1, 1, 2, 3)))
        return [self.value(schema["items"], rng, depth + 1) for _ in range(count)]

    def _places(self, schema: Schema, above: Place, depth: int) -> Iterator[tuple[Place, Schema]]:
        if depth > _DEEPEST:
            return
        schema = self._resolve(schema)
        for option in _options(schema):
            yield from self._places(option, above, depth)
        if isinstance(items := schema.get("items"), dict):
            yield (*above, 0), items
            yield from self._places(items, (*above, 0), depth + 1)
        for key, own in schema.get("properties", {}).items():
            yield (*above, key), own
            yield from self._places(own, (*above, key), depth + 1)

    def _resolve(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            schema = self._definitions[schema["$ref"].removeprefix("#/$defs/")]
        return schema


def _options(schema: Schema) -> list[Schema]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _number(schema: Schema, rng: Random) -> float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most = min(schema.get("maximum", schema.get("exclusiveMaximum", 1e6)), 1e6)
    if schema["type"] == "integer":
        low = least + ("exclusiveMinimum" in schema)
        return int(min(most, low + rng.choice((0, 0, 1, 2, 3, 5))))
    between = rng.choice((0.5, 0.1, 0.9, rng.random()))
    return least + between * (min(most, least + 2) - least)


@cache
def sections() -> tuple[Grammar, tuple[tuple[Place, Schema], ...]]:
    """The whole scenario but for the protocols' own settings: its grammar and its places."""
    grammar = Grammar(Sections)
    return grammar, tuple(grammar.places())


@cache
def protocol(name: str) -> tuple[Grammar, tuple[tuple[Place, Schema], ...]]:
    """A protocol's settings, with their places in a scenario."""
    grammar = Grammar(find_protocol(name).Settings)
    return grammar, tuple((("protocol", *place), schema) for place, schema in grammar.places())


@cache
def protocols() -> tuple[str, ...]:
    """The names of all protocols that come with the product."""
    return tuple(sorted(list_protocols()))


def change(table: dict[str, Any], rng: Random) -> str:
    """Set one of all keys that a scenario could have to a valid value or an odd one, and say which."""
    if rng.random() < 0.1:
        return _set(table, ("protocol", "name"), rng.choice(protocols()))
    section = table.get("protocol")
    name = section.get("name") if isinstance(section, dict) else None
    grammar, found = protocol(name) if name in protocols() and rng.random() < 0.25 else sections()
    place, schema = rng.choice(found)
    for depth in range(1, len(place)):
        if not has(table, place[:depth]):  # what is required beside the key
            above = [own for other, own in found if other == place[:depth]]
            _set(table, place[:depth], grammar.value(rng.choice(above), rng) if above else {})
    return _set(table, place, grammar.value(schema, rng) if rng.random() < 0.7 else odd_value(rng))


def _set(table: dict[str, Any], place: Place, value: Any) -> str:
    possible = put(table, place, value)
    return f"{words(place)} = {shown(value)}" if possible else f"{words(place)} cannot be set"
