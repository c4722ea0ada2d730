"""All keys that a scenario may have, and valid values of them, from the classes that describe scenarios."""

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

from actors.settings.base import Settings
from sim.scenario.protocol_lookup import list_protocols, load_protocol
from sim.scenario.sections import Sections
from tests.fuzz.spoil import Place, find, put
from tests.fuzz.values import odd_value

Schema = dict[str, Any]
_DEEPEST = 6
_TIMES = ("0 s", "1 ms", "50 ms", "1 s", "20 s")
_WHOLE = (0, -1, 1, 2, 13, 100, 10**4, 10**6, 10**9, 10**12, 2**31, 2**53, 2**63 - 1, 2**63, 10**30)
_REAL = (0.0, -1.0, 1e-300, 1e-12, 1e-3, 0.5, 0.999999999999, 1.0, 1.5, 50.0, 1e3, 1e6, 1e15, 1e100, 1e308)
_COUNTS = ("0", "-1", "1e-300", "1e-9", "0.001", "1", "1000", "1e6", "1e9", "1e15", "1e100", "1e300")
_NOT_TRIED = ("fastest",)  # measuring may take long


class Key(NamedTuple):
    """A key: its place in a scenario, its schema, and that of the table or list that it belongs to."""

    place: Place
    schema: Schema
    owner: Schema


class Grammar:
    """The JSON Schema of one class of settings."""

    def __init__(self, settings: type[Settings]) -> None:
        self._root = settings.model_json_schema()
        self._definitions: Schema = self._root.get("$defs", {})

    def all_keys(self) -> Iterator[Key]:
        """Every key of every kind of table; of lists only the first item."""
        yield from self._keys(self._root, (), 0)

    def value(self, schema: Schema, rng: Random, depth: int = 0, *, extreme: bool = False) -> Any:
        """A random value of a schema, nearly always valid; None where there is none to be written.

        extreme: one of the right type, and with the right unit, but at the end of what could be meant.
        """
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice([word for word in schema["enum"] if word not in _NOT_TRIED])
        options = [option for option in _options(schema) if option.get("type") != "null"]
        if options:
            return self.value(rng.choice(options), rng, depth, extreme=extreme)
        match schema.get("type"):
            case "object":
                table = self._table(schema, rng, depth)
                if extreme and schema.get("properties"):
                    key = rng.choice(list(schema["properties"]))
                    table[key] = self.value(schema["properties"][key], rng, extreme=True)
                return table
            case "array":
                items = schema.get("prefixItems")
                if items is None:
                    counts = (1, 2, 5, 50) if extreme else (0, 1, 1, 2, 3)
                    items = [schema["items"]] * max(schema.get("minItems", 0), rng.choice(counts))
                return [self.value(item, rng, depth + 1, extreme=extreme) for item in items]
            case "integer" | "number" as kind:
                return rng.choice(_WHOLE if kind == "integer" else _REAL) if extreme else _number(schema, rng)
            case "boolean":
                return rng.random() < 0.5
        example = rng.choice(schema.get("examples") or ["x"])
        unit = str(example).partition(" ")[2]
        if extreme and unit:
            return f"{rng.choice(_COUNTS)} {unit}"
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

    def _keys(self, schema: Schema, above: Place, depth: int) -> Iterator[Key]:
        if depth > _DEEPEST:
            return
        schema = self._resolve(schema)
        for option in _options(schema):
            yield from self._keys(option, above, depth)
        if isinstance(items := schema.get("items"), dict):
            yield Key((*above, 0), items, schema)
            yield from self._keys(items, (*above, 0), depth + 1)
        for key, own in schema.get("properties", {}).items():
            yield Key((*above, key), own, schema)
            yield from self._keys(own, (*above, key), depth + 1)

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
def sections() -> tuple[Grammar, tuple[Key, ...]]:
    """The whole scenario but for the protocols' own settings: its grammar and its keys."""
    grammar = Grammar(Sections)
    return grammar, tuple(grammar.all_keys())


@cache
def protocol(name: str) -> tuple[Grammar, tuple[Key, ...]]:
    """A protocol's settings, with their places in a scenario."""
    grammar = Grammar(load_protocol(name).found.Settings)
    return grammar, tuple(Key(("protocol", *key.place), key.schema, {}) for key in grammar.all_keys())


def change(table: dict[str, Any], rng: Random) -> str:
    """Set one of all keys that a scenario could have to a valid value or an odd one, and say which."""
    if rng.random() < 0.1:
        return put(table, ("protocol", "name"), rng.choice(sorted(list_protocols())))
    name = find(table, ("protocol", "name"))
    is_ours = isinstance(name, str) and name in list_protocols()
    grammar, keys = protocol(name) if is_ours and rng.random() < 0.25 else sections()
    deepest = rng.choice((2, 2, 3, 4, _DEEPEST))  # most keys are deep in rare tables
    key = rng.choice([key for key in keys if len(key.place) <= deepest] or keys)
    _make_room(table, key, grammar, keys, rng)
    value = grammar.value(key.schema, rng, extreme=rng.random() < 0.67)
    return put(table, key.place, value if rng.random() < 0.85 else odd_value(rng))


def _make_room(table: dict[str, Any], key: Key, grammar: Grammar, keys: Sequence[Key], rng: Random) -> None:
    """See that there is a table, or a list, of the kind that has this key, with what it requires."""
    *above, last = key.place
    for depth in range(1, len(above)):
        place = tuple(above[:depth])
        if not isinstance(find(table, place), dict | list):
            owners = [other.schema for other in keys if other.place == place]
            put(table, place, grammar.value(rng.choice(owners), rng) if owners else {})
    if not key.owner or not above:
        return
    there, wanted = find(table, tuple(above)), key.owner.get("properties", {}).items()
    tags = {name: own["const"] for name, own in wanted if "const" in own}
    fits = isinstance(there, dict) and all(there.get(name) == tag for name, tag in tags.items())
    if not (isinstance(there, list) if isinstance(last, int) else fits):
        put(table, tuple(above), grammar.value(key.owner, rng))
