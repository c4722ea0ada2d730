"""Scenario files whose text is damaged, and what is no file at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import tomli_w

from tests.fuzz import damage, worlds
from tests.fuzz.case import Commands, Kind

_VALUES = (
    "[" * 600,
    "[" * 100 + "]" * 100,
    "{ a = " * 300,
    "9" * 5000,
    "-" + "9" * 400,
    "0x" + "f" * 5000,
    "1e" + "9" * 50,
    "0." + "1" * 5000,
    "nan",
    "-inf",
    "1979-05-27T07:32:00Z",
    "07:32:00.999999999",
    '"""\n\n"""',
    "'''",
    '"\\uD800"',
    '"\\U0010FFFF"',
    "[[]]",
    "{}",
    "[1, 'a', 2.5, {}, []]",
    ".".join("a" * 3000) + " = 1",
    "true",
    "1_000",
    "_",
    "",
)
_LINES = (
    ".".join("a" * 3000) + " = 1",
    "[" + ".".join("b" * 3000) + "]",
    "".join(f"[[churn]]\nx{number} = 1\n" for number in range(3000)),
    "".join(f"unknown{number} = {number}\n" for number in range(100_000)),
    "[run]",
    "[[run]]",
    "[network.latency.kind]",
    "[clients.count]",
    "[[churn.x]]",
    "\x00",
    "\x85\u2028",
    "run.seed = 5",
    "= 1",
    "'' = 1",
    '"\\u0000" = 1',
    "a = 1 b = 2",
    "#" * 100_000,
    "# \x1b[31mred",
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


@dataclass
class Text:
    """A file's content; then its name, and how its place is spoiled."""

    content: bytes
    name: str = "scenario.toml"
    place: Random | None = None


class Texts(Kind):
    """A shipped scenario with damaged text, an unusual name, or a pipe or a folder in its place."""

    name = "text"

    def begin(self, folder: Path, rng: Random) -> Text:
        return Text(tomli_w.dumps(worlds.short(rng.choice(list(worlds.SHORT)))).encode())

    def change(self, state: Text, rng: Random) -> str:
        match rng.choice(("bytes", "value", "value", "line", "lines", "encoding", "name", "place")):
            case "bytes":
                state.content, how = damage.of_bytes(state.content, rng)
                return how
            case "value":
                return _odd_value(state, rng)
            case "line":
                lines = state.content.split(b"\n")
                line, place = rng.choice(_LINES), rng.randrange(len(lines) + 1)
                state.content = b"\n".join([*lines[:place], line.encode(), *lines[place:]])
                return f"line {place}: {line[:40]!r}"
            case "lines":
                return _moved_lines(state, rng)
            case "encoding":
                return _encoded(state, rng)
            case "name":
                state.name = rng.choice(_NAMES)
                return f"named {state.name[:40]}"
        state.place = rng
        return "something else in its place"

    def commands(self, state: Text) -> Commands:
        path = Path(state.name)
        path.write_bytes(state.content)
        if state.place is not None:
            damage.of_file(path, state.place)
        name = f"./{path}" if state.name.startswith("-") else str(path)
        return [["check", name], ["run", name, "--quiet"]]


def _odd_value(state: Text, rng: Random) -> str:
    """Another value in the place of one that stands there."""
    lines = state.content.split(b"\n")
    stated = [number for number, line in enumerate(lines) if b"=" in line]
    if not stated:
        return "no value to change"
    number, value = rng.choice(stated), rng.choice(_VALUES)
    key = lines[number].partition(b"=")[0]
    lines[number] = key + b"= " + value.encode()
    state.content = b"\n".join(lines)
    return f"{key.decode('utf-8', 'replace')}= {value[:40]}"


def _moved_lines(state: Text, rng: Random) -> str:
    lines = state.content.split(b"\n")
    match rng.choice(("shuffled", "sorted", "twice", "reversed", "joined", "repeated")):
        case "shuffled":
            rng.shuffle(lines)
        case "sorted":
            lines.sort()
        case "twice":
            lines.append(rng.choice(lines))
        case "reversed":
            lines.reverse()
        case "repeated":
            lines *= 2
        case "joined":
            state.content = b" ".join(lines)
            return "lines joined"
    state.content = b"\n".join(lines)
    return "lines moved or written twice"


def _encoded(state: Text, rng: Random) -> str:
    how = rng.choice(("utf-16", "utf-8-sig", "utf-32", "latin-1", "CRLF", "CR"))
    text = state.content.decode("utf-8", "replace")
    if how in ("CRLF", "CR"):
        state.content = text.replace("\n", "\r\n" if how == "CRLF" else "\r").encode()
    else:
        state.content = ("# \u00e9\u00e8\n" + text).encode(how, "replace")
    return f"written as {how}"
