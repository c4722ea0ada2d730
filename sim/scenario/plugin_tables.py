"""The user's code in a scenario: found, loaded, and made sections of."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from actors.settings.tables import tagged
from sim.plugins.loader import Plugin, is_plugin, load_plugin
from sim.plugins.point import PluginPoint, annotated
from sim.plugins.section import section_of
from sim.scenario.key_path import places, put, replaced, value_at
from sim.scenario.schema import OwnTable
from sim.scenario.sections import Sections

POINTS = annotated(Sections, PluginPoint)
"""All tables that may name the user's code, by their places, and their other kinds."""


def with_plugins(
    raw: dict[str, Any], validated: Callable[..., Any], *, code: bool
) -> tuple[tuple[Plugin, ...], dict[str, Any]]:
    """The user's code that tables of a scenario name, and the contents with sections in these tables' place.

    In `raw` names are absolute from then on, and where a name alone stands for a table, the table is written.
    validated: makes a section of its class, the table, and its place. Raises UserError.
    """
    found: list[tuple[str, PluginPoint, Plugin]] = []
    for pattern, (point, known) in POINTS.items():
        for place in places(raw, pattern):
            table = value_at(raw, place)
            name = table.get(point.key) if isinstance(table, Mapping) else table
            if is_plugin(name):
                instead = ", ".join(tagged(known)) or "none"
                plugin = load_plugin(f"{place}.{point.key}", name, code=code, instead=instead)
                stated = table if isinstance(table, Mapping) else {}
                put(raw, place, {**stated, point.key: plugin.name})
                found.append((place, point, plugin))
    contents = raw
    # What lies inside of another such table goes first.
    for place, point, plugin in sorted(found, key=lambda each: -each[0].count(".")):
        section = section_of(point.section, point.key, plugin)
        made = validated(section, value_at(contents, place), *place.split("."))
        contents = replaced(contents, place, made)
    return tuple([plugin for _, _, plugin in found]), contents


def own_tables(plugins: Iterable[Plugin]) -> Iterator[OwnTable]:
    """The tables of a scenario that name these, each with its section, for the scenario's schema."""
    for plugin in plugins:
        *parts, key = plugin.key.split(".")
        place = ".".join("*" if part.isdecimal() else part for part in parts)
        if place in POINTS:
            yield OwnTable(place, plugin.name, section_of(POINTS[place][0].section, key, plugin))
