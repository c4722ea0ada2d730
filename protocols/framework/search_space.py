"""Search spaces: the settings of a method that `coterie tune` varies, and their ranges."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_DIGITS = 3


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, rounded towards 0 to three significant digits.

    log: equal ratios are equally likely; the ends must be above 0. over: another key of the same space, by
    whose value the number is divided, for a setting whose limit depends on that value.
    """

    low: float
    high: float
    log: bool = False
    over: str | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(
                f"Range({self.low}, {self.high}, log={self.log}): need low < high, and low > 0 if log is True"
            )

    def at(self, share: float, chosen: Mapping[str, Any]) -> float:
        """Return the number at this share of the range, 0 to 1. chosen: values of earlier keys."""
        if self.log:
            number = math.exp(math.log(self.low) * (1 - share) + math.log(self.high) * share)
        else:
            number = self.low * (1 - share) + self.high * share
        if self.over is not None:
            number /= float(chosen[self.over])
        return _rounded_down(min(number, self.high) if self.over is None else number)

    def __str__(self) -> str:
        scale = ", log scale" if self.log else ""
        divided = f", divided by {self.over}" if self.over is not None else ""
        return f"{self.low:g} to {self.high:g}{scale}{divided}"


@dataclass(frozen=True)
class OneOf:
    """One of several values, equally likely."""

    options: tuple[Any, ...]

    def at(self, share: float, chosen: Mapping[str, Any]) -> Any:
        """Return the option at this share of the list, 0 to 1. chosen: values of earlier keys; not used."""
        return self.options[min(int(share * len(self.options)), len(self.options) - 1)]

    def __str__(self) -> str:
        return " | ".join(str(option) for option in self.options)


@dataclass(frozen=True)
class SearchSpace:
    """Searched settings of a method.

    source: origin of the ranges: paper and place, or why none is stated. keys: the range of each setting, by
    its key in the method (``"strength"``) or in the scenario (``"training.momentum"``).
    """

    source: str
    keys: Mapping[str, Range | OneOf] = field(default_factory=dict)

    def at(self, point: Sequence[float]) -> dict[str, Any]:
        """Return the settings at a point of the unit cube, one share for each key."""
        chosen: dict[str, Any] = {}
        for share, (key, values) in zip(point, self.keys.items(), strict=True):
            chosen[key] = values.at(share, chosen)
        return chosen


LOCAL_STEPS = OneOf((1, 2, 5, 10, 20))
"""Training steps between exchanges, for methods that let users choose this number."""


def _rounded_down(number: float) -> float:
    """Round to three digits, towards 0, so that no limit is exceeded."""
    if number == 0:
        return 0.0
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(abs(number))))
    rounded = math.floor(abs(number) * scale * (1 + 1e-12)) / scale
    return math.copysign(float(f"{rounded:.{_DIGITS}g}"), number)
