"""Checks of message contents before delivery to an actor."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import numpy as np
from torch import Tensor

from sim.learning.engine import Vector


def has_non_finite(message: object) -> bool:
    """Return True if a message contains a value that is not finite. Computes pending vectors."""
    return any(not np.isfinite(numbers).all() for numbers in _numbers(message))


def _numbers(content: object) -> Iterator[np.ndarray]:
    """Yield all floating-point content of a message, in order."""
    if isinstance(content, Vector | Tensor | np.ndarray):
        array = np.asarray(content)
        if array.dtype.kind in "fc":
            yield array
    elif isinstance(content, float):
        yield np.asarray(content)
    elif is_dataclass(content) and not isinstance(content, type):
        for field in fields(content):
            yield from _numbers(getattr(content, field.name))
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _numbers(value)
    elif isinstance(content, tuple | list):
        for item in content:
            yield from _numbers(item)
