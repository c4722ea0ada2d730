"""Base class of all settings, and the error that names an invalid key."""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

_OURS = ("actors", "protocols", "sim")


def default(text: str) -> Any:
    """Return a quantity's default as text, as in a file; typed Any, because the text becomes a number."""
    return text


class SettingError(ValueError):
    """Error about a value that conflicts with others; raise it from a validator to name the invalid key.

    `key` is relative to the settings class that raises (``"betas"``, ``"partition.clusters"``).
    """

    def __init__(self, key: str, value: Any, problem: str) -> None:
        super().__init__(problem)
        self.key, self.value, self.problem = key, value, problem


class Settings(BaseModel):
    """Base class of settings: frozen, without unknown keys or silent conversions (``"3"`` is not 3).

    A quantity's default is written as in a scenario file, ``patience: Duration = "2 s"``; with mypy,
    ``default("2 s")``. Lists of a file become tuples, because settings never change: a class that declares a
    ``list[int]`` instead of a ``tuple[int, ...]`` is a TypeError. A string under a field documents it in the
    schema and the reference.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,  # until first use: a scenario uses few of all classes
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if cls.__module__.partition(".")[0] not in _OURS:
            cls.model_rebuild(raise_errors=False)  # at once, so that errors point to the user's line
        for name, field in cls.model_fields.items():
            if (found := _list_in(field.annotation)) is not None:
                items = ", ".join([getattr(each, "__name__", str(each)) for each in get_args(found)]) or "Any"
                must = f"must be tuple[{items}, ...], not a list, as settings never change"
                raise TypeError(f"{cls.__qualname__}.{name} {must}")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # Not by pydantic's use_attribute_docstrings, which reads the sources of all classes at every start.
        schema = handler(core)
        texts = {
            name: text for each in reversed(cls.__mro__) for name, text in _field_docstrings(each).items()
        }
        known = {
            field.alias or name: texts[name] for name, field in cls.model_fields.items() if name in texts
        }
        for option in (schema, *schema.get("anyOf", ())):  # a table may have a short form
            for key, found in handler.resolve_ref_schema(option).get("properties", {}).items():
                if key in known:
                    found.setdefault("description", known[key])
        return schema

    @model_validator(mode="before")
    @classmethod
    def _lists_become_tuples(cls, data: Any) -> Any:
        # Settings are immutable all the way down, and strict validation takes only tuples for tuples.
        return (
            {key: _lists_to_tuples(value) for key, value in data.items()} if isinstance(data, dict) else data
        )


@cache
def _field_docstrings(cls: type) -> dict[str, str]:
    """Return the strings under the fields of a class, by field; empty if its source is unknown."""
    if not issubclass(cls, Settings):
        return {}
    try:
        written = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    return {
        field.target.id: inspect.cleandoc(text)
        for field, below in pairwise(written.body if isinstance(written, ast.ClassDef) else ())
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(text := below.value.value, str)
    }


def _list_in(annotation: Any) -> Any:
    """Return a list in a type, such as list[int] in ``list[int] | None``; None without one."""
    if annotation is list or get_origin(annotation) is list:
        return annotation
    return next(filter(None, map(_list_in, get_args(annotation))), None)


def _lists_to_tuples(value: Any) -> Any:
    return tuple(_lists_to_tuples(item) for item in value) if isinstance(value, list) else value


def exactly_one(section: Settings, *keys: str) -> None:
    """Raise SettingError unless exactly one of these optional keys is given."""
    stated = [key for key in keys if getattr(section, key) is not None]
    if len(stated) != 1:
        names = " or ".join(repr(key) for key in keys)
        raise SettingError(stated[1] if stated else keys[0], None, f"set exactly one of {names}")


def at_least_one(section: Settings, *keys: str) -> None:
    """Raise SettingError if all of these keys have their defaults, because the section then has no effect."""
    if not any(_differs_from_default(section, key) for key in keys):
        *first, last = map(repr, keys)
        raise SettingError(
            keys[0], None, f"set {', '.join(first)} or {last}; otherwise, the section has no effect"
        )


def require_defaults(section: Settings, reason: str, *keys: str) -> None:
    """Raise SettingError if one of these keys differs from its default, because it would have no effect."""
    for key in keys:
        if _differs_from_default(section, key):
            raise SettingError(key, getattr(section, key), f"has no effect: {reason}")


def _differs_from_default(section: Settings, key: str) -> bool:
    # Not model_fields_set: a resolved scenario lists every key, including those with defaults.
    return getattr(section, key) != type(section).model_fields[key].default


def at_most_one(section: Settings, *keys: str) -> None:
    """Raise SettingError if more than one of these optional keys is given."""
    stated = [key for key in keys if getattr(section, key) is not None]
    if len(stated) > 1:
        names = " or ".join(repr(key) for key in keys)
        raise SettingError(stated[1], None, f"set either {names}, not both")
