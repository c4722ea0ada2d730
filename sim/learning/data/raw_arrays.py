"""Conversion of users' arrays to NumPy; missing values, and values that rounding changes, are refused."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from sim.errors import UserError

Refuse = Callable[[str], UserError]

_AS_TEXT = ("", "nan", "None", "NaT", "<NA>")  # texts of missing values
_ROUNDING = 0.01  # largest rounding error, as a share of a number's deviation
LARGEST = float(np.finfo(np.float32).max)
NOISE = 1e-13
"""Relative difference of numbers in float64 that differ only by rounding."""


def as_array(values: Any, name: str, refuse: Refuse) -> np.ndarray:
    """Return the values as an array. Refuses missing values, and values that form no array.

    An array of objects that are all texts, or all numbers, is converted to that type; others stay objects.
    """
    try:
        values = values.detach().cpu() if hasattr(values, "detach") else values
        if isinstance(values, list | tuple):
            if any(isinstance(each, np.ma.MaskedArray) for each in values):
                values = np.ma.stack(values)  # asarray would ignore the masks
            elif any(isinstance(each, str) for each in values):
                values = np.array(values, dtype=object)  # otherwise all would become texts
        found = np.asarray(values)
    except Exception as error:  # rows of different lengths; errors of __array__
        raise refuse(f"{name} is not an array: {type(error).__name__}: {error}") from None
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
    elif found.dtype == np.int64:  # the integer that NaN and NaT become
        _refuse_missing(found == np.iinfo(np.int64).min, found, name, refuse)
    if found.dtype.kind == "U":
        _refuse_missing(np.isin(found, _AS_TEXT), found, name, refuse)
    return found


def require_finite(values: np.ndarray, name: str, refuse: Refuse) -> None:
    """Refuse numbers outside float32: neither data nor models can contain them."""
    if values.dtype.kind in "biu":  # always smaller
        return
    finite = np.abs(values) <= np.float64(LARGEST)  # smaller float types may not represent this limit
    if not finite.all():
        index = tuple(np.argwhere(~finite)[0].tolist())
        value = values[index].item()
        raise refuse(f"{name}{list(index)} is {value!r}; must be a finite float32 number")


def as_float32(values: np.ndarray, name: str, refuse: Refuse) -> np.ndarray:
    """Return a copy as float32. Refuses numbers outside float32."""
    require_finite(values, name, refuse)
    return np.array(values, dtype=np.float32, order="C")


def require_exact_differences(values: np.ndarray, name: str, refuse: Refuse, remedy: str) -> None:
    """Refuse numbers [n, ...] with differences that float32 rounds away: times, identifiers, coordinates.

    Each position in a sample is checked separately. Float64 values that differ only by
    rounding in a computation count as equal.
    """
    if values.dtype.kind not in "iuf" or values.dtype.itemsize <= (4 if values.dtype.kind == "f" else 2):
        return
    wide = values.reshape(len(values), -1)
    least, most = wide.min(axis=0).astype(float), wide.max(axis=0).astype(float)
    size = np.maximum(np.abs(least), np.abs(most))
    # Rounding moves a number by at most 2**-24 of its size; n numbers deviate by at least range / sqrt(2 n).
    doubtful = most - least < size * 2**-24 / _ROUNDING * np.sqrt(2 * len(wide))
    is_whole = values.dtype.kind in "iu"
    for index in np.flatnonzero(doubtful & (least < most) | is_whole & (size >= 2**53)):
        column = wide[:, index]
        kept = column.astype(np.float32).astype(float)
        if not is_whole:
            differences, rounded = column - column[0], column - kept
        else:  # in Python's integers: float64 is exact for the differences only
            exact = column.tolist()
            differences = np.array([each - exact[0] for each in exact], dtype=float)
            rounded = np.array(
                [each - int(near) for each, near in zip(exact, kept, strict=True)], dtype=float
            )
        deviation = float(differences.astype(float).std())
        error = float(np.sqrt(np.mean(rounded.astype(float) ** 2)))
        if error > _ROUNDING * deviation and deviation > (0 if is_whole else NOISE * size[index]):
            where = ", ".join(map(str, np.unravel_index(index, values.shape[1:])))
            raise refuse(
                f"{name}{where and f'[:, {where}]'} has numbers around {float(column[0]):.12g} that differ "
                f"by about {deviation:.3g}, which float32 rounds away; {remedy}"
            )


def _is_missing(value: Any) -> bool:
    """Return True if an object is a missing value: None, NaN, or the missing value of pandas or numpy."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real | np.datetime64 | np.timedelta64) and bool(value != value)


def _refuse_missing(gaps: np.ndarray, found: np.ndarray | str, name: str, refuse: Refuse) -> None:
    if gaps.any():
        index = tuple(np.argwhere(gaps)[0].tolist())
        value = found if isinstance(found, str) else repr(found[index])
        if not isinstance(found, str) and found.dtype.kind != "O":
            value = str(found[index]) or "empty"
        problem = "a missing value; fill it, or leave the sample out"
        raise refuse(f"{name}{list(index) or ''} is {value}, {problem}")
