"""Command lines: overrides and the other options of `check` and `run`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from tests.fuzz import grammar, tables, worlds
from tests.fuzz.case import Commands, Kind
from tests.fuzz.values import TEXTS, near, odd_key, odd_value

_RAW = (
    "[",
    "{",
    '"',
    "'''",
    "1 2",
    "# nothing",
    "1\n2",
    "x\n[run]\nseed = 2",
    "=",
    "==",
    "a = 1",
    "\x00",
    "{ a = 1 }",
)
_PLACES = (
    "",
    ".",
    "..",
    "/",
    "/dev/null",
    "nowhere",
    "nowhere/at/all",
    "scenario.toml",
    "pipe",
    "loop",
    "dangling",
)
_PLACES += ("x" * 300, "~", "日本", "a\nb", "-", "--help", "data", "empty")
_NUMBERS = (
    "-1",
    "0",
    "1",
    "9223372036854775807",
    "9223372036854775808",
    "1e3",
    "nan",
    "",
    "x",
    "9" * 5000,
    "٣",
)


@dataclass
class CommandLine:
    """A scenario, the file that is named, and the options; some belong to `run` only."""

    scenario: dict[str, Any]
    file: str = "scenario.toml"
    shared: list[str] = field(default_factory=list)
    of_run: list[str] = field(default_factory=list)


class Overrides(Kind):
    """A shipped scenario with odd overrides, seeds, folders and devices, or another file's name."""

    name = "override"

    def begin(self, folder: Path, rng: Random) -> CommandLine:
        Path("empty").mkdir()
        os.mkfifo("pipe")
        Path("loop").symlink_to("loop")
        Path("dangling").symlink_to("nowhere-else")
        return CommandLine(worlds.short(rng.choice(list(worlds.SHORT))))

    def change(self, state: CommandLine, rng: Random) -> str:
        match rng.choice(("set",) * 8 + ("unset", "seed", "data-dir", "out", "device", "file", "no-code")):
            case "set":
                added = ["--set", _override(state.scenario, rng)]
            case "unset":
                added = ["--unset", _key(rng.choice(list(tables.places(state.scenario))), rng)]
            case "no-code":
                added = ["--no-code"]
            case "file":
                state.file = rng.choice(
                    (*_PLACES, "quickstart", "scenario", "scenarios/gossip", "scenario.tom")
                )
                return tables.shown(state.file)
            case "seed":
                added = ["--seed", rng.choice(_NUMBERS)]
            case "data-dir":
                added = ["--data-dir", rng.choice(_PLACES)]
            case option:
                added = [
                    f"--{option}",
                    rng.choice(_PLACES if option == "out" else ("gpu", "cuda", "", "cpu")),
                ]
                state.of_run += added
                return tables.shown(added)
        state.shared += added
        return tables.shown(added)

    def commands(self, state: CommandLine) -> Commands:
        Path("scenario.toml").write_text(tomli_w.dumps(state.scenario), encoding="utf-8")
        # Nobody can give a command a NUL.
        shared, of_run = (
            [word.replace("\0", "\\0") for word in words] for words in (state.shared, state.of_run)
        )
        # What begins with a dash is an option, unless it comes after two.
        return [
            ["check", *shared, "--", state.file],
            ["run", "--quiet", *shared, *of_run, "--", state.file],
        ]


def _override(scenario: dict[str, Any], rng: Random) -> str:
    """KEY=VALUE, either of which may make no sense."""
    place = rng.choice(list(tables.places(scenario)))
    value: Any = rng.choice((odd_value(rng), near(tables.get(scenario, place), rng)))
    if rng.random() < 0.4:
        found, keys = grammar.sections()
        place, schema, _ = rng.choice(keys)
        value = rng.choice((odd_value(rng), found.value(schema, rng), found.extreme(schema, rng)))
    key = ".".join(map(str, place))
    spoil = rng.random()
    if spoil < 0.1:
        key = rng.choice(
            (f"{key}.", f".{key}", f"{key}.0", f"{key}.-1", f"{key}.x.y", key.upper(), f" {key} ")
        )
    elif spoil < 0.15:
        key = rng.choice(
            (odd_key(rng), "", ".", "run", ".".join("a" * 3000), f"{key}.999999999999", "run..seed")
        )
    text = rng.choice((*_RAW, *TEXTS)) if rng.random() < 0.2 else _inline(value)
    return rng.choice((f"{key}={text}",) * 9 + (key,))


def _key(place: tables.Place, rng: Random) -> str:
    """The place as a dotted key, sometimes another."""
    key, spoil = ".".join(map(str, place)), rng.random()
    if spoil < 0.1:
        return rng.choice(
            (f"{key}.", f".{key}", f"{key}.0", f"{key}.-1", f"{key}.x.y", key.upper(), f" {key} ")
        )
    if spoil < 0.15:
        odd = (odd_key(rng), "", ".", "run", ".".join("a" * 3000), f"{key}.999999999999", "run..seed")
        return rng.choice(odd)
    return key


def _inline(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_inline(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return tomli_w.dumps({"x": value}).partition("=")[2].strip()
