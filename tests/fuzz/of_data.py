"""Data of the user's own: arrays, tables, partitions and functions, with files damaged; servers with data."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import tomli_w

from tests.fuzz import damage, data, grammar, tables
from tests.fuzz.case import Commands, Kind

_CLIENTS, _SAMPLES, _TESTS = 4, 48, 12
_SCENARIO: dict[str, Any] = {
    "run": {"iterations": 2, "evaluate_every": "1 iterations"},
    "clients": {"count": _CLIENTS},
    "model": {"name": "logistic-regression"},
    "training": {"learning_rate": 0.1, "batch_size": 4},
    "protocol": {"name": "gossip"},
    "network": {"latency": "20 ms", "uplink": "unlimited", "downlink": "unlimited"},
    "devices": {"step_time": "100 ms"},
}
_SPLIT = """\
def split(rng, labels, clients, share: float = 1.0):
    places = rng.permutation(len(labels))[: int(share * len(labels))]
    return [places[first::clients] for first in range(clients)]
"""
_LOAD = """\
import numpy as np


def load(rng, clients, samples: int = 48):
    x = rng.normal(size=(samples, 5))
    return x, (x[:, 0] > 0).astype(int), np.arange(samples) % clients
"""
_CODE_WORDS = ("rng", "labels", "clients", "range", "len", "x", "samples", "places", "0", "int", "return")
_FUNCTIONS = ("sorted", "str", "exit", "clients", "x", "print")
_CODE_OTHERS = ("None", "-1", "nan", "[]", "exit()", "1e9", "'a'", "clients", "yield", "10**9", "x")


@dataclass
class Own:
    """A scenario, and the files that it names: arrays by name, a table, a list, code, or bytes."""

    scenario: dict[str, Any]
    files: dict[str, Any]


class OwnData(Kind):
    """Arrays (.npz), tables (.csv, .parquet), partitions and functions of one's own, with a file spoiled."""

    name = "data"

    def begin(self, folder: Path, rng: Random) -> Own:
        numbers = np.random.default_rng(rng.randrange(2**32))
        scenario = json.loads(json.dumps(_SCENARIO))
        of = rng.choice((_arrays, _csv, _parquet, _function))
        scenario["data"], files = of(numbers, rng)
        _deal(scenario, files, numbers, rng)
        if rng.random() < 0.3:
            scenario["protocol"] = {"name": "fedavg", "local_steps": 2, "patience": "5 s"}
            scenario["server"] = {"step_time": "50 ms", "samples": 4}
            if rng.random() < 0.5:
                scenario["server"]["crash"] = [{"at": "300 ms", "back": "500 ms"}]
        return Own(scenario, files)

    def change(self, state: Own, rng: Random) -> str:
        if not state.files or rng.random() < 0.25:
            return rng.choice((grammar.change, tables.change))(state.scenario, rng)
        name = rng.choice(list(state.files))
        state.files[name], how = _spoiled(name, state.files[name], rng)
        return f"{name}: {how}"

    def commands(self, state: Own) -> Commands:
        for name, content in state.files.items():
            Path(name).write_bytes(_bytes(name, content))
        Path("scenario.toml").write_text(tomli_w.dumps(state.scenario), encoding="utf-8", errors="replace")
        return [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]


Made = tuple[dict[str, Any], dict[str, Any]]


def _arrays(numbers: np.random.Generator, rng: Random) -> Made:
    x = numbers.normal(size=(_SAMPLES + _TESTS, 5)).astype(np.float32)
    found = {"x": x, "y": numbers.integers(0, 3, len(x)), "client": np.arange(len(x)) % _CLIENTS}
    if rng.random() < 0.5:
        found = {
            f"{name}_{part}": each[rows]
            for part, rows in (("train", slice(_SAMPLES)), ("test", slice(_SAMPLES, None)))
            for name, each in found.items()
        }
    return {"name": "arrays", "file": "own.npz"}, {"own.npz": found}


def _frame(numbers: np.random.Generator) -> pl.DataFrame:
    columns = {
        "age": numbers.integers(18, 90, _SAMPLES),
        "pay": numbers.lognormal(8, 1, _SAMPLES),
        "city": numbers.choice(["Bern", "Genf", "Zug"], _SAMPLES),
        "who": np.arange(_SAMPLES) % _CLIENTS,
        "bought": numbers.choice(["yes", "no"], _SAMPLES),
    }
    return pl.DataFrame(columns)


def _csv(numbers: np.random.Generator, rng: Random) -> Made:
    section = {"name": "table", "file": "own.csv", "label": "bought", "client": "who"}
    section |= rng.choice(({}, {"missing": "fill"}, {"missing": "drop"}, {"categorical": ["age"]}))
    return section, {"own.csv": _frame(numbers).write_csv()}


def _parquet(numbers: np.random.Generator, rng: Random) -> Made:
    section, files = _csv(numbers, rng)
    return section | {"file": "own.parquet"}, {"own.parquet": files["own.csv"]}


def _function(numbers: np.random.Generator, rng: Random) -> Made:
    return {"name": "mine.py:load"}, {"mine.py": _LOAD}


def _deal(scenario: dict[str, Any], files: dict[str, Any], numbers: np.random.Generator, rng: Random) -> None:
    """Who has which samples: as the data say, or by a function, a file, or one of the partitions."""
    match rng.choice(("natural", "function", "json", "npz", "iid")):
        case "function":
            scenario["data"]["partition"] = {"kind": "split.py:split", "share": 0.8}
            files["split.py"] = _SPLIT
        case "json" | "npz" as suffix:
            scenario["data"]["partition"] = {"kind": "file", "path": f"split.{suffix}"}
            lists = [np.arange(client, 30, _CLIENTS) for client in range(_CLIENTS)]
            files[f"split.{suffix}"] = (
                json.dumps([each.tolist() for each in lists])
                if suffix == "json"
                else {f"train_{client}": each for client, each in enumerate(lists)}
            )
        case kind:
            scenario["data"]["partition"] = kind


def _spoiled(name: str, content: Any, rng: Random) -> tuple[Any, str]:
    if rng.random() < 0.15 or isinstance(content, bytes):
        return damage.of_bytes(_bytes(name, content), rng)
    if isinstance(content, dict):
        if not content:
            return content, "nothing"
        array = rng.choice(list(content))
        match rng.choice(("array", "array", "array", "without", "renamed")):
            case "without":
                return {other: each for other, each in content.items() if other != array}, f"without {array}"
            case "renamed":
                return {f"{other}_": each for other, each in content.items()}, "other names"
        changed, how = damage.of_array(content[array], rng)
        return content | {array: changed}, f"{array}: {how}"
    if name.endswith(".py"):
        word = rng.choice(_CODE_WORDS)
        called = re.search(rf"\b{word}\(", content) is not None
        other = rng.choice(_FUNCTIONS if called else _CODE_OTHERS)  # of numbers that are called Python warns
        return re.sub(rf"\b{word}\b", other, content, count=1), f"{other} for the first {word}"
    if name.endswith(".json"):
        place = rng.randrange(len(content) + 1)
        return content[:place] + rng.choice(("-1", "[", "]", "1e9", "99", ",", '"a"', "null")) + content[
            place + rng.randrange(2) :
        ], f"something at {place}"
    return damage.of_csv(content, rng, ",")


def _bytes(name: str, content: Any) -> bytes:
    if isinstance(content, dict):
        return data.npz(content)
    if isinstance(content, bytes):
        return content
    if name.endswith(".parquet"):
        try:  # the columns' types are what is in them
            frame = pl.read_csv(content.encode("utf-8", "surrogatepass"), infer_schema_length=None)
        except pl.exceptions.PolarsError:
            return content.encode("utf-8", "surrogatepass")
        frame.write_parquet(name)
        return Path(name).read_bytes()
    return content.encode("utf-8", "surrogatepass")
