"""What callers give to the functions of this package, checked and made what a scenario file holds."""

from __future__ import annotations

import errno
import math
import os
import re
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from actors.settings.units import DURATION
from sim.errors import UserError, one_line, require_current_folder
from sim.scenario.reading import DEPTH_MAX
from sim.scenario.sections.sweep import SEEDS_MAX, Seeds
from sim.studies.cells import as_toml

Given = Mapping[str, Any] | None
_ITEMS_MAX = 1_000_001
_SEEDS: TypeAdapter[int | tuple[int, ...]] = TypeAdapter(Seeds)


def folder_of(what: Any, name: str) -> Path:
    """The folder that a path, a Run or a Sweep names. UserError."""
    found = getattr(what, "directory", what)
    if not isinstance(found, str | Path):
        raise refusal(name, what, "must be a path, or a Run or Sweep")
    return path_of(found, name)


def path_of(given: str | Path, name: str) -> Path:
    """A path that this system can have, with ~ as somebody's home. UserError."""
    require_current_folder()
    try:
        path = Path(given).expanduser()
        os.lstat(path)
    except RuntimeError:  # of pathlib, for somebody without a home
        raise refusal(name, given, "nobody here has that home; write the folder in full") from None
    except (ValueError, OSError) as error:  # NUL, lone surrogates; too long, or not there
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            raise refusal(name, given, "cannot be the name of a file or folder") from None
    return path


def refusal(name: str, given: Any, problem: str) -> UserError:
    """What is wrong with an argument, in a line that quotes it, whatever it is."""
    try:
        quoted = repr(given)
    except Exception:  # whole numbers of thousands of digits; whatever their own __repr__ does
        quoted = f"a {type(given).__name__}"
    return UserError(one_line(f"{name} = {one_line(quoted, 300)}: {problem}"))


def options(given: Given, *, several: bool = False) -> tuple[list[str], list[str]]:
    """Values by key as the commands take them: "key=value" for each, and the keys that are taken away.

    several: whether a list stands for values to be tried one after the other. UserError.
    """
    if given is not None and not isinstance(given, Mapping):
        raise refusal("set", given, "must be a dict of values by key")
    stated, unset = [], []
    for key, value in (given or {}).items():
        if not isinstance(key, str):
            raise refusal("set", key, 'must have texts as keys, such as "network.loss"')
        if value is None:
            unset.append(key)
            continue
        found = plain(value, key)
        if several and isinstance(found, list):
            if not found:
                raise UserError(f"{key} = []: must have a value at least")
            stated.append(f"{key}={','.join(map(as_toml, found))}")
        else:
            stated.append(f"{key}={as_toml(found)}")
    return stated, unset


def contents_of(scenario: Mapping[str, Any]) -> tuple[dict[str, Any], type | None]:
    """A scenario as a file holds it, and the class that stands in it as the protocol's name. UserError."""
    contents, method = dict(scenario), None
    if odd := [key for key in contents if not isinstance(key, str)]:
        raise refusal("scenario", odd[0], "must have texts as keys")
    protocol = contents.get("protocol")
    if isinstance(protocol, Mapping) and isinstance(method := protocol.get("name"), type):
        contents["protocol"] = {**protocol, "name": method.__name__}
    found = {key: plain(value, key) for key, value in contents.items()}
    return found, method if isinstance(method, type) else None


def plain(value: Any, key: str, depth: int = 0) -> Any:
    """A value as a file holds it, so many tables or lists deep. UserError with the key.

    Arrays and ranges are lists, paths are texts, classes and functions the names by which they are loaded.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise UserError(one_line(f"{key}: a whole number must have 64 bits at most"))
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if depth > DEPTH_MAX:
        raise UserError(one_line(f"{key}: is nested too deeply", 300))
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise refusal(key, odd[0], "must have texts as keys")
        return {name: plain(each, f"{key}.{name}", depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(each, f"{key}.{place}", depth + 1) for place, each in enumerate(value)]
    if isinstance(value, type | FunctionType):
        return _name_of(value, key)
    raise refusal(key, value, "must be a number, a text, a list or a dict of these")


def _name_of(value: type | FunctionType, key: str) -> str:
    """A class or a function as a scenario names it, "my_file.py:Name" or "package.module:Name". UserError."""
    name, module = value.__qualname__, sys.modules.get(value.__module__)
    if not name.isidentifier():
        raise refusal(key, value, "must be written at the top of a file")
    if module is not None and module.__name__ != "__main__" and "." in module.__name__:
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        hint = (
            f"; a method of a notebook goes by run(..., protocol={name}), in a loop, and then compare(runs)"
        )
        instead = hint if re.fullmatch(r"protocol\.name(\.\d+)?", key) else ""
        raise UserError(f"{key} = {name}: must be in a file, which results keep{instead}")
    return f"{Path(file).absolute()}:{name}"


def seconds(moment: Any, name: str) -> float:
    """A moment of virtual time, in seconds or as a text such as "20 s". UserError."""
    try:
        found = DURATION.parse(moment) if isinstance(moment, str) else float(moment)
        if math.isfinite(found):
            return found
        reason = "it is not finite"
    except Exception as error:  # what is no number; one that is too large; whatever its __float__ does
        reason = str(error)
    raise refusal(name, moment, f'must be seconds, or a text such as "20 s"; {reason}')


def seeds_of(seeds: Any) -> Any:
    """How many seeds, or which, as a sweep takes them. UserError."""
    if isinstance(seeds, np.generic | np.ndarray):
        seeds = seeds.tolist()
    listed = None if isinstance(seeds, str) else _items(seeds)
    try:
        return None if seeds is None else _SEEDS.validate_python(seeds if listed is None else tuple(listed))
    except ValidationError:
        allowed = f"how many, 1 to {SEEDS_MAX:,}, or a list of different ones, such as [11, 12]"
        raise refusal("seeds", seeds, f"must be {allowed}") from None


def _items(given: Any) -> list[Any] | None:
    """What is in an iterable, not without end; None for what is none."""
    try:
        return list(islice(given, _ITEMS_MAX))
    except Exception:  # whatever somebody's own class does
        return None


def clients_of(clients: Any) -> tuple[int, ...] | None:
    """Numbers of clients; None for all. UserError."""
    if isinstance(clients, np.generic | np.ndarray):
        clients = clients.tolist()
    if clients is None:
        return None
    found = () if isinstance(clients, str) else tuple(_items(clients) or ())
    if not found or any(type(each) is not int or each < 0 for each in found):
        raise refusal("clients", clients, "must be a list of numbers of clients, from 0, such as [0, 3]")
    return tuple(dict.fromkeys(found))


def texts_of(given: Any, name: str) -> list[str] | None:
    """A text, or several; None for None. UserError."""
    if isinstance(given, np.generic | np.ndarray):
        given = given.tolist()
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    found = _items(given)
    if found is None or not all(isinstance(each, str) for each in found):
        raise refusal(name, given, "must be a text, or a list of them")
    return found


def text_of(given: Any, name: str) -> str | None:
    """A text, or None. UserError."""
    if not isinstance(given, str | None):
        raise refusal(name, given, "must be a text")
    return given


def jobs_of(jobs: Any) -> int | None:
    """How many runs at a time; None for the usual. UserError."""
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise refusal("jobs", jobs, "must be a whole number, 1 or more")
    return jobs


def seed_of(seed: Any) -> int | None:
    """A seed, or None. UserError."""
    if isinstance(seed, np.integer):
        return int(seed)
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
        raise refusal("seed", seed, "must be a whole number, from 0 to 2**63 - 1")
    return seed


def device_of(device: Any) -> str:
    """The name of a device. UserError."""
    if not isinstance(device, str):
        raise refusal("device", device, 'must be a text, such as "cpu"')
    return device


def method_of(protocol: Any) -> type | None:
    """A method's class, or None. UserError."""
    if protocol is not None and not isinstance(protocol, type):
        raise refusal("protocol", protocol, "must be the method's class")
    return protocol


def flag_of(given: Any, name: str) -> bool:
    """True or False. UserError."""
    if not isinstance(given, bool | np.bool_):
        raise refusal(name, given, "must be True or False")
    return bool(given)


def number_of(given: Any, name: str) -> float | None:
    """A finite number, or None. UserError."""
    if given is None:
        return None
    try:
        if isinstance(given, int | float | np.number) and math.isfinite(found := float(given)):
            return found
    except OverflowError:  # a whole number that no float is
        pass
    raise refusal(name, given, "must be a finite number, such as 0.8")
