"""Tables with several kinds, or with a short form as a plain value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from actors.settings.base import Settings


@dataclass(frozen=True, eq=False)  # annotations must be hashable, and a schema is not
class Shorthand:
    """Annotation of a table that may also be written as a plain value; `expand` returns the table for it."""

    expand: Callable[[Any], Any]
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, table: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(table)]}


def kind_alone(table: Any) -> Shorthand:
    """Allow ``topology = "ring"`` for ``{ kind = "ring" }``, for kinds of `table` that need no other key."""
    kinds = [kind for kind, settings in tagged(table).items() if _is_complete(settings, kind)]
    return Shorthand(lambda value: {"kind": value} if isinstance(value, str) else value, {"enum": kinds})


def _is_complete(settings: type[Settings], kind: str) -> bool:
    try:
        settings.model_validate({"kind": kind})
    except ValueError:
        return False
    return True


def allow_plain_quantity(quantity: Any) -> Shorthand:
    """Allow a plain quantity in place of a distribution that always has this value."""

    def expand(value: Any) -> Any:
        return value if isinstance(value, dict | Settings) else {"kind": "constant", "value": value}

    return Shorthand(expand, TypeAdapter(quantity).json_schema())


def tagged(union: Any) -> dict[str, Any]:
    """Return the classes of a table with several kinds, by the kind (or name) in the file."""
    if isinstance(union, type) and issubclass(union, Settings):
        fields = union.model_fields
        return dict.fromkeys(get_args(fields["kind" if "kind" in fields else "name"].annotation), union)
    return {tag: kind for part in get_args(union) for tag, kind in tagged(part).items()}
