"""What callers give to the functions of this package, checked and made what a scenario file holds."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from actors.settings.units import DURATION
from sim.errors import UserError, one_line
from sim.scenario.sections.sweep import SEEDS_MAX, Seeds
from sim.studies.cells import as_toml

Given = Mapping[str, Any] | None
_SEEDS: TypeAdapter[int | tuple[int, ...]] = TypeAdapter(Seeds)


def folder_of(what: Any, name: str) -> Path:
    """The folder that a path, a Run or a Sweep names. UserError."""
    found = getattr(what, "directory", what)
    if not isinstance(found, str | Path):
        raise UserError(one_line(f"{name} = {what!r}: must be a path, or a Run or Sweep"))
    return Path(found).expanduser()


def options(given: Given, *, several: bool = False) -> tuple[list[str], list[str]]:
    """Values by key as the commands take them: "key=value" for each, and the keys that are taken away.

    several: whether a list stands for values to be tried one after the other. UserError.
    """
    if given is not None and not isinstance(given, Mapping):
        raise UserError(one_line(f"set = {given!r}: must be a dict of values by key"))
    stated, unset = [], []
    for key, value in (given or {}).items():
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
    protocol = contents.get("protocol")
    if isinstance(protocol, Mapping) and isinstance(method := protocol.get("name"), type):
        contents["protocol"] = {**protocol, "name": method.__name__}
    found = {key: plain(value, key) for key, value in contents.items()}
    return found, method if isinstance(method, type) else None


def plain(value: Any, key: str) -> Any:
    """A value as a file holds it. UserError with the key.

    Arrays and ranges are lists, paths are texts, classes and functions the names by which they are loaded.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: plain(each, f"{key}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(each, f"{key}.{place}") for place, each in enumerate(value)]
    if isinstance(value, type | FunctionType):
        return _name_of(value, key)
    raise UserError(one_line(f"{key} = {value!r}: must be a number, a text, a list or a dict of these"))


def _name_of(value: type | FunctionType, key: str) -> str:
    """A class or a function as a scenario names it, "my_file.py:Name" or "package.module:Name". UserError."""
    name, module = value.__qualname__, sys.modules.get(value.__module__)
    if not name.isidentifier():
        raise UserError(one_line(f"{key} = {value!r}: must be written at the top of a file"))
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
        return DURATION.parse(moment) if isinstance(moment, str) else float(moment)
    except (TypeError, ValueError) as error:
        raise UserError(
            one_line(f'{name} = {moment!r}: must be seconds, or a text such as "20 s"; {error}')
        ) from None


def seeds_of(seeds: Any) -> Any:
    """How many seeds, or which, as a sweep takes them. UserError."""
    if isinstance(seeds, np.generic | np.ndarray):
        seeds = seeds.tolist()
    listed = isinstance(seeds, Iterable) and not isinstance(seeds, str)
    try:
        return None if seeds is None else _SEEDS.validate_python(tuple(seeds) if listed else seeds)
    except ValidationError:
        allowed = f"how many, 1 to {SEEDS_MAX:,}, or a list of different ones, such as [11, 12]"
        raise UserError(one_line(f"seeds = {seeds!r}: must be {allowed}")) from None


def clients_of(clients: Any) -> tuple[int, ...] | None:
    """Numbers of clients; None for all. UserError."""
    if isinstance(clients, np.generic | np.ndarray):
        clients = clients.tolist()
    if clients is None:
        return None
    found = tuple(clients) if isinstance(clients, Iterable) and not isinstance(clients, str) else ()
    if not found or any(type(each) is not int or each < 0 for each in found):
        raise UserError(
            one_line(f"clients = {clients!r}: must be a list of numbers of clients, from 0, such as [0, 3]")
        )
    return tuple(dict.fromkeys(found))


def texts_of(given: Any, name: str) -> list[str] | None:
    """A text, or several; None for None. UserError."""
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    found = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(each, str) for each in found):
        raise UserError(one_line(f"{name} = {given!r}: must be a text, or a list of them"))
    return found


def text_of(given: Any, name: str) -> str | None:
    """A text, or None. UserError."""
    if not isinstance(given, str | None):
        raise UserError(one_line(f"{name} = {given!r}: must be a text"))
    return given


def jobs_of(jobs: Any) -> int | None:
    """How many runs at a time; None for the usual. UserError."""
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise UserError(one_line(f"jobs = {jobs!r}: must be a whole number, 1 or more"))
    return jobs
