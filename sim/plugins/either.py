"""Keys of which a scenario's reader may have made a section already, of the user's own code."""

from dataclasses import dataclass
from typing import Any

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
)
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, eq=False)
class OrMade:
    """Annotation of a table in several kinds: a section of this class, made already, is taken as it is.

    In the JSON Schema "x-own" is what all sections of this class have.
    """

    kind: type

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            lambda value, check: value if isinstance(value, self.kind) else check(value),
            handler(source),
            serialization=core_schema.wrap_serializer_function_ser_schema(self._dumped, info_arg=True),
        )

    def __get_pydantic_json_schema__(
        self, table: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # By the handler: what its keys refer to, kinds of partitions, say, are among the whole's definitions.
        # Beside the table may be a plain value that stands for one.
        section = handler(self.kind.__pydantic_core_schema__)  # type: ignore[attr-defined]
        options = [handler.resolve_ref_schema(each) for each in (section, *section.get("anyOf", ()))]
        own = {"x-own": dict(next(each for each in options if "properties" in each))}
        known = handler(table)
        choices = [option for option in (known, *known.get("anyOf", ())) if "discriminator" in option]
        for choice in choices:
            choice |= own
        return known if choices else own

    def _dumped(self, value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        if not isinstance(value, self.kind):
            return handler(value)
        return value.model_dump(mode=info.mode, by_alias=info.by_alias)  # type: ignore[attr-defined]
