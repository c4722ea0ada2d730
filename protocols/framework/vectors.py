"""Arithmetic on parameters: immutable handles of numbers that may not have been computed yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np


class Vector(Protocol):
    """Immutable flat vector of P float32 numbers: a model, an update, a gradient.

    Supports `+ -` with vectors, `* /` with vectors (element by element), numbers and scalars, `**` with a
    number, `abs()`, and slices such as `vector[:10]`. Arithmetic is free and deferred; `tensor()` and
    `numpy()` compute pending values and return the numbers.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (P,), known before the numbers are computed."""

    def tensor(self) -> Any:
        """Compute the numbers and return them as a new torch tensor [P]."""

    def numpy(self) -> np.ndarray:
        """Compute the numbers and return them as a new numpy array [P]."""

    def __add__(self, other: Vector) -> Vector: ...

    def __sub__(self, other: Vector) -> Vector: ...

    def __mul__(self, factor: float | Scalar | Vector) -> Vector: ...

    def __rmul__(self, factor: float | Scalar) -> Vector: ...

    def __truediv__(self, divisor: float | Scalar | Vector) -> Vector: ...

    def __pow__(self, power: float) -> Vector: ...

    def __abs__(self) -> Vector: ...

    def __getitem__(self, columns: slice) -> Vector: ...

    def norm(self) -> Scalar:
        """Return the Euclidean norm."""

    def dot(self, other: Vector) -> Scalar:
        """Return the inner product; `Node.dot` calls this."""

    def like(self, values: Any) -> Vector:
        """Return a handle on known numbers; `Node.vector` calls this."""

    def applied(
        self, function: Callable[..., Any], arguments: Sequence[Any], static: Mapping[str, Any]
    ) -> Any:
        """Return the result of a function of the arguments; `Node.apply` calls this."""

    def combination(self, weighted: Sequence[tuple[float | Scalar, Vector]]) -> Vector:
        """Return the sum of factor times vector over pairs; `mix` calls this on the first vector."""


class Scalar(Protocol):
    """One number that may be pending: an inner product, a loss. `+ - * / **` and `clip` stay deferred.

    `float()`, `bool()` and comparisons, also `==`, compute the number.
    """

    def __add__(self, other: float | Scalar) -> Scalar: ...

    def __radd__(self, other: float | Scalar) -> Scalar: ...

    def __sub__(self, other: float | Scalar) -> Scalar: ...

    def __mul__(self, factor: float | Scalar) -> Scalar: ...

    def __rmul__(self, factor: float | Scalar) -> Scalar: ...

    def __truediv__(self, divisor: float | Scalar) -> Scalar: ...

    def __rtruediv__(self, number: float) -> Scalar: ...

    def __pow__(self, power: float) -> Scalar: ...

    def clip(self, low: float, high: float) -> Scalar:
        """Return this number limited to [low, high]."""

    def __float__(self) -> float: ...

    def __lt__(self, other: float | Scalar) -> bool: ...

    def __gt__(self, other: float | Scalar) -> bool: ...


def mix(weighted: Iterable[tuple[float | Scalar, Vector]]) -> Vector:
    """Return the sum of weight times vector over pairs (weight, vector); at least one pair.

    >>> mix([(0.25, client.vector([4.0, 0.0])), (0.75, client.vector([0.0, 4.0]))]).numpy()
    array([1., 3.], dtype=float32)
    """
    pairs = list(weighted)
    if not pairs:
        raise ValueError("a mix needs at least one vector")
    return pairs[0][1].combination(pairs)
