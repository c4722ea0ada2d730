"""Types of fields for what users write in scenario files: quantities with units, counts, shares, lists.

A quantity is written with its unit (``"20 ms"``) and is a plain number in SI units afterwards: seconds, bits
per second, bytes, floating-point operations per second. Dumped as JSON it is text with its unit again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    WithJsonSchema,
)

from actors.settings.units import BANDWIDTH, COMPUTE, DURATION, SIZE, Quantity


def _schema(quantity: Quantity, *, zero: bool = False, unlimited: bool = False) -> WithJsonSchema:
    """JSON Schema of a quantity as written in a file; ``x-allowed`` says it in an error message's words."""
    allowed, other = quantity.allowed, ""
    if unlimited:
        allowed, other = f'{allowed}, or "unlimited"', "|unlimited"
    pattern = rf"^([0-9.eE+]+ *({'|'.join(quantity.units)}){other})$"
    text = {"type": "string", "pattern": pattern, "examples": [quantity.example]}
    return WithJsonSchema(
        {"x-allowed": allowed, **({"anyOf": [text, {"const": 0}]} if zero else text)},
    )


@dataclass(frozen=True)
class Within:
    """Annotation of a number: the smallest and the largest that make sense, and why no larger one does."""

    least: float
    most: float
    reason: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return AfterValidator(self._checked).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, number: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(number)
        least = {} if "exclusiveMinimum" in schema else {"minimum": self.least}
        return schema | least | {"maximum": self.most}

    def _checked(self, value: float) -> float:
        if value < self.least:
            raise ValueError(f"must be at least {self.least:,}")
        if value > self.most:
            raise ValueError(f"must be at most {self.most:,}{self.reason and f': {self.reason}'}")
        return value


Count = Annotated[PositiveInt, Within(1, 1_000_000)]
"""A number of things, one at least."""

CountOrZero = Annotated[NonNegativeInt, Within(0, 1_000_000)]
"""A number of things, or none."""

Weight = Annotated[NonNegativeFloat, Within(0, 1_000_000)]
"""A factor, 0 or more."""

PositiveWeight = Annotated[PositiveFloat, Within(1e-30, 1_000_000)]
"""A factor, more than 0 also when it is rounded to float32."""

ClientList = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
"""Numbers of clients, one at least."""

Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
ShareAboveZero = Annotated[float, Field(gt=0, le=1)]
Probability = ShareAboveZero

FACTOR_MIN, FACTOR_MAX = 1e-6, 1_000_000
Factor = Annotated[float, Field(gt=0), Within(FACTOR_MIN, FACTOR_MAX)]

# With more, exp of it would leave the range of numbers within the 8.3 sigma that a stream can draw.
SigmaOfLog = Annotated[float, Field(ge=0, le=20)]

Weighing = Literal["samples", "equal"]
"""How much a client counts in an average: as it has samples, or as much as any other."""


def _parser(quantity: Quantity, least: str, most: str) -> Callable[[str | float], float]:
    """Parses a quantity and refuses what nobody can mean: beyond it, clocks stand still and sums overflow."""
    smallest, largest = quantity.parse(least), quantity.parse(most)

    def parse(value: str | float) -> float:
        number = quantity.parse(value)
        if number and not smallest <= number <= largest:
            raise ValueError(f"{value!r} must be from {least} to {most}")
        return number

    return parse


# A clock that has gone for a century still tells half a microsecond.
limited_duration = _parser(DURATION, "0.001 us", "36500 day")
_parse_bandwidth = _parser(BANDWIDTH, "1 bit/s", "1e6 Gbit/s")
_parse_compute = _parser(COMPUTE, "1 FLOP/s", "1e9 TFLOP/s")
_parse_size = _parser(SIZE, "1 B", "1e6 GB")


def _parse_whole_size(value: str | float) -> int:
    return int(_parse_size(value))


def _positive_duration(value: str | float) -> float:
    seconds = limited_duration(value)
    if seconds == 0:
        raise ValueError(f"{value!r} must be more than 0; write {DURATION.allowed}")
    return seconds


def _bandwidth_or_unlimited(value: str | float) -> float | None:
    if value == "unlimited":
        return None
    try:
        return _parse_bandwidth(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "unlimited"') from None


def _format_bandwidth_or_unlimited(bits_per_s: float | None) -> str:
    return "unlimited" if bits_per_s is None else BANDWIDTH.format(bits_per_s)


def _text(formatter: Callable[[Any], str]) -> PlainSerializer:
    return PlainSerializer(formatter, return_type=str, when_used="json")


Duration = Annotated[
    float, BeforeValidator(limited_duration), _text(DURATION.format), _schema(DURATION, zero=True)
]
"""Seconds, 0 or more, written as ``"20 ms"``."""

PositiveDuration = Annotated[
    float, BeforeValidator(_positive_duration), _text(DURATION.format), _schema(DURATION)
]
"""Seconds, more than 0."""

Bandwidth = Annotated[float, BeforeValidator(_parse_bandwidth), _text(BANDWIDTH.format), _schema(BANDWIDTH)]
"""Bits per second, more than 0, written as ``"10 Mbit/s"``."""

BandwidthOrUnlimited = Annotated[
    float | None,
    BeforeValidator(_bandwidth_or_unlimited),
    _text(_format_bandwidth_or_unlimited),
    _schema(BANDWIDTH, unlimited=True),
]
"""Bits per second, or None for ``"unlimited"``."""

Size = Annotated[int, BeforeValidator(_parse_whole_size), _text(SIZE.format), _schema(SIZE)]
"""Bytes, written as ``"4 MB"``."""

Compute = Annotated[float, BeforeValidator(_parse_compute), _text(COMPUTE.format), _schema(COMPUTE)]
"""Floating-point operations per second, more than 0, written as ``"10 GFLOP/s"``."""
