"""NumPy arrays of what users call an array: nothing that is missing, or rounded away, passes for a number."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from sim.errors import UserError

Refuse = Callable[[str], UserError]

_AS_TEXT = ("", "nan", "None", "NaT", "<NA>")  # what missing values become as texts
_ROUNDING = 0.01  # at most, of a number's deviation
LARGEST = float(np.finfo(np.float32).max)
NOISE = 1e-13
"""How far numbers lie apart, as a share of their size, that are equal but for rounding in float64."""


def as_array(values: Any, name: str, refuse: Refuse) -> np.ndarray:
    """The values as an array. Refuses what is none, and what has missing values, which numpy may drop.

    Objects that are all texts, or all numbers, become these; others stay objects.
    """
    try:
        values = values.detach().cpu() if hasattr(values, "detach") else values
        if isinstance(values, list | tuple):
            if any(isinstance(each, np.ma.MaskedArray) for each in values):
                values = np.ma.stack(values)  # which asarray would do without the masks
            elif any(isinstance(each, str) for each in values):
                values = np.array(values, dtype=object)  # or all would become texts
        found = np.asarray(values)
    except Exception as error:  # rows of different lengths; whatever their own __array__ does
        raise refuse(f"{name} is no array: {type(error).__name__}: {error}") from None
    if isinstance(values, np.ma.MaskedArray):
        _refuse_missing(np.ma.getmaskarray(values), "masked", name, refuse)
    if found.dtype.kind == "O":
        gaps = np.array([_is_missing(each) for each in found.flat], dtype=bool).reshape(found.shape)
        _refuse_missing(gaps, found, name, refuse)
        for kind in (str, Real | np.bool_):
            if found.size and all(isinstance(each, kind) for each in found.flat):
                found = np.array(found.tolist())
    elif found.dtype.kind in "fmM":
        _refuse_missing(np.isnat(found) if found.dtype.kind != "f" else np.isnan(found), found, name, refuse)
    elif found.dtype == np.int64:  # what NaN and NaT become as whole numbers
        _refuse_missing(found == np.iinfo(np.int64).min, found, name, refuse)
    if found.dtype.kind == "U":
        _refuse_missing(np.isin(found, _AS_TEXT), found, name, refuse)
    return found


def require_finite(values: np.ndarray, name: str, refuse: Refuse) -> None:
    """Refuse numbers that float32 does not hold: neither data nor models have such."""
    if values.dtype.kind in "biu":  # none of which is as large
        return
    finite = np.abs(values) <= np.float64(LARGEST)  # which a smaller type need not hold
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0].tolist())
        value = values[place].item()
        raise refuse(f"{name}{list(place)} is {value!r}; must be a finite number, of float32")


def as_float32(values: np.ndarray, name: str, refuse: Refuse) -> np.ndarray:
    """A copy as float32. Refuses numbers that it does not hold."""
    require_finite(values, name, refuse)
    return np.array(values, dtype=np.float32, order="C")


def require_told_apart(values: np.ndarray, name: str, refuse: Refuse, remedy: str) -> None:
    """Refuse numbers [n, ...] whose differences float32 rounds away: times, identifiers, coordinates.

    Each place of a sample counts by itself. float64 that was computed is not the same where it should be:
    what is only that counts as the same.
    """
    if values.dtype.kind not in "iuf" or values.dtype.itemsize <= (4 if values.dtype.kind == "f" else 2):
        return
    wide = values.reshape(len(values), -1)
    least, most = wide.min(axis=0).astype(float), wide.max(axis=0).astype(float)
    size = np.maximum(np.abs(least), np.abs(most))
    # Rounding moves a number by 2**-24 of its size at most; n numbers deviate by range / sqrt(2 n) or more.
    doubtful = most - least < size * 2**-24 / _ROUNDING * np.sqrt(2 * len(wide))
    is_whole = values.dtype.kind in "iu"
    for place in np.flatnonzero(doubtful & (least < most) | is_whole & (size >= 2**53)):
        column = wide[:, place]
        kept = column.astype(np.float32).astype(float)
        if not is_whole:
            differences, rounded = column - column[0], column - kept
        else:  # by Python's numbers, which hold all: float64 holds only the differences of large ones
            exact = column.tolist()
            differences = np.array([each - exact[0] for each in exact], dtype=float)
            rounded = np.array(
                [each - int(near) for each, near in zip(exact, kept, strict=True)], dtype=float
            )
        deviation = float(differences.astype(float).std())
        error = float(np.sqrt(np.mean(rounded.astype(float) ** 2)))
        if error > _ROUNDING * deviation and deviation > (0 if is_whole else NOISE * size[place]):
            where = ", ".join(map(str, np.unravel_index(place, values.shape[1:])))
            raise refuse(
                f"{name}{where and f'[:, {where}]'} has numbers around {float(column[0]):.12g} that differ "
                f"by about {deviation:.3g}, which float32 rounds away; {remedy}"
            )


def _is_missing(value: Any) -> bool:
    """Whether an object stands for nothing: None, NaN, and what pandas and numpy have for it."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real | np.datetime64 | np.timedelta64) and bool(value != value)


def _refuse_missing(gaps: np.ndarray, found: np.ndarray | str, name: str, refuse: Refuse) -> None:
    if gaps.any():
        place = tuple(np.argwhere(gaps)[0].tolist())
        value = found if isinstance(found, str) else repr(found[place])
        if not isinstance(found, str) and found.dtype.kind != "O":
            value = str(found[place]) or "empty"
        problem = "a missing value; fill such places, or leave the samples out"
        raise refuse(f"{name}{list(place) or ''} is {value}, {problem}")
