"""Keys of which a scenario's reader may have made a section already, of the user's own code."""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, eq=False)
class OrMade:
    """Annotation of a table in several kinds: a section of this class, made already, is taken as it is."""

    kind: type

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            lambda value, check: value if isinstance(value, self.kind) else check(value), handler(source)
        )
