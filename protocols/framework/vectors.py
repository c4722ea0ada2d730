"""What a protocol may do with parameters: arithmetic on immutable handles whose numbers may not exist yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np


class Vector(Protocol):
    """An immutable flat vector of P float32 numbers: a model, an update, a gradient.

    Supports `+ - * /` with vectors (number by number) and with numbers and scalars, `**`, `abs()` and slices
    such as `vector[:10]`. Arithmetic costs nothing and computes nothing; `tensor()` and `numpy()` give the
    numbers and force what is pending.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(P,); known before the numbers are."""

    def tensor(self) -> Any:
        """The numbers as a new torch tensor [P]; computes what it needs."""

    def numpy(self) -> np.ndarray:
        """The numbers as a new numpy array [P]; computes what it needs."""

    def __add__(self, other: Vector) -> Vector: ...

    def __sub__(self, other: Vector) -> Vector: ...

    def __mul__(self, factor: float | Scalar | Vector) -> Vector: ...

    def __rmul__(self, factor: float | Scalar) -> Vector: ...

    def __truediv__(self, divisor: float | Scalar | Vector) -> Vector: ...

    def __pow__(self, power: float) -> Vector: ...

    def __abs__(self) -> Vector: ...

    def __getitem__(self, columns: slice) -> Vector: ...

    def norm(self) -> Scalar:
        """The Euclidean norm."""

    def dot(self, other: Vector) -> Scalar:
        """The inner product; `Node.dot` calls it."""

    def like(self, values: Any) -> Vector:
        """A handle on known numbers; `Node.vector` calls it."""

    def applied(
        self, function: Callable[..., Any], arguments: Sequence[Any], static: Mapping[str, Any]
    ) -> Any:
        """The result of a function of the arguments; `Node.apply` calls it."""

    def combination(self, weighted: Sequence[tuple[float | Scalar, Vector]]) -> Vector:
        """Sum of factor times vector over pairs; `mix` calls it on the first vector."""


class Scalar(Protocol):
    """One number, perhaps pending: an inner product, a loss. `+ - * / **` and `clip` stay deferred.

    `float()` and comparisons with `< <= > >=` compute what they need.
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
        """This number limited to [low, high]."""

    def __float__(self) -> float: ...

    def __lt__(self, other: float | Scalar) -> bool: ...

    def __gt__(self, other: float | Scalar) -> bool: ...


def mix(weighted: Iterable[tuple[float | Scalar, Vector]]) -> Vector:
    """Sum of weight times vector over pairs (weight, vector); at least one pair.

    >>> mix([(0.25, client.vector([4.0, 0.0])), (0.75, client.vector([0.0, 4.0]))]).numpy()
    array([1., 3.], dtype=float32)
    """
    pairs = list(weighted)
    if not pairs:
        raise ValueError("a mix needs at least one vector")
    return pairs[0][1].combination(pairs)
