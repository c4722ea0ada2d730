"""Calls of the functions of coterie with odd arguments, from Python."""

import json
import math
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import date
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import tomli_w

from tests.fuzz.case import Commands
from tests.fuzz.results import RESULTS, SWEEP
from tests.fuzz.values import odd_value

CALLS = 20
"""Calls in a case."""
_FILE = "calls.pickle"
_WORLD: dict[str, Any] = {
    "run": {"duration": "1 s", "evaluate_every": "1 s"},
    "clients": {"count": 3},
    "data": {"name": "quadratic", "clusters": 2, "dimension": 4, "samples": 20},
    "model": {"name": "point"},
    "training": {"learning_rate": 0.1, "batch_size": 1},
    "protocol": {"name": "gossip"},
    "network": {"latency": "20 ms", "uplink": "unlimited", "downlink": "unlimited"},
    "devices": {"step_time": "100 ms"},
}
_RUN, _SWEEP, _SCENARIO = Path("one"), Path("sweep"), "world.toml"  # copies: a fork goes beside its run
_REFUSED = {"network.loss": [2.0]}  # by a study: a whole one would take long

_PATHS = (
    *("", ".", "/", "nowhere", "a\0b", "\0", "\ud800", "x\udcff", "x" * 300, "x/" * 2500, "y" * 5000),
    *("~", "~nobody", "~nobody/runs", "~\0", "/dev/null", "/dev/null/x", "/proc/self/mem", "日本", "a\nb"),
    *(b"bytes", Path("~nobody"), Path("a\0b"), Path("\ud800"), Path("x" * 5000), Path("/proc/kmsg")),
)
_NUMBERS = (
    *(0, -1, 1, 2**31, 2**63, 10**400, -(10**400), 10**5000, 0.5, -0.0, 1e308, 5e-324),
    *(math.nan, math.inf, -math.inf, True, False, 1j, Decimal("NaN"), Decimal(1), Fraction(1, 3)),
)
_ARRAYS: tuple[Callable[[], Any], ...] = (
    *(lambda: np.array(3), lambda: np.array(math.nan), lambda: np.array("x"), lambda: np.array(None)),
    *(lambda: np.array([1, 2]), lambda: np.array([]), lambda: np.zeros((2, 2)), lambda: np.float32("nan")),
    *(lambda: np.int64(5), lambda: np.datetime64("NaT"), lambda: np.array([object()])),
    *(lambda: np.bool_(True), lambda: np.ma.masked_array([1], [True]), lambda: np.str_("1 s")),
    lambda: np.array([(1, 2)], dtype="i4,f8"),
)
_TEXTS = (
    "",
    " ",
    "20 s",
    "nan s",
    "1e999 s",
    "inf",
    "-1 s",
    "\0",
    "\ud800",
    "x" * 5000,
    "9" * 5000,
    "a=b",
    "٣ s",
)


class _Unprintable:
    """An object of somebody's class that fails wherever it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __float__(self) -> float:
        raise RuntimeError("no float")


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _deep(depth: int = 2000) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


_OTHERS: tuple[Callable[[], Any], ...] = (
    *(lambda: None, lambda: object(), _Unprintable, _endless, _deep, lambda: {}, lambda: [], lambda: ()),
    *(lambda: {1: 2}, lambda: {None: None}, lambda: {"": ""}, lambda: {"\0": 1}, lambda: {"a": {1: 2}}),
    *(lambda: {"run.seed": 10**400}, lambda: {"run": 5}, lambda: {"run.duration": math.nan}),
    *(lambda: int, lambda: len, lambda: _Unprintable, lambda: lambda: None, lambda: print, lambda: Path),
    *(lambda: range(3), lambda: range(10**30), lambda: {1, 2}, lambda: frozenset(), lambda: bytearray(b"x")),
    *(lambda: date(2020, 1, 1), lambda: Exception("x"), lambda: memoryview(b"x"), lambda: sys, lambda: ...),
)


def odd_argument(rng: Random) -> Any:
    """Anything that somebody may give to a function."""
    kinds = ("path", "number", "array", "other")
    match rng.choice((*kinds, *kinds, "text", "toml")):
        case "path":
            return rng.choice(_PATHS)
        case "number":
            return rng.choice(_NUMBERS)
        case "text":
            return rng.choice(_TEXTS)
        case "array":
            return rng.choice(_ARRAYS)()
        case "other":
            return rng.choice(_OTHERS)()
    return odd_value(rng)


_KEYS = ("run.duration", "run.seed", "network.loss", "clients.count", "protocol.name", "data.name", "", "a.b")


def _settings(rng: Random) -> Any:
    """Values by key."""
    return {rng.choice(_KEYS): odd_argument(rng) for _ in range(rng.choice((1, 1, 2)))}


# The functions by name: arguments that are well.
_FUNCTIONS: dict[str, Callable[[], tuple[list[Any], dict[str, Any]]]] = {
    "run": lambda: ([_WORLD], {"quiet": True, "out": "out", "overwrite": True}),
    "load": lambda: ([_RUN], {}),
    "resume": lambda: ([_RUN], {"quiet": True, "until": "2 s"}),
    "fork": lambda: ([_RUN, 0.5, {}], {"quiet": True}),
    "sweep": lambda: ([_SCENARIO], {"quiet": True, "jobs": 1, "out": "out", "set": dict(_REFUSED)}),
    "compare": lambda: ([_RUN], {}),
    "Run": lambda: ([_RUN], {}),
    "Sweep": lambda: ([_SWEEP], {}),
    "state_dict": lambda: ([1], {}),
    "predict": lambda: ([1, np.zeros((2, 64))], {}),
    "curve": lambda: ([None], {}),
    "plot": lambda: ([None], {}),
}
_OF_RUN = ("state_dict", "predict", "curve", "plot")  # methods of a run
_KEYWORDS: dict[str, tuple[str, ...]] = {
    "run": (
        *("protocol", "set", "seed", "out", "overwrite", "device", "data_dir", "on_evaluation"),
        *("no_code", "reuse"),
    ),
    "load": (),
    "resume": ("until", "protocol", "device", "data_dir", "no_code", "on_evaluation"),
    "fork": ("protocol", "device", "data_dir", "no_code", "on_evaluation"),
    "sweep": ("set", "seeds", "only", "full", "jobs", "together", "out", "device", "data_dir"),
    "compare": ("by", "baseline", "metrics", "target", "clients"),
    "Run": (),
    "Sweep": (),
    "state_dict": ("at", "model"),
    "predict": ("at", "model"),
    "curve": (),
    "plot": (),
}


def odd_call(rng: Random) -> tuple[str, list[Any], dict[str, Any], str]:
    """A function's name, arguments of which one or two are odd, and which these are."""
    name = rng.choice(list(_FUNCTIONS))
    given, named = _FUNCTIONS[name]()
    changed = []
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.choice([*range(len(given)), *_KEYWORDS[name]])
        value = _settings(rng) if place == "set" and rng.random() < 0.7 else odd_argument(rng)
        changed.append(str(place))
        if isinstance(place, int):
            given[place] = value
        else:
            named[place] = value
    return name, given, named, f"{name}: {', '.join(changed)}"


def calls(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Some calls, which one command makes one after the other: see `make_calls`."""
    seeds = [rng.randrange(10**9) for _ in range(CALLS if changes else 0)]
    Path(_FILE).write_text(json.dumps(seeds), encoding="utf-8")
    return [f"calls {seeds}"] if seeds else [], [["call"]]


def make_calls() -> None:
    """Make the calls of a file, as a command does. Exits with 1 if one raised what is not documented."""
    [run, *_] = sorted(Path("data", RESULTS).iterdir())
    for source, copy in ((run, _RUN), (Path("data", SWEEP, "runs"), _SWEEP)):
        shutil.copytree(source, copy, dirs_exist_ok=True)
    Path(_SCENARIO).write_text(tomli_w.dumps(_WORLD), encoding="utf-8")
    seeds = json.loads(Path(_FILE).read_text(encoding="utf-8"))
    if faults := [found for seed in seeds if (found := fault_of(seed))]:
        print("\n".join(faults), file=sys.stderr)
        raise SystemExit(1)


def fault_of(seed: int) -> str | None:
    """What is wrong with how a call ends, in words: a traceback that is not documented, or no message."""
    import coterie
    from sim.kernel.clock import Deadlock

    documented = (coterie.UserError, coterie.RunFailed, coterie.SweepFailed, Deadlock)
    name, given, named, words = odd_call(Random(seed))
    try:
        with redirect_stderr(StringIO()):
            owner = coterie.load(_RUN) if name in _OF_RUN else coterie
            getattr(owner, name)(*given, **named)
    except documented as error:
        return None if str(error).strip() else f"call {seed}, {words}: an error without words"
    except Exception:
        told = traceback.format_exc()
        if "on_evaluation" in named and "in called" in told:
            return None  # what that function raises ends the run, and is raised as it is
        return f"call {seed}, {words}:\n{told}"
    return None
