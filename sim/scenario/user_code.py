"""What a scenario names of the user's own code: `my_file.py:Name`, or `package.module:Name`."""

from __future__ import annotations

import importlib
import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from sim.errors import UserError
from sim.scenario.protocol_modules import load_file
from sim.scenario.refusals import nearest, one_line
from sim.scenario.sources import Source, sources_of, sources_of_file


@dataclass(frozen=True)
class UserCode:
    """Something of the user's own that the key of a scenario names.

    key: such as "model.name" or "churn_process.0.kind". name: as the resolved scenario states it, a file's
    path absolute. found: the class or function. file: the file that the name names; None for a package.
    sources: the files that it consists of, as they were when it was loaded.
    """

    key: str
    name: str
    found: Any
    file: Path | None
    sources: tuple[Source, ...]

    @property
    def label(self) -> str:
        """The part behind the colon."""
        return self.name.rpartition(":")[2]

    @property
    def stated(self) -> str:
        """What the resolved scenario says."""
        return f'{self.key} = "{self.name}"'

    def within(self, folder: str) -> str:
        """Its name if its file lay in that folder; that of a package is the same everywhere."""
        return self.name if self.file is None else f"{folder}{self.file.name}:{self.label}"


def is_users(name: object) -> TypeGuard[str]:
    """Whether a name in a scenario is one of the user's code."""
    if not isinstance(name, str):
        return False
    place, _, label = name.rpartition(":")
    return bool(place) and label.isidentifier()


def load_users(key: str, name: str, folder: Path | None, *, code: bool, instead: str) -> UserCode:
    """What `name` names, by executing that Python.

    A file's path is relative to the current folder, or else to `folder`. code=False refuses it unread, and
    says what is allowed `instead`. Raises UserError.
    """
    place, _, label = name.rpartition(":")
    require_code(key, name, code=code, instead=instead)
    if not place.endswith(".py"):
        module = installed_module(key, name, place)
        found = _member(key, name, module, label)
        return UserCode(key, name, found, None, sources_of(found) if hasattr(found, "__module__") else ())
    path = find_file(place, folder)
    module = module_of_file(key, name, place, folder)
    return UserCode(key, f"{path}:{label}", _member(key, name, module, label), path, sources_of_file(path))


def require_code(key: str, name: str, *, code: bool, instead: str) -> None:
    """UserError where Python that does not come with coterie must not be executed."""
    if not code:
        raise UserError(
            one_line(
                f'{key} = "{name}": would execute Python that does not come with coterie, which '
                f"--no-code refuses; allowed: {instead}"
            )
        )


def _member(key: str, name: str, module: ModuleType, label: str) -> Any:
    found = getattr(module, label, None)
    if found is None:
        own = [each for each, value in vars(module).items() if _is_of(value, module)]
        has = f"it has: {', '.join(own) or 'none'}{nearest(label, own)}"
        raise UserError(f'{key} = "{name}": {name.rpartition(":")[0]} has no {label!r}; {has}')
    return found


def _is_of(value: object, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def absolute_name(name: str, folder: Path | None) -> str:
    """`name` with a file's path made absolute, so that it means the same wherever it is read again."""
    place, _, label = name.rpartition(":")
    return f"{find_file(place, folder)}:{label}" if place.endswith(".py") else name


def find_file(path: str, folder: Path | None) -> Path:
    """Absolute path of a file that a scenario names: relative to the current folder, or else to `folder`."""
    here = Path(path).absolute()
    # Not Path.exists, which raises for a path that is too long.
    return here if folder is None or os.path.exists(here) else (folder / path).absolute()


def installed_module(key: str, name: str, place: str) -> ModuleType:
    """A module that is installed, or found by Python otherwise. UserError."""
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise _refusal(key, name, place, error) from None


def module_of_file(key: str, name: str, place: str, folder: Path | None) -> ModuleType:
    """The module of a file. UserError."""
    path = find_file(place, folder)
    if not os.path.isfile(path):
        looked = dict.fromkeys([Path(place).absolute(), *([(folder / place).absolute()] if folder else [])])
        raise UserError(one_line(f'{key} = "{name}": there is no file {" or ".join(map(str, looked))}'))
    try:
        sources = sources_of_file(path)
    except OSError as error:
        where = error.filename or path
        raise UserError(f'{key} = "{name}": {where} cannot be read: {error.strerror}') from None
    try:
        return load_file(path, sources)
    except (Exception, SystemExit) as error:
        raise _refusal(key, name, place, error) from None


def _refusal(key: str, name: str, place: str, error: BaseException) -> UserError:
    """The module's own failure, with the last line of its code that took part."""
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno})"
    else:
        lines = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(place)
        ]
        where = f" (line {lines[-1].lineno})" if lines else ""
    return UserError(
        one_line(f'{key} = "{name}": {place} cannot be loaded{where}: {type(error).__name__}: {error}')
    )
