"""Checks of the arguments of this package's functions, and their conversion to scenario values."""

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
from sim.studies.option_values import as_toml

Given = Mapping[str, Any] | None
_ITEMS_MAX = 1_000_001
_SEEDS: TypeAdapter[int | tuple[int, ...]] = TypeAdapter(Seeds)


def folder_of(what: Any, name: str) -> Path:
    """Return the folder of a path, a Run or a Sweep. Raises UserError."""
    found = getattr(what, "directory", what)
    if not isinstance(found, str | Path):
        raise refusal(name, what, "must be a path, or a Run or Sweep")
    return path_of(found, name)


def path_of(given: str | Path, name: str) -> Path:
    """Return a path that this system allows, with ~ expanded. Raises UserError."""
    require_current_folder()
    try:
        path = Path(given).expanduser()
        os.lstat(path)
    except RuntimeError:  # pathlib, for a user without a home
        raise refusal(name, given, "the home folder is unknown; write the full path") from None
    except (ValueError, OSError) as error:  # NUL or lone surrogates; too long, or missing
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            raise refusal(name, given, "cannot be the name of a file or folder") from None
    return path


def refusal(name: str, given: Any, problem: str) -> UserError:
    """Return an error about an argument, in one line that quotes the argument."""
    try:
        quoted = repr(given)
    except Exception:  # whole numbers of thousands of digits; errors of the argument's own __repr__
        quoted = f"a value of type {type(given).__name__}"
    return UserError(one_line(f"{name} = {one_line(quoted, 300)}: {problem}"))


def options(given: Given, *, several: bool = False) -> tuple[list[str], list[str]]:
    """Convert values by key to command options: "key=value" for each, and the keys that are removed.

    several: whether a list means several values to try. Raises UserError.
    """
    if given is not None and not isinstance(given, Mapping):
        raise refusal("set", given, "must be a dict of values by key")
    stated, unset = [], []
    for key, value in (given or {}).items():
        if not isinstance(key, str):
            raise refusal("set", key, 'keys must be strings, such as "network.loss"')
        if value is None:
            unset.append(key)
            continue
        found = plain(value, key)
        if several and isinstance(found, list):
            if not found:
                raise UserError(f"{key} = []: must contain at least one value")
            stated.append(f"{key}={','.join(map(as_toml, found))}")
        else:
            stated.append(f"{key}={as_toml(found)}")
    return stated, unset


def contents_of(scenario: Mapping[str, Any]) -> tuple[dict[str, Any], type | None]:
    """Return a scenario's contents as in a file, and the class that was given as `protocol.name`, or None.

    Raises UserError.
    """
    contents, method = dict(scenario), None
    if odd := [key for key in contents if not isinstance(key, str)]:
        raise refusal("scenario", odd[0], "keys must be strings")
    protocol = contents.get("protocol")
    if isinstance(protocol, Mapping) and isinstance(method := protocol.get("name"), type):
        contents["protocol"] = {**protocol, "name": method.__name__}
    found = {key: plain(value, key) for key, value in contents.items()}
    return found, method if isinstance(method, type) else None


def plain(value: Any, key: str, depth: int = 0) -> Any:
    """Return a value as in a file, at `depth` levels of tables or lists. UserError names the key.

    Arrays, tuples and ranges become lists, paths strings, classes and functions the names by which they are
    loaded.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise UserError(one_line(f"{key}: a whole number must have at most 64 bits"))
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if depth > DEPTH_MAX:
        raise UserError(one_line(f"{key} is nested too deeply", 300))
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise refusal(key, odd[0], "keys must be strings")
        return {name: plain(each, f"{key}.{name}", depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(each, f"{key}.{index}", depth + 1) for index, each in enumerate(value)]
    if isinstance(value, type | FunctionType):
        return _name_of(value, key)
    raise refusal(key, value, "must be a number, a string, a list or a dict of these")


def _name_of(value: type | FunctionType, key: str) -> str:
    """Return the name of a class or function, "file.py:Name" or "package.module:Name". Raises UserError."""
    name, module = value.__qualname__, sys.modules.get(value.__module__)
    if not name.isidentifier():
        raise refusal(key, value, "must be defined at the top level of a file")
    if module is not None and module.__name__ != "__main__" and "." in module.__name__:
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        hint = (
            f"; for a method defined in a notebook, call run(..., protocol={name}) in a loop, and then "
            "compare(runs)"
        )
        instead = hint if re.fullmatch(r"protocol\.name(\.\d+)?", key) else ""
        raise UserError(
            f"{key} = {name}: must be defined in a file, because results keep a copy of the code{instead}"
        )
    return f"{Path(file).absolute()}:{name}"


def seconds(moment: Any, name: str) -> float:
    """Return a virtual time in seconds, given as a number or a string such as "20 s". Raises UserError."""
    try:
        found = DURATION.parse(moment) if isinstance(moment, str) else float(moment)
        if math.isfinite(found):
            return found
        reason = "it is not finite"
    except Exception as error:  # not a number; too large; errors of its own __float__
        reason = str(error)
    raise refusal(name, moment, f'must be seconds, or a string such as "20 s"; {reason}')


def seeds_of(seeds: Any) -> Any:
    """Return the number of seeds, or the seeds, in the form that a sweep accepts. Raises UserError."""
    if isinstance(seeds, np.generic | np.ndarray):
        seeds = seeds.tolist()
    listed = None if isinstance(seeds, str) else _items(seeds)
    try:
        return None if seeds is None else _SEEDS.validate_python(seeds if listed is None else tuple(listed))
    except ValidationError:
        allowed = f"a number of seeds, 1 to {SEEDS_MAX:,}, or a list of different seeds, such as [11, 12]"
        raise refusal("seeds", seeds, f"must be {allowed}") from None


def _items(given: Any) -> list[Any] | None:
    """Return the items of an iterable, up to a limit; None for other objects."""
    try:
        return list(islice(given, _ITEMS_MAX))
    except Exception:  # any error of the iterable's own code
        return None


def clients_of(clients: Any) -> tuple[int, ...] | None:
    """Return client numbers without repetitions; None for all clients. Raises UserError."""
    if isinstance(clients, np.generic | np.ndarray):
        clients = clients.tolist()
    if clients is None:
        return None
    found = () if isinstance(clients, str) else tuple(_items(clients) or ())
    if not found or any(type(each) is not int or each < 0 for each in found):
        raise refusal("clients", clients, "must be a list of client numbers, from 0, such as [0, 3]")
    return tuple(dict.fromkeys(found))


def client_of(client: Any) -> int | str:
    """Return the number or the name of a client. Raises UserError for other types."""
    return client if isinstance(client, str) else index_of(client, "client")


def texts_of(given: Any, name: str) -> list[str] | None:
    """Return one or several strings as a list; None for None. Raises UserError."""
    if isinstance(given, np.generic | np.ndarray):
        given = given.tolist()
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    found = _items(given)
    if found is None or not all(isinstance(each, str) for each in found):
        raise refusal(name, given, "must be a string, or a list of strings")
    return found


def choices_of(given: Any) -> list[str]:
    """Return values of axes as "axis=value": from such strings, or from a dict. Raises UserError."""
    if not isinstance(given, Mapping):
        return texts_of(given, "only") or []
    pairs = [
        (axis, each)
        for axis, values in given.items()
        for each in (values if isinstance(values, list | tuple) else [values])
    ]
    names = [each.__name__ if isinstance(each, type) else each for _, each in pairs]
    return [
        f"{axis}={name if isinstance(name, str) else as_toml(name)}"
        for (axis, _), name in zip(pairs, names, strict=True)
    ]


def text_of(given: Any, name: str) -> str | None:
    """Return a string, or None. Raises UserError."""
    if not isinstance(given, str | None):
        raise refusal(name, given, "must be a string")
    return given


def jobs_of(jobs: Any, name: str = "jobs") -> int | None:
    """Return a number of runs to compute at the same time; None for the default. Raises UserError."""
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise refusal(name, jobs, "must be a whole number, 1 or more")
    return jobs


def seed_of(seed: Any) -> int | None:
    """Return a seed, or None. Raises UserError."""
    if isinstance(seed, np.integer):
        return int(seed)
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
        raise refusal("seed", seed, "must be a whole number, from 0 to 2**63 - 1")
    return seed


def index_of(number: Any, name: str, least: int = 0) -> int:
    """Return a whole number from `least` to 2**31 - 1. Raises UserError."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not least <= number < 2**31:
        raise refusal(name, number, f"must be a whole number from {least} to {2**31 - 1:,}")
    return int(number)


def device_of(device: Any) -> str:
    """Return the name of a device. Raises UserError."""
    if not isinstance(device, str):
        raise refusal("device", device, 'must be a string, such as "cpu"')
    return device


def method_of(protocol: Any) -> type | None:
    """Return a method's class, or None. Raises UserError."""
    if protocol is not None and not isinstance(protocol, type):
        raise refusal("protocol", protocol, "must be the method's class")
    return protocol


def flag_of(given: Any, name: str) -> bool:
    """Return True or False. Raises UserError."""
    if not isinstance(given, bool | np.bool_):
        raise refusal(name, given, "must be True or False")
    return bool(given)


def number_of(given: Any, name: str) -> float | None:
    """Return a finite number, or None. Raises UserError."""
    if given is None:
        return None
    try:
        if isinstance(given, int | float | np.number) and math.isfinite(found := float(given)):
            return found
    except OverflowError:  # a whole number beyond the range of floats
        pass
    raise refusal(name, given, "must be a finite number, such as 0.8")
