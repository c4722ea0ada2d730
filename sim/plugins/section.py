"""Sections that the user's own code reads: the keys of a table are the arguments of a class or function."""

import inspect
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import create_model
from pydantic.errors import PydanticUserError

from actors.message import describe
from actors.settings.base import Settings
from actors.source_location import of_definition, of_error, written
from sim.errors import UserError
from sim.plugins.loader import Plugin
from sim.plugins.process_settings import settings_kept

FAILURES = (Exception, SystemExit)
"""Exceptions with which the user's code is said to have failed: its sys.exit() does not end a run, either."""
USERS_CODE = r"^.+:[A-Za-z_]\w*$"
"""A regular expression for names of the user's code in a scenario, such as "my.py:Net"."""


class PluginSection(Settings):
    """A section of the user's own code; for each class or function there is a subclass, by `section_of`."""

    provided: ClassVar[tuple[str, ...]]
    """Arguments that the code is given, as far as it takes them; all others are keys of the table."""
    make: ClassVar[Callable[..., Any]]
    """The class or function."""
    takes: ClassVar[frozenset[str]]
    """Which of `provided` it takes."""
    keys: ClassVar[tuple[str, ...]]
    """The other arguments, which are keys of the table."""
    stated: ClassVar[str]
    """What the scenario says, such as `model.name = "my.py:Net"`."""

    def call(self, **provided: Any) -> Any:
        """What the code returns, given those of `provided` that it takes; raises whatever it raises."""
        given = {name: value for name, value in provided.items() if name in self.takes}
        with settings_kept():
            return type(self).make(**given, **{name: getattr(self, name) for name in self.keys})

    def refusal(self, problem: str, error: BaseException | None = None) -> UserError:
        """An error: what the scenario says, the innermost line of the user's file that took part, and why."""
        make = type(self).make
        file = inspect.getsourcefile(make) or ""
        lines = [frame for frame in of_error(error) if frame[0] == file] if error is not None else []
        where = written(*lines[-1]) if lines else of_definition(make)
        return UserError(f"{self.stated}: {where}: {make.__name__} {problem}")


Section = TypeVar("Section", bound=PluginSection)


def section_of(base: type[Section], key: str, plugin: Plugin) -> type[Section]:
    """The subclass of `base` for a table whose `key` names a plug-in.

    Raises UserError for what is no class or function, and for arguments that a scenario cannot state.
    """
    if not (inspect.isclass(plugin.found) or inspect.isfunction(plugin.found)):
        what = type(plugin.found).__name__
        raise UserError(f"{plugin.stated}: must be a class or a function, not a {what}")
    return _section(base, key, plugin.stated, plugin.name, plugin.found)  # type: ignore[arg-type]


@cache
def _section(base: type[Section], key: str, stated: str, name: str, found: Any) -> type[Section]:
    fields: dict[str, Any] = {}
    takes = []
    for argument in _arguments(stated, found):
        if argument.name in base.provided:
            takes.append(argument.name)
        elif argument.kind is not inspect.Parameter.VAR_KEYWORD:
            fields[argument.name] = _field(base, stated, found, argument)
    try:
        made: type[Section] = create_model(  # type: ignore[call-overload]
            found.__name__, __base__=base, **{key: (Literal[name], ...)}, **fields
        )
    except (PydanticUserError, TypeError, NameError) as error:
        raise _refused(stated, found, str(error).partition("\n")[0]) from error
    made.make, made.takes = staticmethod(found), frozenset(takes)
    made.keys, made.stated = tuple(fields), stated
    return made


def _arguments(stated: str, found: Any) -> list[inspect.Parameter]:
    called = inspect.getattr_static(found, "__init__") if isinstance(found, type) else found
    try:
        parameters = inspect.signature(found).parameters.values()
        hints = typing.get_type_hints(called, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise _refused(stated, found, f"its arguments cannot be read: {error}") from error
    return [each.replace(annotation=hints.get(each.name, each.annotation)) for each in parameters]


def _field(
    base: type[PluginSection], stated: str, found: Any, argument: inspect.Parameter
) -> tuple[Any, Any]:
    """Type and default of a key."""
    empty, problem, name = inspect.Parameter.empty, "", argument.name
    kind, default = argument.annotation, argument.default
    if kind is empty and default is not empty and default is not None:
        kind = type(default)
    if argument.kind in (argument.VAR_POSITIONAL, argument.POSITIONAL_ONLY):
        problem = "cannot be stated by name"
    elif name in base.__class_vars__ or name in base.model_fields or hasattr(base, name):
        problem = "is a key that all have; it needs another name"
    elif kind is empty:
        given = ", ".join(base.provided)
        problem = f"needs a type, such as `{name}: int`; without a key it is given {given}"
    if problem:
        raise _refused(stated, found, f"its argument {name} {problem}")
    if typing.get_origin(kind) is list:  # what a section holds cannot be changed
        kind = tuple[*typing.get_args(kind), ...]  # type: ignore[misc]
        default = tuple(default) if isinstance(default, list) else default
    return kind, ... if default is empty else default


def _refused(stated: str, found: Any, problem: str) -> UserError:
    return UserError(f"{stated}: {of_definition(found) or 'there'}: {problem}")


def in_short(error: BaseException) -> str:
    """The first line of what an error says."""
    return describe(error).partition("\n")[0]
