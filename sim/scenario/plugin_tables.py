"""Loading of the user's code that a scenario names, and its conversion to sections."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from actors.settings.tables import tagged
from sim.plugins.loader import Plugin, is_plugin, load_plugin
from sim.plugins.point import PluginPoint, annotated
from sim.plugins.section import section_with_plugin_keys
from sim.scenario.key_path import matching_paths, set_value_at, value_at, with_value_at
from sim.scenario.schema import OwnTable
from sim.scenario.sections import Sections

POINTS = annotated(Sections, PluginPoint)
"""All tables that may name the user's code, by path, with their other kinds."""


def merge_user_tables(
    raw: dict[str, Any], validated: Callable[..., Any], *, code: bool
) -> tuple[tuple[Plugin, ...], dict[str, Any]]:
    """Return the user code in the tables of a scenario, and the contents with sections for these tables.

    Changes `raw`: names become absolute, and a name that abbreviates a table becomes a table. validated:
    returns a section, given its class, the table, and its path. Raises UserError.
    """
    found: list[tuple[str, PluginPoint, Plugin]] = []
    for pattern, (point, known) in POINTS.items():
        for path in matching_paths(raw, pattern):
            table = value_at(raw, path)
            name = table.get(point.key) if isinstance(table, Mapping) else table
            if is_plugin(name):
                instead = ", ".join(tagged(known)) or "none"
                plugin = load_plugin(f"{path}.{point.key}", name, code=code, instead=instead)
                stated = table if isinstance(table, Mapping) else {}
                set_value_at(raw, path, {**stated, point.key: plugin.name})
                found.append((path, point, plugin))
    contents = raw
    # Inner tables come before the tables that contain them.
    for path, point, plugin in sorted(found, key=lambda each: -each[0].count(".")):
        section = section_with_plugin_keys(point.section, point.key, plugin)
        made = validated(section, value_at(contents, path), *path.split("."))
        contents = with_value_at(contents, path, made)
    return tuple([plugin for _, _, plugin in found]), contents


def named_code(contents: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the user's code in the contents of a scenario, by key; nothing is loaded."""
    protocol = contents.get("protocol")
    found = {"protocol.name": protocol.get("name")} if isinstance(protocol, Mapping) else {}
    for pattern, (point, _) in POINTS.items():
        for path in matching_paths(contents, pattern):
            table = value_at(contents, path)
            found[f"{path}.{point.key}"] = table.get(point.key) if isinstance(table, Mapping) else table
    return {key: name for key, name in found.items() if is_plugin(name)}


def own_tables(plugins: Iterable[Plugin]) -> Iterator[OwnTable]:
    """Return the tables of a scenario that name these plugins, with their sections, for the schema."""
    for plugin in plugins:
        *parts, key = plugin.key.split(".")
        pattern = ".".join("*" if part.isdecimal() else part for part in parts)
        if pattern in POINTS:
            yield OwnTable(
                pattern, plugin.name, section_with_plugin_keys(POINTS[pattern][0].section, key, plugin)
            )
