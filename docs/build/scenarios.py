"""Generator of docs/scenarios from the JSON Schema: ``python -m docs.build.scenarios docs/scenarios``.

A table that several keys share is described at the first of them; the other keys link to it.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.settings.base import Settings
from actors.settings.units import BANDWIDTH, COMPUTE, DURATION, ENERGY, ENERGY_PER_BYTE, POWER, SIZE
from sim.scenario.schema import Schema, allowed_values, resolve, scenario_schema

_HEAD = """\
# Scenario files

These pages list every section and key of a scenario. `make reference` generates them.

A scenario is a TOML file. Its first comment states the question that it answers. `coterie check SCENARIO`
reports its errors. `coterie schema` prints the JSON Schema, with which [editors](../guide.md#editors)
complete keys.

- Quantities have a unit: `"20 ms"`, `"10 Mbit/s"`, `"4 MB"`.
- Clients are numbered from 0.
- Numbers have an upper bound of a million or more, which these pages omit.

| option of the command line | effect |
| --- | --- |
| `--set section.key=value` | overrides a key |
| `--set churn.0.at="3 min"` | overrides a key of a list's item; the first item is 0 |
| `--unset section.key` | removes a key from the file, before any `--set` |
| `--set protocol.name=X` | removes settings of the protocol that X does not have, and prints a notice |

| quantity | units |
| --- | --- |
"""
_QUANTITIES = (DURATION, BANDWIDTH, SIZE, COMPUTE, POWER, ENERGY, ENERGY_PER_BYTE)
_ABOUT = {
    "data": "The data set, and its partition among the clients.",
    "model": "The model that the clients train.",
    "training": "Local training steps.",
    "protocol": "The method that the clients run.",
    "churn_process": "Random or measured joins and departures.",
}
"""Descriptions of sections whose class has none."""
_TABLE_BELOW = re.compile(
    r'a table (whose \w+ is one of ("[\w-]+"(, )?)+(or names your code, "my_file.py:name")?'
    r'|whose kind names your code, "my_file.py:name"|with the keys \w+(, \w+)*)'
)
"""Values that another part of the page describes."""
_Row = tuple[str, str, str, str]
"""Name, values, default and meaning of a key."""
_HEADS = ("key", "value", "default", "meaning")


def reference(protocols: Mapping[str, type[Settings]]) -> dict[str, str]:
    """Return the pages by file name, with the settings of these protocols, by name."""
    schema = scenario_schema(protocols)
    pages = _Pages(schema["$defs"])
    quantities = "".join(f"| {quantity.name} | {', '.join(quantity.units)} |\n" for quantity in _QUANTITIES)
    index = ["| section | | contents |", "| --- | --- | --- |"]
    found = {}
    for name, section in schema["properties"].items():
        title = f"[[{name}]]" if section.get("type") == "array" else f"[{name}]"
        needed = "required" if name in schema["required"] else ""
        text = _ABOUT.get(name) or next(tables(section, schema["$defs"]))["description"]
        about = _line(text.partition("\n\n")[0])
        index.append(f"| [`{title}`]({name}.md) | {needed} | {about} |")
        described = pages.protocols(section) if name == "protocol" else pages.described(name, section)
        lead = [f"{text}\n"] if name in _ABOUT else []
        found[f"{name}.md"] = "\n".join([f"# `{title}`\n", *lead, *described]).rstrip("\n") + "\n"
    return {"README.md": f"{_HEAD}{quantities}\n" + "\n".join(index) + "\n", **found}


def keys_of(kind: type[Settings]) -> str:
    """Return a table of the keys of one class of settings."""
    schema = kind.model_json_schema()
    return markdown_table(_HEADS, _Pages(schema.get("$defs", {})).rows(schema))


class _Pages:
    """Writer of descriptions of keys, which records the key at which each table is described."""

    def __init__(self, definitions: Schema) -> None:
        self.definitions = definitions
        self.described_at: dict[str, str] = {}

    def described(self, key: str, schema: Schema) -> Iterator[str]:
        """Yield the tables that the value of `key` may be, then the tables inside them."""
        text = "\n".join(self._tables(schema))
        if not text:
            return
        title = [f"## `{key}`\n"] if "." in key else []
        first = self.described_at.setdefault(text, key)
        if first != key:
            anchor = re.sub(r"[^\w-]", "", first)
            link = f"{first.partition('.')[0]}.md#{anchor}"
            yield from [*title, f"Same as [`{first}`]({link}).\n"]
            return
        yield from [*title, text]
        inside = [*kinds(schema, self.definitions).values(), *tables(schema, self.definitions)]
        seen: set[str] = set()
        for name, inner in [pair for table in inside for pair in table["properties"].items()]:
            part = "\n".join(self.described(f"{key}.{name}", inner))
            if part and part not in seen:  # several kinds may have the same key
                yield part
            seen.add(part)

    def _tables(self, schema: Schema) -> Iterator[str]:
        choices = dict(kinds(schema, self.definitions))
        own = own_table(schema)
        if own is not None:
            choices["my_file.py:name"] = own
        if choices:
            chosen_by = "kind" if all("kind" in table["properties"] for table in choices.values()) else "name"
            described = [(f'`"{tag}"`', _line(table["description"])) for tag, table in choices.items()]
            yield markdown_table([f"`{chosen_by}`", "meaning"], described)
            yield from self._keys_of_kinds(choices, chosen_by)
        for table in tables(schema, self.definitions):
            yield f"{table['description']}\n"
            yield markdown_table(_HEADS, self.rows(table))

    def _keys_of_kinds(self, choices: Mapping[str, Schema], chosen_by: str) -> Iterator[str]:
        """Yield one table of the keys of all kinds, with the kinds that have each key."""
        having: dict[_Row, list[str]] = {}
        for tag, table in choices.items():
            for row in self.rows(table, leave_out=chosen_by):
                having.setdefault(row, []).append(tag)
        if having:
            heads = ["key", f"of {chosen_by}", "value", "default", "meaning"]
            entries = [(row[0], _some(tags, list(choices)), *row[1:]) for row, tags in having.items()]
            yield markdown_table(heads, entries)

    def rows(self, table: Schema, leave_out: str = "") -> list[_Row]:
        """Return a row for each key of a table."""
        required = table.get("required", ())
        return [
            self._row(name, schema, name in required)
            for name, schema in table["properties"].items()
            if name != leave_out
        ]

    def _row(self, name: str, schema: Schema, is_required: bool) -> _Row:
        text = allowed_values(schema, self.definitions)
        for quantity in _QUANTITIES:
            text = text.replace(quantity.allowed, f"a {quantity.name}")  # the index has the units
        text = re.sub(r"( and|,) (at most|less than) \d{1,3}(,\d{3}){2,}", "", text)
        text = _TABLE_BELOW.sub("a table (below)", text)
        default = "required" if is_required else _default(schema)
        return f"`{name}`", text, default, _line(schema.get("description", ""))

    def protocols(self, section: Schema) -> Iterator[str]:
        """Yield the settings of all protocols, those of several protocols, then those of each protocol."""
        choice = resolve(section, self.definitions)
        known = [option for option in choice["anyOf"] if "title" in option]  # others are the user's own
        common = set.intersection(*[set(option["properties"]) for option in known]) - {"name"}
        yield (
            "`name` is a name below, `package.module:Class`, or `my_file.py:Class`. The section also "
            "contains the settings of the method, and these settings of all methods:\n"
        )
        of_all = [self._row(name, known[0]["properties"][name], False) for name in sorted(common)]
        yield markdown_table(_HEADS, of_all)
        rows = {
            option["title"]: [row for row in self.rows(option) if row[0].strip("`") not in {"name", *common}]
            for option in known
        }
        shared = _most_common(
            (name, values, meaning) for each in rows.values() for name, values, _, meaning in each
        )
        yield "## Settings that several methods have\n"
        yield "Each method below lists its defaults.\n"
        yield markdown_table(["key", "value", "meaning"], sorted(shared))
        for option in known:
            yield f"## `{option['title']}`\n"
            if option.get("description"):
                yield f"{_line(option['description'])}\n"
            mine = [row for row in rows[option["title"]] if (row[0], row[1], row[3]) not in shared]
            others = [row for row in rows[option["title"]] if row not in mine]
            if others:
                listed = ", ".join(
                    f"{name} = {default}" if default else name for name, _, default, _ in others
                )
                yield f"[Shared](#settings-that-several-methods-have): {listed}.\n"
            if mine:
                yield markdown_table(_HEADS, mine)


def _most_common(settings: Iterable[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Return the most common setting of each key, if at least two protocols have it."""
    found: dict[str, tuple[str, str, str]] = {}
    for setting, count in Counter(settings).most_common():
        if count > 1:
            found.setdefault(setting[0], setting)
    return set(found.values())


def _some(tags: list[str], every: list[str]) -> str:
    """Return a short list of these kinds, among all kinds."""
    others = [tag for tag in every if tag not in tags]
    if len(others) >= len(tags):
        return ", ".join(tags)
    return f"all except {', '.join(others)}" if others else "all"


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    escaped = [[cell.replace("|", chr(92) + "|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(heads), ["---"] * len(heads), *escaped]) + "\n"


def _default(schema: Schema) -> str:
    default: Any = schema.get("default")
    return "" if default is None or default == [] else f"`{json.dumps(default, ensure_ascii=False)}`"


def _line(text: str) -> str:
    """Return a docstring on one line, for tables."""
    return " ".join(text.split())


def main() -> None:
    """Write the pages for the protocols of coterie into a folder, each atomically."""
    from sim.scenario.protocol_lookup import list_settings

    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, text in reference(list_settings()).items():
        new = folder / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        new.replace(folder / name)


def _options(schema: Schema) -> Iterator[Schema]:
    """Yield the schemas that a key's value, or an item of a list, may match."""
    for option in (schema, *schema.get("anyOf", ())):
        yield option
        yield option.get("items", {})


def kinds(schema: Schema, definitions: Schema) -> dict[str, Schema]:
    """Return the tables by kind or name of a key with several kinds of tables, otherwise {}."""
    for option in _options(schema):
        if "discriminator" in option:
            return {
                tag: resolve({"$ref": reference}, definitions)
                for tag, reference in option["discriminator"]["mapping"].items()
            }
    return {}


def own_table(schema: Schema) -> Schema | None:
    """Return the keys that all tables with the user's code share at this key; None if it accepts no code."""
    for option in _options(schema):
        if "x-own" in option:
            return option["x-own"]
    return None


def tables(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """Yield the tables without kinds that a key's value is, may be, or lists."""
    for option in _options(schema):
        if "$ref" in option:
            yield resolve(option, definitions)


if __name__ == "__main__":
    main()
