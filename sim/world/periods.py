"""Periods of what repeats itself, exact at their boundaries, where quotients of floats are not."""

import math

_NEAR = 1e-9  # of a period


def place_in_period(elapsed_s: float, period_s: float) -> tuple[int, float]:
    """Return the number of whole periods in a time, and the passed share of the current one, in [0, 1).

    A time within a billionth of a period before a boundary counts as the boundary: 0.3 / 0.1 is less than 3
    in floating point, but 0.3 s starts the fourth period of 0.1 s.
    """
    periods = elapsed_s / period_s
    number = math.floor(periods + _NEAR)
    return number, max(0.0, periods - number)


def is_within(share: float, limit: float) -> bool:
    """Return True if this share of a period has not reached a limit, which is exclusive; always for 1."""
    return limit == 1 or share < limit - _NEAR
