"""Changes of a scenario by options of the command line: `--set key=value` and `--unset key`."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from actors.nearest import did_you_mean
from actors.settings.tables import Shorthand
from protocols.framework.client import Client
from sim.errors import UserError, one_line
from sim.plugins.loader import is_plugin
from sim.plugins.point import annotated
from sim.scenario.plugin_tables import POINTS
from sim.scenario.reading import DEPTH_MAX, require_bounded
from sim.scenario.refusals import fields_by_key, show
from sim.scenario.sections import Sections
from sim.scenario.sections.network import Network

Key = tuple[str, ...]
_SHORTHANDS = annotated(Sections, Shorthand)

_SHOWN_MAX = 150  # characters of an option in a message
_PART = r"""(?:"[^"\n]+"|'[^'\n]+'|[^\s."'=]+)"""
_KEY = re.compile(rf"\s*{_PART}(?:\s*\.\s*{_PART})*\s*")


def apply(raw: dict[str, Any], overrides: Iterable[str], unset: Iterable[str]) -> list[str]:
    """Change a file's contents: delete the keys in `unset`, then set each ``section.key=value``.

    Returns the keys that were set. Raises UserError.
    """
    options = [(text, one_line(f"--unset {text}", _SHOWN_MAX)) for text in unset]
    _delete(
        raw, [(_key(text, option, "section.key, such as network.server"), option) for text, option in options]
    )
    stated = [_apply_override(raw, override) for override in overrides]
    require_bounded(raw)
    return stated


def merge_contents(raw: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Merge other contents: extend lists, merge tables, and replace other values."""
    for key, value in more.items():
        current = raw.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            merge_contents(current, value)
        elif isinstance(current, list) and isinstance(value, list):
            current.extend(value)
        else:
            raw[key] = value


def overlap(first: str, second: str) -> bool:
    """Return True if two keys are equal, or if one lies in the table of the other."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def remove_unused_keys(
    method: type[Client], raw: dict[str, Any], network: Network, stated: Iterable[str]
) -> list[str]:
    """Remove the keys that `method`, which replaces the file's protocol, does not use; return these keys.

    network: the section of the file. stated: keys from --set; these are never removed, but rejected later if
    `method` does not use them.
    """
    known = ("name", *fields_by_key([method.Settings]))
    removed = [f"protocol.{key}" for key in raw["protocol"] if key not in known]
    if not _has_servers(method):
        removed += [*network.only_for_servers(), *(["server"] if "server" in raw else [])]
    removed = [key for key in removed if not any(overlap(key, other) for other in stated)]
    _delete(raw, [(tuple(key.split(".")), "") for key in removed])
    return removed


def _has_servers(method: type[Client]) -> bool:
    return getattr(method.servers, "__func__", None) is not getattr(Client.servers, "__func__", None)


def _key(text: str, option: str, form: str) -> Key:
    if not _KEY.fullmatch(text):
        raise UserError(f"{option}: must be {form}")
    parts = tuple([part.strip("\"'") for part in re.findall(_PART, text)])
    if len(parts) > DEPTH_MAX:
        raise UserError(f"{option}: the key has {len(parts):,} parts; must have at most {DEPTH_MAX}")
    return parts


def _delete(raw: dict[str, Any], keys: Iterable[tuple[Key, str]]) -> None:
    """Delete keys, each with the option that states it."""

    def order(item: tuple[Key, str]) -> list[tuple[int, str]]:
        return [(int(part) if part.isdecimal() else 0, part) for part in item[0]]

    # Delete the last items of a list first, and keys before their tables, so that no index changes.
    for key, option in sorted(dict(keys).items(), key=order, reverse=True):
        *parents, last = key
        table: Any = raw
        for depth, part in enumerate(parents):
            table = _require_item(table, part, option, parents[:depth])
        _require_item(table, last, option, parents)
        del table[int(last) if isinstance(table, list) else last]


def _require_item(table: Any, part: str, option: str, above: Sequence[str]) -> Any:
    if isinstance(table, list):
        return table[_index(table, part, option, above)]
    if not isinstance(table, dict):
        raise UserError(f"{option}: {'.'.join(above)} is {show(table)}, which has no keys")
    if part not in table:
        known = f"{'.'.join(above) or 'the file'} has {', '.join(table) or 'no keys'}"
        raise UserError(one_line(f"{option}: no such key; {known}{did_you_mean(part, table)}"))
    return table[part]


def _apply_override(raw: dict[str, Any], override: str) -> str:
    """Apply ``a.b=c`` to the file's contents. Returns the key."""
    option = one_line(f"--set {override}", _SHOWN_MAX)
    form = 'section.key=value, such as --set run.duration="5 min"'
    text, equals, value = override.partition("=")
    if not equals:
        raise UserError(f"{option}: must be {form}")
    *parents, last = key = _key(text, option, form)
    table: Any = raw
    for depth, part in enumerate(parents):
        if isinstance(table, dict):
            # Index 0 starts a list, such as devices.override; [protocol] may have tables with any keys.
            is_list = key[depth + 1] == "0" and key[0] != "protocol"
            child = table.setdefault(part, [{}] if is_list else {})
        else:
            if isinstance(table, list) and _index([*table, {}], part, option, parents[:depth]) == len(table):
                table.append({})  # the index after the last one adds an item
            child = _require_item(table, part, option, parents[:depth])
        if not isinstance(child, dict | list):  # "iid" stands for the table { kind = "iid" }
            child = _expand_shorthand(child, parents[: depth + 1])
            table[int(part) if isinstance(table, list) else part] = child
        table = child
    if isinstance(table, list):
        table[_index(table, last, option, parents)] = _value(value, option)
    elif isinstance(table, dict):
        table[last] = _value(value, option)
    else:
        raise UserError(f"{option}: {'.'.join(parents)} is {show(table)}, which has no keys")
    return ".".join(key)


def _expand_shorthand(value: Any, key: Sequence[str]) -> Any:
    """Return the table that a plain value abbreviates at this key, or else the value."""
    pattern = ".".join(["*" if part.isdecimal() else part for part in key])
    if pattern in POINTS and is_plugin(value):
        return {POINTS[pattern][0].key: value}
    return _SHORTHANDS[pattern][0].expand(value) if pattern in _SHORTHANDS else value


def _index(items: list[Any], part: str, option: str, above: Sequence[str]) -> int:
    if not (part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < len(items)):
        numbers = "0" if len(items) == 1 else f"a number from 0 to {len(items) - 1}"
        allowed = f"its index must be {numbers}" if items else "it is empty"
        raise UserError(f"{option}: {'.'.join(above)} is a list; {allowed}")
    return int(part)


def _value(text: str, option: str) -> Any:
    """Parse the value after "=" as TOML, or else as text."""
    if not text.strip():
        raise UserError(f"{option} has no value; use --unset to remove a key, or '\"\"' for empty text")
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        found = {"value": text.strip()}
        if len(text.strip().splitlines()) > 1:
            raise UserError(f"{option}: must be one value on one line; use one --set for each key") from None
    if len(found) > 1:
        raise UserError(f"{option}: must be one value; use one --set for each key")
    return found["value"]
