"""All kinds of input by name; those of scenario files and command lines."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from tests.fuzz import grammar, spoil, worlds
from tests.fuzz.archives import archives
from tests.fuzz.calls import calls
from tests.fuzz.case import Commands, Kind
from tests.fuzz.files import image_folders, images, own_data, saved_folders, traces
from tests.fuzz.hosts import hosts
from tests.fuzz.language import language_models, starts
from tests.fuzz.packed import packed
from tests.fuzz.requests import requests
from tests.fuzz.results import checkpoints, exports, inits, results, sweeps
from tests.fuzz.values import TEXTS, near, odd_key, odd_value

_CHECK_AND_RUN: Commands = [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]


_REAL = ("l2c_adult", "lm_languages", "lm_scarce")  # of whose data none are made


def _any_scenario(rng: Random) -> dict[str, Any]:
    made = [name for name in worlds.SHORT if name not in _REAL]
    return worlds.short(rng.choice(made))


def scenarios(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A shipped scenario with odd values, missing keys, valid but surprising sections, or parts swapped."""
    table = _any_scenario(rng)
    change = (grammar.change, grammar.change, grammar.change, spoil.damaged_table)
    words = [rng.choice(change)(table, rng) for _ in range(changes)]
    Path("scenario.toml").write_text(tomli_w.dumps(table), encoding="utf-8", errors="replace")
    return words, _CHECK_AND_RUN


# --- damaged text -------------------------------------------------------------------------------------------

_VALUES = (
    *(
        "[" * 600,
        ".".join("a" * 3000) + " = 1",
        "9" * 5000,
        "1e" + "9" * 50,
        "1_000",
        "nan",
        "-inf",
        "true",
        "",
    ),
    *("1979-05-27T07:32:00Z", "'''", '"\\uD800"', "[[]]", "{}", "[1, 'a', 2.5, {}, []]"),
)
_LINES = (
    "".join(f"unknown{number} = {number}\n" for number in range(1000)),
    *("[run]", "[[run]]", "[network.latency.kind]", "[clients.count]", "[[churn.x]]", "run.seed = 5"),
    *("\x00", "\u2028", "= 1", "'' = 1", "a = 1 b = 2"),
)
_NAMES = (
    "my scenario.toml",
    "日本.toml",
    "a" * 250 + ".toml",
    "no-ending",
    ".hidden.toml",
    "-x.toml",
    "[b].toml",
)


def texts(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A shipped scenario with damaged text, an unusual name, or a folder in its place."""
    content, name, words = tomli_w.dumps(_any_scenario(rng)).encode(), "scenario.toml", []
    for _ in range(changes):
        content, how = _damaged_text(content, rng)
        words.append(how)
    if words and rng.random() < 0.1:
        name = rng.choice(_NAMES)
        words.append(f"named {name[:40]}")
    Path(name).write_bytes(content)
    if words and rng.random() < 0.1:
        words.append(spoil.replace_file(Path(name), rng))
    file = f"./{name}" if name.startswith("-") else name
    return words, [["check", file], ["run", file, "--quiet"]]


def _damaged_text(content: bytes, rng: Random) -> tuple[bytes, str]:
    lines = content.split(b"\n")
    stated = [number for number, line in enumerate(lines) if b"=" in line]
    match rng.choice(("bytes", "value", "value", "line", "encoding")):
        case "value" if stated:
            number, value = rng.choice(stated), rng.choice(_VALUES)
            lines[number] = lines[number].partition(b"=")[0] + b"= " + value.encode()
            return b"\n".join(lines), f"line {number}: {value[:40]}"
        case "line":
            line, place = rng.choice(_LINES), rng.randrange(len(lines) + 1)
            return b"\n".join([*lines[:place], line.encode(), *lines[place:]]), f"line {place}: {line[:40]!r}"
        case "encoding":
            how = rng.choice(("utf-16", "utf-8-sig", "latin-1"))
            return ("# \u00e9\u00e8\n" + content.decode("utf-8", "replace")).encode(how, "replace"), how
    return spoil.damaged_bytes(content, rng)


# --- command lines ------------------------------------------------------------------------------------------

_RAW = ("[", "{", '"', "1 2", "# nothing", "1\n2", "=", "a = 1", "{ a = 1 }")
_PLACES = ("", ".", "/", "/dev/null", "nowhere/at/all", "scenario.toml", "x" * 300, "~", "日本", "-", "empty")
_FILES = (*_PLACES, "quickstart", "scenario", "scenarios/gossip", "scenario.tom")
_SEEDS = ("-1", "0", "1", str(2**63 - 1), str(2**63), "1e3", "nan", "", "x", "9" * 5000, "٣")


def overrides(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A shipped scenario with odd overrides, seeds, folders and devices, or another file's name."""
    Path("empty").mkdir()
    table, file, words = _any_scenario(rng), "scenario.toml", []
    shared: list[str] = []
    of_run: list[str] = []  # which a check does not have
    for _ in range(changes):
        added: list[str] = []
        match rng.choice(("set",) * 8 + ("unset", "seed", "data-dir", "out", "device", "file")):
            case "set":
                added = ["--set", _override(table, rng)]
            case "unset":
                added = ["--unset", _key(rng.choice(list(spoil.places(table))), rng)]
            case "file":
                file = rng.choice(_FILES)
            case "seed" | "data-dir" as option:
                added = [f"--{option}", rng.choice(_SEEDS if option == "seed" else _PLACES)]
            case option:
                of_run += [f"--{option}", rng.choice(_PLACES if option == "out" else ("gpu", "cuda", ""))]
        shared += added
        words.append(spoil.shown(added or of_run[-2:] or file))
    Path("scenario.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    # Nobody can give a command a NUL. What begins with a dash is an option, unless it comes after two.
    shared = [word.replace("\0", "\\0") for word in shared]
    return words, [["check", *shared, "--", file], ["run", "--quiet", *shared, *of_run, "--", file]]


_NAMES = (
    "local",
    "gossip",
    "scool",
    "",
    ",",
    '"',
    "nope",
    "a.py:B",
    "local,local",
    "x" * 5000,
    "../x",
    "local,,",
    "method=local",
    "=",
)
_NUMBERS = ("0", "-1", "1", "2", "1e3", "x", "", "9" * 30, "nan", "0.5")


def tunings(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """A search over a shipped scenario with odd methods, numbers and overrides; it is only listed."""
    table, words, added = _any_scenario(rng), [], ["--dry-run"]
    for _ in range(changes):
        match rng.choice(
            ("methods", "methods", "trials", "seeds", "validation-share", "sampler", "over", "set")
        ):
            case "set":
                more = ["--set", _override(table, rng)]
            case "methods" | "over" | "keep" as option:
                more = [f"--{option}", rng.choice(_NAMES)]
            case option:
                more = [f"--{option}", rng.choice(_NUMBERS)]
        added += more
        words.append(spoil.shown(more))
    Path("scenario.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    return words, [["tune", *[word.replace("\0", "\\0") for word in added], "--", "scenario.toml"]]


def _override(table: dict[str, Any], rng: Random) -> str:
    """KEY=VALUE, either of which may make no sense."""
    place = rng.choice(list(spoil.places(table)))
    value = rng.choice((odd_value(rng), near(spoil.find(table, place), rng)))
    if rng.random() < 0.4:
        found, keys = grammar.sections()
        place, schema, _ = rng.choice(keys)
        value = rng.choice((odd_value(rng), found.value(schema, rng), found.value(schema, rng, extreme=True)))
    text = rng.choice((*_RAW, *TEXTS)) if rng.random() < 0.2 else _inline(value)
    key = _key(place, rng)
    return key if rng.random() < 0.1 else f"{key}={text}"


def _key(place: spoil.Place, rng: Random) -> str:
    """The place as a dotted key, sometimes another."""
    key, chance = ".".join(map(str, place)), rng.random()
    if chance < 0.1:
        near_it = (f"{key}.", f".{key}", f"{key}.0", f"{key}.-1", f"{key}.x.y", key.upper(), f" {key} ")
        return rng.choice(near_it)
    odd = (odd_key(rng), "", ".", "run", ".".join("a" * 3000), f"{key}.999999999999", "run..seed")
    return rng.choice(odd) if chance < 0.15 else key


def _inline(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_inline(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return tomli_w.dumps({"x": value}).partition("=")[2].strip()


KINDS: Mapping[str, Kind] = {
    "scenario": scenarios,
    "text": texts,
    "override": overrides,
    "tuning": tunings,
    "image": images,
    "trace": traces,
    "data": own_data,
    "saved": saved_folders,
    "folder": image_folders,
    "language": language_models,
    "start": starts,
    "result": results,
    "sweep": sweeps,
    "archive": archives,
    "checkpoint": checkpoints,
    "export": exports,
    "init": inits,
    "request": requests,
    "hosts": hosts,
    "packed": packed,
    "call": calls,
}
