"""Sections of user code: the keys of a table are the arguments of a class or function."""

import inspect
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import create_model
from pydantic.errors import PydanticUserError

from actors.message import describe
from actors.settings.base import Settings
from actors.source_location import definition_location, location_text, traceback_frames
from sim.errors import UserError
from sim.plugins.loader import Plugin
from sim.plugins.process_settings import restoring_torch_settings

USERS_CODE = r"^.+:[A-Za-z_]\w*$"
"""Regular expression for names of user code in a scenario, such as "my.py:Net"."""


class PluginSection(Settings):
    """A section of user code; `section_with_plugin_keys` creates a subclass for each class or function."""

    provided: ClassVar[tuple[str, ...]]
    """Arguments that coterie passes if the code has them; all others are keys of the table."""
    make: ClassVar[Callable[..., Any]]
    """Class or function."""
    takes: ClassVar[frozenset[str]]
    """Arguments of `provided` that the code has."""
    keys: ClassVar[tuple[str, ...]]
    """Other arguments of the code, which are keys of the table."""
    key_and_value: ClassVar[str]
    """Key and value in the scenario, such as `model.name = "my.py:Net"`."""

    def call(self, **provided: Any) -> Any:
        """Call the code with the table's keys and the `provided` arguments it takes. Raises its errors."""
        given = {name: value for name, value in provided.items() if name in self.takes}
        with restoring_torch_settings():
            return type(self).make(**given, **{name: getattr(self, name) for name in self.keys})

    def refusal(self, problem: str, error: BaseException | None = None) -> UserError:
        """Return an error with the scenario's key, the innermost line of the user's file, and the problem."""
        make = type(self).make
        file = inspect.getsourcefile(make) or ""
        lines = [frame for frame in traceback_frames(error) if frame[0] == file] if error is not None else []
        where = location_text(*lines[-1]) if lines else definition_location(make)
        return UserError(f"{self.key_and_value}: {where}: {make.__name__} {problem}")


Section = TypeVar("Section", bound=PluginSection)


def section_with_plugin_keys(base: type[Section], key: str, plugin: Plugin) -> type[Section]:
    """Return the subclass of `base` for a table with a `key` that names a plugin.

    Raises UserError for other objects than classes and functions, and for arguments that cannot be keys.
    """
    if not (inspect.isclass(plugin.found) or inspect.isfunction(plugin.found)):
        what = type(plugin.found).__name__
        raise UserError(f"{plugin.key_and_value}: must be a class or a function, but is of type {what}")
    return _section(base, key, plugin.key_and_value, plugin.name, plugin.found)  # type: ignore[arg-type]


@cache
def _section(base: type[Section], key: str, stated: str, name: str, found: Any) -> type[Section]:
    fields: dict[str, Any] = {}
    takes = []
    for argument in _arguments(stated, found):
        if argument.name in base.provided:
            takes.append(argument.name)
        elif argument.kind is not inspect.Parameter.VAR_KEYWORD:
            fields[argument.name] = _key_type_and_default(base, stated, found, argument)
    try:
        made: type[Section] = create_model(  # type: ignore[call-overload]
            found.__name__, __base__=base, **{key: (Literal[name], ...)}, **fields
        )
    except (PydanticUserError, TypeError, NameError) as error:
        raise _plugin_error(stated, found, str(error).partition("\n")[0]) from error
    made.make, made.takes = staticmethod(found), frozenset(takes)
    made.keys, made.key_and_value = tuple(fields), stated
    return made


def _arguments(stated: str, found: Any) -> list[inspect.Parameter]:
    called = inspect.getattr_static(found, "__init__") if isinstance(found, type) else found
    try:
        parameters = inspect.signature(found).parameters.values()
        hints = typing.get_type_hints(called, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise _plugin_error(stated, found, f"the arguments cannot be read: {error}") from error
    return [each.replace(annotation=hints.get(each.name, each.annotation)) for each in parameters]


def _key_type_and_default(
    base: type[PluginSection], stated: str, found: Any, argument: inspect.Parameter
) -> tuple[Any, Any]:
    """Type and default of a key."""
    empty, problem, name = inspect.Parameter.empty, "", argument.name
    kind, default = argument.annotation, argument.default
    if kind is empty and default is not empty and default is not None:
        kind = type(default)
    if argument.kind in (argument.VAR_POSITIONAL, argument.POSITIONAL_ONLY):
        problem = "cannot be passed by name"
    elif name in base.model_fields:
        problem = "has the name of a common key; rename it"
    elif name in base.__class_vars__ or hasattr(base, name):
        problem = "has the name of an attribute of coterie; rename it"
    elif kind is empty:
        given = ", ".join(base.provided)
        problem = f"needs a type, such as `{name}: int`; the arguments that are not keys are {given}"
    if problem:
        raise _plugin_error(stated, found, f"its argument {name} {problem}")
    if typing.get_origin(kind) is list:  # sections are immutable
        kind = tuple[*typing.get_args(kind), ...]  # type: ignore[misc]
        default = tuple(default) if isinstance(default, list) else default
    return kind, ... if default is empty else default


def _plugin_error(stated: str, found: Any, problem: str) -> UserError:
    return UserError(f"{stated}: {definition_location(found) or 'the code'}: {problem}")


def first_error_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return describe(error).partition("\n")[0]
