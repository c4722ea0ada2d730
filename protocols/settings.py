"""Types for what users write in scenario files: quantities with units, and the base class of all settings.

A quantity is written with its unit (``"20 ms"``) and is a plain number in SI units afterwards: seconds, bits
per second, bytes, floating-point operations per second. Dumped as JSON it is text with its unit again.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema, model_validator

from actors.units import BANDWIDTH, COMPUTE, DURATION, SIZE, Quantity, parse_size


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


def _positive_duration(value: str | float) -> float:
    seconds = DURATION.parse(value)
    if seconds == 0:
        raise ValueError(f"{value!r} must be more than 0; write {DURATION.allowed}")
    return seconds


def _bandwidth_or_unlimited(value: str | float) -> float | None:
    if value == "unlimited":
        return None
    try:
        return BANDWIDTH.parse(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "unlimited"') from None


def _format_bandwidth_or_unlimited(bits_per_s: float | None) -> str:
    return "unlimited" if bits_per_s is None else BANDWIDTH.format(bits_per_s)


def _text(formatter: Callable[[Any], str]) -> PlainSerializer:
    return PlainSerializer(formatter, return_type=str, when_used="json")


Duration = Annotated[
    float, BeforeValidator(DURATION.parse), _text(DURATION.format), _schema(DURATION, zero=True)
]
"""Seconds, 0 or more, written as ``"20 ms"``."""

PositiveDuration = Annotated[
    float, BeforeValidator(_positive_duration), _text(DURATION.format), _schema(DURATION)
]
"""Seconds, more than 0."""

Bandwidth = Annotated[float, BeforeValidator(BANDWIDTH.parse), _text(BANDWIDTH.format), _schema(BANDWIDTH)]
"""Bits per second, more than 0, written as ``"10 Mbit/s"``."""

BandwidthOrUnlimited = Annotated[
    float | None,
    BeforeValidator(_bandwidth_or_unlimited),
    _text(_format_bandwidth_or_unlimited),
    _schema(BANDWIDTH, unlimited=True),
]
"""Bits per second, or None for ``"unlimited"``."""

Size = Annotated[int, BeforeValidator(parse_size), _text(SIZE.format), _schema(SIZE)]
"""Bytes, written as ``"4 MB"``."""

Compute = Annotated[float, BeforeValidator(COMPUTE.parse), _text(COMPUTE.format), _schema(COMPUTE)]
"""Floating-point operations per second, more than 0, written as ``"10 GFLOP/s"``."""


def default(text: str) -> Any:
    """A quantity's default as it would stand in a file; typed Any, since it becomes a number."""
    return text


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class SettingError(ValueError):
    """A value that does not fit the others; raise it from a validator to name the key that is at fault.

    `key` is relative to the settings class that raises (``"betas"``, ``"partition.clusters"``).
    """

    def __init__(self, key: str, value: Any, problem: str) -> None:
        super().__init__(problem)
        self.key, self.value, self.problem = key, value, problem


class Settings(BaseModel):
    """Base of every settings class: frozen, unknown keys refused, no silent conversions (``"3"`` is not 3).

    A quantity's default is written as in a scenario file, ``patience: Duration = "2 s"``; where mypy checks,
    ``default("2 s")``. Lists of a file arrive as tuples: declare ``tuple[int, ...]``, never ``list[int]``.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,  # a string under a field documents it in the schema and the reference
    )

    @model_validator(mode="before")
    @classmethod
    def _lists_become_tuples(cls, data: Any) -> Any:
        # Settings are immutable all the way down, and strict validation takes only tuples for tuples.
        return {key: _tuples(value) for key, value in data.items()} if isinstance(data, dict) else data
