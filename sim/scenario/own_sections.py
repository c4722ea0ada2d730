"""Tables of a scenario that the user's own code reads: its keys are the arguments of a class or function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import create_model
from pydantic.errors import PydanticUserError

from actors.place import of_class, written
from protocols.framework.settings import Settings
from sim.errors import UserError
from sim.learning.models import MODELS
from sim.learning.models.own import PROVIDED, OwnModel
from sim.scenario.user_code import UserCode, is_users, load_users


@dataclass(frozen=True, eq=False)
class Door:
    """A table that may name the user's code: by which key, its section's base, and what the code is given."""

    table: str
    key: str
    base: type[Settings]
    provided: tuple[str, ...]
    known: Mapping[str, type]

    @property
    def name(self) -> str:
        """The key in the scenario."""
        return f"{self.table}.{self.key}"


DOORS = (Door("model", "name", OwnModel, PROVIDED, MODELS),)


def users_of(raw: Mapping[str, Any], folder: Path | None, *, code: bool) -> Iterator[tuple[Door, UserCode]]:
    """What the tables of a scenario name of the user's own code. Raises UserError."""
    for door in DOORS:
        table = raw.get(door.table)
        name = table.get(door.key) if isinstance(table, Mapping) else None
        if isinstance(name, str) and is_users(name):
            yield door, load_users(door.name, name, folder, code=code, instead=", ".join(door.known))


def section_of(door: Door, user: UserCode) -> type[Settings]:
    """The class of a table whose keys are the arguments of `user.found`, beside those that it is given.

    Raises UserError for arguments that a scenario cannot state.
    """
    is_code = inspect.isclass(user.found) or inspect.isfunction(user.found)
    if not is_code:  # what is unhashable cannot be remembered either
        what = type(user.found).__name__
        raise UserError(f'{door.name} = "{user.name}": must be a class or a function, not a {what}')
    return _section(door, user.name, user.found)


@cache
def _section(door: Door, name: str, found: Any) -> type[Settings]:
    fields: dict[str, Any] = {}
    takes = []
    for argument in _arguments(door, name, found):
        if argument.name in door.provided:
            takes.append(argument.name)
        elif argument.kind is not inspect.Parameter.VAR_KEYWORD:
            fields[argument.name] = _field(door, name, found, argument)
    try:
        made: type[Settings] = create_model(  # type: ignore[call-overload]
            found.__name__, __base__=door.base, **{door.key: (Literal[name], ...)}, **fields
        )
    except (PydanticUserError, TypeError, NameError) as error:
        raise _refused(door, name, found, str(error).partition("\n")[0]) from error
    made.make, made.takes = staticmethod(found), frozenset(takes)  # type: ignore[attr-defined]
    return made


def _arguments(door: Door, name: str, found: Any) -> list[inspect.Parameter]:
    called = inspect.getattr_static(found, "__init__") if isinstance(found, type) else found
    try:
        parameters = inspect.signature(found).parameters.values()
        hints = typing.get_type_hints(called)
    except (TypeError, ValueError, NameError) as error:
        raise _refused(door, name, found, f"its arguments cannot be read: {error}") from error
    return [each.replace(annotation=hints.get(each.name, each.annotation)) for each in parameters]


def _field(door: Door, name: str, found: Any, argument: inspect.Parameter) -> tuple[Any, Any]:
    """Type and default of a key."""
    empty, problem = inspect.Parameter.empty, ""
    kind, default = argument.annotation, argument.default
    if kind is empty and default is not empty and default is not None:
        kind = type(default)
    if argument.kind in (argument.VAR_POSITIONAL, argument.POSITIONAL_ONLY):
        problem = "cannot be stated by name"
    elif argument.name in door.base.model_fields:
        problem = "is a key that all have; it needs another name"
    elif kind is empty:
        given = ", ".join(door.provided)
        problem = f"needs a type, such as `{argument.name}: int`; without a key it is given {given}"
    if problem:
        raise _refused(door, name, found, f"its argument {argument.name} {problem}")
    if typing.get_origin(kind) is list:  # what a section holds cannot be changed
        kind = tuple[*typing.get_args(kind), ...]  # type: ignore[misc]
        default = tuple(default) if isinstance(default, list) else default
    return kind, ... if default is empty else default


def _refused(door: Door, name: str, found: Any, problem: str) -> UserError:
    if isinstance(found, type):
        where = of_class(found)
    else:
        code = getattr(found, "__code__", None)
        where = code and written(code.co_filename, code.co_firstlineno)
    return UserError(f'{door.name} = "{name}": {where or "there"}: {problem}')
