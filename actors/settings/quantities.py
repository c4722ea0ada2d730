"""Types of fields for values in scenario files: quantities with units, counts, shares, spans.

A quantity is written with its unit (``"20 ms"``). After validation it is a plain number in SI units: seconds,
bits per second, bytes, floating-point operations per second. As JSON it is written as text with its unit.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PlainValidator,
    PositiveFloat,
    PositiveInt,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from actors.settings.units import (
    BANDWIDTH,
    COMPUTE,
    DURATION,
    ENERGY,
    ENERGY_PER_BYTE,
    POWER,
    SIZE,
    Quantity,
    quoted,
)


@dataclass(frozen=True)
class Within:
    """Annotation of a number with its minimum and maximum, and the reason for the maximum."""

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
"""Number of things, at least one."""

CountOrZero = Annotated[NonNegativeInt, Within(0, 1_000_000)]
"""Number of things, at least zero."""

Weight = Annotated[NonNegativeFloat, Within(0, 1_000_000)]
"""Factor, 0 or more."""

PositiveWeight = Annotated[PositiveFloat, Within(1e-30, 1_000_000)]
"""Factor, more than 0 even when it is rounded to float32."""


def _refuse_repeated_clients(clients: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(clients)) < len(clients):
        twice = next(each for each in clients if clients.count(each) > 1)
        raise ValueError(f"contains client {twice} twice; list each client only once")
    return clients


ClientList = Annotated[
    tuple[NonNegativeInt, ...], Field(min_length=1), AfterValidator(_refuse_repeated_clients)
]
"""Client numbers, at least one, without duplicates."""

Share = Annotated[float, Field(ge=0, le=1)]
"""Number from 0 to 1."""
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
ShareAboveZero = Annotated[float, Field(gt=0, le=1)]
Probability = ShareAboveZero

FACTOR_MIN, FACTOR_MAX = 1e-6, 1_000_000
Factor = Annotated[float, Field(gt=0), Within(FACTOR_MIN, FACTOR_MAX)]

# With a larger sigma, exp would overflow within the 8.3 sigma that a stream can draw.
SigmaOfLog = Annotated[float, Field(ge=0, le=20)]

Weighing = Literal["samples", "equal"]
"""Weight of a client in an average: by its number of samples, or the same for all clients."""


@dataclass(frozen=True, eq=False)  # annotations must be hashable, and a table of units is not
class WrittenQuantity:
    """Annotation of a number that is written as a quantity, from `least` to `most`.

    Values beyond these bounds are surely unintended: clocks would stop and sums would overflow.
    """

    quantity: Quantity
    least: str
    most: str
    zero: bool = False
    """True if 0 is also allowed."""
    unlimited: bool = False
    """True if "unlimited" is allowed; it becomes None."""

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        return self.quantity.parse(self.least), self.quantity.parse(self.most)

    def parse(self, value: Any) -> Any:
        """Return the number. ValueError names the invalid value and the allowed ones."""
        if self.unlimited and value == "unlimited":
            return None
        or_unlimited = ', or "unlimited"' if self.unlimited else ""
        try:
            number = self.quantity.parse(value)
        except ValueError as error:
            raise ValueError(f"{error}{or_unlimited}") from None
        smallest, largest = self._bounds
        if number == 0 and not self.zero:
            raise ValueError(f"{quoted(value)} must be more than 0; write {self.quantity.allowed}")
        if number and not smallest <= number <= largest:
            raise ValueError(f"{quoted(value)} must be from {self.least} to {self.most}{or_unlimited}")
        return int(number) if self.quantity.whole else number

    def format(self, value: Any) -> str:
        """Return the number as text with its unit."""
        return "unlimited" if value is None else self.quantity.format(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.parse,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.format, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, number: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of the text in a file; ``x-allowed`` describes it as error messages do."""
        allowed, other = self.quantity.allowed, ""
        if self.unlimited:
            allowed, other = f'{allowed}, or "unlimited"', "|unlimited"
        pattern = rf"^([0-9.eE+]+ *({'|'.join(self.quantity.units)}){other})$"
        text = {"type": "string", "pattern": pattern, "examples": [self.quantity.example]}
        is_number = self.zero and self.quantity is DURATION
        return {"x-allowed": allowed, **({"anyOf": [text, {"const": 0}]} if is_number else text)}


# After a century, the clock still resolves half a microsecond.
_DURATION = WrittenQuantity(DURATION, "0.001 us", "36500 day", zero=True)

Duration = Annotated[float, _DURATION]
"""Seconds, 0 or more, written as ``"20 ms"``."""

PositiveDuration = Annotated[float, replace(_DURATION, zero=False)]
"""Seconds, more than 0."""

_BANDWIDTH = WrittenQuantity(BANDWIDTH, "1 bit/s", "1e6 Gbit/s")

Bandwidth = Annotated[float, _BANDWIDTH]
"""Bits per second, more than 0, written as ``"10 Mbit/s"``."""

BandwidthOrUnlimited = Annotated[float | None, replace(_BANDWIDTH, unlimited=True)]
"""Bits per second, or None for ``"unlimited"``."""

Size = Annotated[int, WrittenQuantity(SIZE, "1 B", "1e6 GB", zero=True)]
"""Bytes, written as ``"4 MB"``."""

Compute = Annotated[float, WrittenQuantity(COMPUTE, "1 FLOP/s", "1e9 TFLOP/s")]
"""Floating-point operations per second, more than 0, written as ``"10 GFLOP/s"``."""

_POWER = WrittenQuantity(POWER, "0.001 mW", "1 GW", zero=True)

Power = Annotated[float, _POWER]
"""Watts, 0 or more, written as ``"5 W"``."""

PositivePower = Annotated[float, replace(_POWER, zero=False)]
"""Watts, more than 0."""

Energy = Annotated[float, WrittenQuantity(ENERGY, "0.001 mJ", "1e6 kWh")]
"""Joules, more than 0, written as ``"500 J"``."""

EnergyPerByte = Annotated[float, WrittenQuantity(ENERGY_PER_BYTE, "1e-6 nJ/B", "1000 J/B", zero=True)]
"""Joules per byte, 0 or more, written as ``"20 nJ/B"``."""


@dataclass(frozen=True)
class Span:
    """Either `seconds` of virtual time, with the unit "second", or a `count` of `unit`; the other is None."""

    unit: str
    seconds: float | None = None
    count: int | None = None

    @property
    def length(self) -> float:
        """Number of seconds, or the count."""
        length = self.count if self.seconds is None else self.seconds
        assert length is not None
        return length

    def __str__(self) -> str:
        return f"{self.count} {self.unit}s" if self.seconds is None else DURATION.format(self.seconds)


def parse_span(value: Any, *units: str) -> Span:
    """Parse ``"15 s"`` or, for the unit "iteration", ``"100 iterations"``.

    Raises ValueError for other values and for 0.
    """
    if isinstance(value, Span):
        return value
    example = _count_format_text(units)
    counts = rf"\s*([0-9]+)\s*({'|'.join(units)})s?\s*"
    if isinstance(value, str) and (match := re.fullmatch(counts, value)):
        if len(match[1]) > 9:  # int() rejects thousands of digits
            raise ValueError(f"must be at most 999,999,999 {match[2]}s")
        count = int(match[1])
        if count == 0:
            raise ValueError(f"must be at least 1; write a duration, or {example}")
        return Span(match[2], count=count)
    try:
        seconds = _DURATION.parse(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {example}") from None
    if seconds == 0:
        raise ValueError(f"must be more than 0; write {DURATION.allowed}, or {example}")
    return Span("second", seconds=seconds)


def _count_format_text(units: tuple[str, ...]) -> str:
    return f'{" or ".join([f"{unit}s" for unit in units])}, such as "100 {units[0]}s"'


def span(*units: str) -> Any:
    """Return the type of a key that holds a `Span`: a duration, or a count of one of these units."""
    return Annotated[
        Span,
        PlainValidator(lambda value: parse_span(value, *units)),
        PlainSerializer(str, return_type=str, when_used="json"),
        WithJsonSchema(
            {
                "type": "string",
                "x-allowed": f"{DURATION.allowed}, or {_count_format_text(units)}",
                "pattern": rf"^([0-9.eE+]+ *({'|'.join(DURATION.units)})|[0-9]+ *({'|'.join(units)})s?)$",
                "examples": ["15 s", f"100 {units[0]}s"],
            }
        ),
    ]
