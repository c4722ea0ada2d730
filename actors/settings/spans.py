"""Stretches of a run: an amount of virtual time, or a number of something counted, such as iterations."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from actors.settings.quantities import limited_duration
from actors.settings.units import DURATION


@dataclass(frozen=True)
class Span:
    """Either `seconds` of virtual time or `count` of `unit`; the other one is None."""

    unit: str
    seconds: float | None = None
    count: int | None = None

    @property
    def length(self) -> float:
        """Its seconds, or its count."""
        length = self.count if self.seconds is None else self.seconds
        assert length is not None
        return length

    def __str__(self) -> str:
        return f"{self.count} {self.unit}s" if self.seconds is None else DURATION.format(self.seconds)


def parse_span(value: Any, unit: str) -> Span:
    """Parses ``"15 s"`` or, for the unit "iteration", ``"100 iterations"``. ValueError else, and for 0."""
    if isinstance(value, Span):
        return value
    example = f'{unit}s, such as "100 {unit}s"'
    if isinstance(value, str) and (match := re.fullmatch(rf"\s*(\d+)\s*{unit}s?\s*", value)):
        if len(match[1]) > 9:  # thousands of digits would be more than int() takes
            raise ValueError(f"must be at most 999,999,999 {unit}s")
        count = int(match[1])
        if count == 0:
            raise ValueError(f"must be at least 1; write a duration, or {example}")
        return Span(unit, count=count)
    try:
        seconds = limited_duration(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {example}") from None
    if seconds == 0:
        raise ValueError(f"must be more than 0; write {DURATION.allowed}, or {example}")
    return Span(unit, seconds=seconds)


def span(unit: str) -> Any:
    """The type of a key that holds a `Span`."""
    return Annotated[
        Span,
        PlainValidator(lambda value: parse_span(value, unit)),
        PlainSerializer(str, return_type=str, when_used="json"),
        WithJsonSchema(
            {
                "type": "string",
                "x-allowed": f'{DURATION.allowed}, or {unit}s, such as "100 {unit}s"',
                "pattern": rf"^([0-9.eE+]+ *({'|'.join(DURATION.units)})|[0-9]+ *{unit}s?)$",
                "examples": ["15 s", f"100 {unit}s"],
            }
        ),
    ]
