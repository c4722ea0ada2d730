"""Keys of a scenario that may name user code."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
)
from pydantic_core import CoreSchema, core_schema

from actors.settings.base import Settings
from sim.plugins.section import PluginSection

A = TypeVar("A")


@dataclass(frozen=True, eq=False)
class PluginPoint:
    """Annotation of a table that may name user code instead of a built-in kind.

    The reader of a scenario finds these tables with `annotated`, loads the code and creates sections of the
    class `section`, which pass validation unchanged. In the JSON Schema, "x-own" describes the keys that all
    sections of this class have.
    """

    section: type[PluginSection]

    @property
    def key(self) -> str:
        """Key of the table that names the code."""
        return "kind" if "kind" in self.section.model_fields else "name"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            lambda value, check: value if isinstance(value, self.section) else check(value),
            handler(source),
            serialization=core_schema.wrap_serializer_function_ser_schema(self._dumped, info_arg=True),
        )

    def __get_pydantic_json_schema__(
        self, table: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # The handler adds definitions that keys refer to, such as kinds of partitions, to the whole schema.
        # A plain value may stand for the table.
        section = self.section.__get_pydantic_json_schema__(self.section.__pydantic_core_schema__, handler)
        options = [handler.resolve_ref_schema(each) for each in (section, *section.get("anyOf", ()))]
        own = {"x-own": dict(next(each for each in options if "properties" in each))}
        known = handler(table)
        choices = [option for option in (known, *known.get("anyOf", ())) if "discriminator" in option]
        for choice in choices:
            choice |= own
        return known if choices else own

    def _dumped(self, value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        if not isinstance(value, self.section):
            return handler(value)
        return value.model_dump(mode=info.mode, by_alias=info.by_alias)


def annotated(settings: type[Settings], by: type[A]) -> dict[str, tuple[A, Any]]:
    """Return the annotations of this class in a section, with their types, by path of the key.

    A path consists of keys with dots, "*" for each item of a list: "churn_process.*".
    """
    found: dict[str, tuple[A, Any]] = {}
    for name, field in settings.model_fields.items():
        path = field.alias or name
        for each in field.metadata:
            if isinstance(each, by):
                found[path] = each, field.annotation
        found |= {key: of for key, of in _annotations_in_type(field.annotation, path, by) if key not in found}
    return found


def _annotations_in_type(annotation: Any, path: str, by: type[A]) -> Iterator[tuple[str, tuple[A, Any]]]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield from [(f"{path}.{key}", each) for key, each in annotated(annotation, by).items()]
        return
    if getattr(annotation, "__origin__", None) is tuple:
        path = f"{path}.*"
    for argument in get_args(annotation):
        if isinstance(argument, by):
            yield path, (argument, annotation)
        else:
            yield from _annotations_in_type(argument, path, by)
