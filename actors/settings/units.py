"""Quantities with units: conversion of text such as ``"20 ms"`` to plain SI numbers, and back.

A bare number except 0 is rejected, because ``latency = 20`` does not state whether it means seconds or
milliseconds. Parsing is exact: the decimal number and the unit are multiplied as fractions and rounded once,
so ``"35 ms"`` is the float ``0.035``. Formatting chooses the unit with the shortest number that parses to the
same value.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from actors.nearest import nearest

# [0-9], because \d matches digits of any script. At most two digits of an exponent, for the range of floats.
_NUMBER = r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
_QUANTITY = re.compile(rf"\s*(?P<number>{_NUMBER})\s*(?P<unit>\S*)\s*")

_LENGTH_MAX = 100  # of a quantity's text: parsing thousands of digits is slow, and Python refuses it


def quoted(value: Any) -> str:
    """Return a value as text for a message, as a scenario file writes it, cut to 100 characters.

    For a table, a list, a date or a time, return only its kind, such as "a table".
    """
    if isinstance(value, bool):
        return str(value).lower()
    text = _STRUCTURES.get(type(value).__name__) or repr(value)
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}..."


_STRUCTURES = {"dict": "a table", "list": "a list", "tuple": "a list"}
_STRUCTURES |= dict.fromkeys(("date", "time", "datetime"), "a date or time")


@dataclass(frozen=True)
class Quantity:
    """One kind of quantity: its units in terms of the base unit, an example, and whether it must be whole."""

    name: str
    units: Mapping[str, Fraction]
    example: str
    whole: bool = False

    @property
    def allowed(self) -> str:
        """Allowed values in words, for error messages and the scenario reference."""
        return f'a number and one of {", ".join(self.units)}, such as "{self.example}"'

    def parse(self, value: str | float) -> float:
        """Return the value in the base unit. ValueError names the invalid value and the allowed ones."""
        text = str(value)
        is_one = isinstance(value, str | int | float) and not isinstance(value, bool)
        match = _QUANTITY.fullmatch(text) if is_one and len(text) <= _LENGTH_MAX else None
        if match is None:
            raise ValueError(f"{quoted(value)} is not a {self.name}; write {self.allowed}")
        number, unit = Fraction(match["number"]), match["unit"]
        if number == 0 and unit == "":
            return 0.0
        if unit not in self.units:
            raise ValueError(f"{quoted(value)} has {self._unknown(unit)}; write {self.allowed}")
        exact = number * self.units[unit]
        if self.whole and exact.denominator != 1:
            raise ValueError(
                f"{quoted(value)} is not a whole number of {next(iter(self.units))}; write {self.allowed}"
            )
        return float(exact)

    def _unknown(self, unit: str) -> str:
        if not unit:
            return "no unit"
        # Compared without case, since Mbit/s and mbit/s are the usual mix-up.
        by_lower = {known.lower(): known for known in self.units}
        spelled_out = unit.lower().replace("bps", "bit/s")
        near = nearest(spelled_out, by_lower, 0.5)
        hint = "" if near is None else f" (did you mean {by_lower[near]!r}?)"
        return f"the unknown unit {unit!r}{hint}"

    def format(self, value: float) -> str:
        """Return a text that `parse` turns into `value`, with the shortest number.

        Of equally short numbers, one that does not start with "0." is preferred, then the one with the
        largest unit. Raises ValueError for infinity and NaN.
        """
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is not a finite {self.name}")
        if value == 0:
            return f"0 {self.example.split()[1]}"
        candidates = []
        for unit, factor in sorted(self.units.items(), key=lambda item: -item[1]):
            number = _shortest(float(Fraction(value) / factor))
            exact = Fraction(number) * factor
            if float(exact) == value and not (self.whole and exact.denominator != 1):
                candidates.append((len(number), number.startswith("0."), f"{number} {unit}"))
        return min(candidates, key=lambda candidate: candidate[:2])[2]


def _shortest(value: float) -> str:
    """Return `repr` without the ``.0`` of whole numbers."""
    return repr(value).removesuffix(".0")


def _units_with_prefixes(suffix: str, per_base: int = 1) -> dict[str, Fraction]:
    return {
        f"{prefix}{suffix}": Fraction(per_base * 1000**power)
        for power, prefix in enumerate(("", "k", "M", "G"))
    }


DURATION = Quantity(
    "duration",
    {
        "us": Fraction(1, 10**6),
        "ms": Fraction(1, 1000),
        "s": Fraction(1),
        "min": Fraction(60),
        "h": Fraction(3600),
        "day": Fraction(86400),
    },
    "20 s",
)
BANDWIDTH = Quantity("bandwidth", _units_with_prefixes("bit/s") | _units_with_prefixes("B/s", 8), "10 Mbit/s")
SIZE = Quantity(
    "size",
    _units_with_prefixes("B")
    | {f"{prefix}iB": Fraction(1024**power) for power, prefix in enumerate("KMG", start=1)},
    "4 MB",
    whole=True,
)
POWER = Quantity("power", {"mW": Fraction(1, 1000), **_units_with_prefixes("W")}, "5 W")
ENERGY = Quantity(
    "quantity of energy",
    {"mJ": Fraction(1, 1000), **_units_with_prefixes("J"), "Wh": Fraction(3600), "kWh": Fraction(3_600_000)},
    "500 J",
)
ENERGY_PER_BYTE = Quantity(
    "quantity of energy per byte",
    {
        "nJ/B": Fraction(1, 10**9),
        "uJ/B": Fraction(1, 10**6),
        "mJ/B": Fraction(1, 1000),
        "J/B": Fraction(1),
        "kWh/GB": Fraction(3_600_000, 10**9),
    },
    "20 nJ/B",
)
COMPUTE = Quantity(
    "compute speed",
    _units_with_prefixes("FLOP/s") | {"TFLOP/s": Fraction(10**12)},
    "10 GFLOP/s",
)
