"""What sections share: client lists, shares, and tables that may be written as a plain value."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, NonNegativeInt, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from protocols.framework.settings import SettingError, Settings, Within

ClientList = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
ShareAboveZero = Annotated[float, Field(gt=0, le=1)]
Probability = ShareAboveZero
FACTOR_MIN, FACTOR_MAX = 1e-6, 1_000_000
Factor = Annotated[float, Field(gt=0), Within(FACTOR_MIN, FACTOR_MAX)]
# With more, exp of it would leave the range of numbers within the 8.3 sigma that a stream can draw.
SigmaOfLog = Annotated[float, Field(ge=0, le=20)]


def exactly_one(section: Settings, *keys: str) -> None:
    """Raise unless exactly one of these optional keys is stated."""
    stated = [key for key in keys if getattr(section, key) is not None]
    if len(stated) != 1:
        names = " or ".join(repr(key) for key in keys)
        raise SettingError(stated[1] if stated else keys[0], None, f"state exactly one of {names}")


def at_most_one(section: Settings, *keys: str) -> None:
    """Raise if more than one of these optional keys is stated."""
    stated = [key for key in keys if getattr(section, key) is not None]
    if len(stated) > 1:
        names = " or ".join(repr(key) for key in keys)
        raise SettingError(stated[1], None, f"state either {names}, not both")


@dataclass(frozen=True, eq=False)  # annotations must be hashable, and a schema is not
class Shorthand:
    """Annotation of a table that may also be written as a plain value; `expand` makes the table of it."""

    expand: Callable[[Any], Any]
    schema: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, table: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(table)]}


def kind_alone(*kinds: str) -> Shorthand:
    """``topology = "ring"`` stands for ``{ kind = "ring" }``; for kinds without required settings."""
    return Shorthand(
        lambda value: {"kind": value} if isinstance(value, str) else value, {"enum": list(kinds)}
    )


def constant(quantity: Any) -> Shorthand:
    """A quantity where a distribution may stand is the constant distribution."""

    def expand(value: Any) -> Any:
        return value if isinstance(value, dict | Settings) else {"kind": "constant", "value": value}

    return Shorthand(expand, TypeAdapter(quantity).json_schema())


def cluster_misfits(
    key: str, count: int | None, sizes: Sequence[int] | None, clients: int
) -> Iterator[SettingError]:
    """Clusters, given by `count` (named `key`) or by `sizes` beside it, must hold the clients."""
    if count is not None and count > clients:
        problem = f"more clusters than clients; must be at most clients.count = {clients}"
        yield SettingError(key, count, problem)
    if sizes is not None and sum(sizes) != clients:
        problem = f"the sizes must add up to clients.count = {clients}, not {sum(sizes)}"
        yield SettingError(".".join((*key.split(".")[:-1], "sizes")), sizes, problem)


def tagged(union: Any) -> dict[str, Any]:
    """The classes of a table that comes in several kinds, by the kind (or name) that a file states."""
    if isinstance(union, type) and issubclass(union, Settings):
        fields = union.model_fields
        return dict.fromkeys(get_args(fields["kind" if "kind" in fields else "name"].annotation), union)
    return {tag: kind for part in get_args(union) for tag, kind in tagged(part).items()}
