"""Immutable handles on vectors and scalars that may not have been computed yet.

A handle is a linear combination of *slots*; a slot is one row of a pool, or the output of a pending node.
Sums, differences and scalings stay symbolic, so `params + (trained - params)` is `trained`, exactly and
without a computation. To read values, call `handle.slot()`: a combination then becomes a separate pending
mix.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from sim.learning.engine.graph.nodes import Coefficient, Factor, Slot, Terms

if TYPE_CHECKING:
    from torch import Tensor

WHOLE_MAX = 1 << 24
"""Largest whole number up to which float32 represents every whole number."""
_new = object.__new__
# A longer combination is computed into one vector, so that chains of merges cannot grow without limit.
_TERMS_MAX = 32


class VectorEngine(Protocol):
    """Interface of the engine that handles need: it defers and computes their values."""

    one: Slot

    def vector(self, values: Tensor) -> Vector: ...
    def scalar(self, value: float) -> Scalar: ...
    def mix(self, width: int, terms: Terms) -> Slot: ...
    def clip(self, value: Scalar, low: float, high: float) -> Scalar: ...
    def dot(self, first: Vector, second: Vector) -> Scalar: ...
    def part(self, of: Vector, offset: int, width: int) -> Vector: ...
    def read(self, slot: Slot) -> Tensor: ...
    def read_array(self, slot: Slot) -> np.ndarray: ...
    def apply(
        self, function: Callable[..., Any], arguments: Sequence[Any], static: Mapping[str, Any]
    ) -> Any: ...


class Vector:
    """Immutable flat vector of P float32 numbers, which may be pending: supports `+ - * /`.

    `shape` and `dtype` are known at once; `tensor()` and `numpy()` compute the required nodes.
    """

    __slots__ = ("_difference", "_slot", "_terms", "engine", "width")
    __array_ufunc__ = None  # numpy delegates `number * vector`, and refuses `array + vector`

    dtype = "float32"
    immutable = True  # messages carry it by reference

    def __init__(self, engine: VectorEngine, width: int, terms: Terms) -> None:
        self.engine = engine
        self.width = width
        self._terms: Terms | None = terms  # None until they are needed
        self._slot: Slot | None = None  # set if the vector is a single slot
        self._difference: tuple[Vector, Vector] | None = None  # minuend and subtrahend, for lazy terms

    @classmethod
    def of_slot(cls, engine: VectorEngine, width: int, slot: Slot) -> Self:
        """Return a handle on one slot; its terms are created when they are needed."""
        vector = _new(cls)
        vector.engine = engine
        vector.width = width
        vector._slot = slot
        vector._difference = vector._terms = None
        return vector

    @property
    def terms(self) -> Terms:
        """Slots of this combination, with their factors."""
        terms = self._terms
        if terms is None and self._slot is not None:
            terms = self._terms = {self._slot: 1.0}
        elif terms is None:
            assert self._difference is not None
            minuend, subtrahend = self._difference
            terms, self._difference = minuend._combine(subtrahend, -1.0).terms, None
            self._terms = terms
        return terms

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def pending(self) -> bool:
        """True if some value of this handle has not been computed yet."""
        scalars = [factor.scalar for factor in self.terms.values() if isinstance(factor, Coefficient)]
        return any(slot.node is not None for slot in (*self.terms, *scalars))

    def slot(self) -> Slot:
        """Return the single slot of this value; creates a pending mix of a combination, once."""
        if self._slot is not None:
            return self._slot
        terms = self.terms
        if len(terms) == 1:
            ((slot, factor),) = terms.items()
            if factor == 1.0:
                self._slot = slot
                return slot
        self._slot = slot = self.engine.mix(self.width, terms)
        self._terms = {slot: 1.0}
        return slot

    def stored(self) -> Slot:
        """Return the slot whose row stores the values, of any type."""
        return self.slot()

    def tensor(self) -> Tensor:
        """Return the values as a new tensor of `shape` on the engine's device; computes required nodes."""
        return self.engine.read(self.slot()).reshape(self.shape)

    def numpy(self) -> np.ndarray:
        """Return the values as a numpy array of `shape`; computes the required nodes."""
        return self.engine.read_array(self.slot()).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def like(self, values: Any) -> Vector:
        """Return a handle of this engine on known values. Raises ValueError for more than one dimension."""
        return known_values_handle(self.engine, values)

    def applied(
        self, function: Callable[..., Any], arguments: Sequence[Any], static: Mapping[str, Any]
    ) -> Any:
        """Return the deferred results of a pure function of arguments of the same engine."""
        return self.engine.apply(function, arguments, static)

    def norm(self) -> Scalar:
        """Return the Euclidean norm."""
        return self.engine.apply(_norm, (self,), {})

    def dot(self, other: Any) -> Scalar:
        """Return the inner product with a vector of the same width and engine."""
        return self.engine.dot(self, other)

    def combination(self, weighted: Sequence[tuple[Any, Any]]) -> Any:
        """Return the sum of factor times vector over pairs (factor, vector) of this engine and width."""
        terms: dict[Slot, Factor] = {}
        engine, width = self.engine, self.width
        for factor, vector in weighted:
            if vector.engine is not engine or vector.width != width:
                self._require_alike(vector)
            if type(factor) is Scalar:
                vector, factor = factor * vector, 1.0
            slot, number = vector._slot, float(factor)
            if slot is not None and number and slot not in terms:
                terms[slot] = number
            elif not _add_terms(terms, vector.terms, number):
                return reduce(operator.add, [factor * vector for factor, vector in weighted])
        return self._limited(terms) if len(terms) > _TERMS_MAX else type(self)(engine, width, terms)

    def shortened(self, terms_max: int) -> Terms:
        """Return `terms`; if there are more than `terms_max`, this vector becomes one pending slot first."""
        terms = self._terms or self.terms
        if len(terms) > terms_max:
            self.slot()
            terms = self.terms
        return terms

    def _combine(self, other: Any, sign: float) -> Any:
        if type(other) is not type(self):
            _require_awaited(other)
            return NotImplemented
        self._require_alike(other)
        terms = dict(self.terms)
        if not _add_terms(terms, other.terms, sign):
            return type(self)(self.engine, self.width, {self.slot(): 1.0, other.slot(): sign})
        return self._limited(terms)

    def _require_alike(self, other: Vector) -> None:
        if other.engine is not self.engine:
            raise ValueError("these vectors belong to two different engines")
        if other.width != self.width:
            raise ValueError(f"vectors of {self.width} and {other.width} numbers cannot be added")

    def _limited(self, terms: dict[Slot, Factor]) -> Any:
        result = type(self)(self.engine, self.width, terms)
        if len(terms) > _TERMS_MAX:
            result.slot()
        return result

    def __add__(self, other: Any) -> Any:
        if type(other) is Vector and other._difference is not None and other._difference[1] is self:
            return other._difference[0]
        return self._combine(other, 1.0)

    def __radd__(self, other: Any) -> Any:
        _require_awaited(other)
        # sum() starts with the integer 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Any) -> Any:
        if type(self) is not Vector or type(other) is not Vector:
            return self._combine(other, -1.0)
        if self.engine is not other.engine or self.width != other.width:
            self._require_alike(other)
        if self._difference is not None or other._difference is not None:
            return self._combine(other, -1.0)  # no chains of differences
        # Most differences are updates, trained - start, which are only used in start + update.
        update = _new(Vector)
        update.engine = self.engine
        update.width = self.width
        update._difference = (self, other)
        update._slot = update._terms = None
        return update

    def __rsub__(self, other: Any) -> Any:
        _require_awaited(other)
        return NotImplemented

    def __neg__(self) -> Any:
        return self * -1.0

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Scalar):
            if other.engine is not self.engine:
                raise ValueError("these vectors belong to two different engines")
            factor = other.factor()
            if isinstance(factor, float):
                return self * factor
            return type(self)(self.engine, self.width, {self.slot(): factor})
        number = _number(other)
        if number is None:
            return self._elementwise(operator.mul, other)
        terms = {
            slot: scaled for slot, factor in self.terms.items() if (scaled := _scale(factor, number)) != 0.0
        }
        return type(self)(self.engine, self.width, terms)

    def __rmul__(self, other: Any) -> Any:
        return self.__mul__(other)

    def __truediv__(self, other: Any) -> Any:
        number = _number(other)
        if number is not None:
            return self * (1.0 / number)
        if isinstance(other, Scalar):
            return self * (1.0 / other)
        return self._elementwise(operator.truediv, other)

    def __pow__(self, power: Any) -> Any:
        number = _number(power)
        return NotImplemented if number is None else self.engine.apply(operator.pow, (self, number), {})

    def __abs__(self) -> Any:
        return self.engine.apply(operator.abs, (self,), {})

    def __getitem__(self, columns: slice) -> Vector:
        """Return the values of a slice with step 1, as a new vector."""
        if not isinstance(columns, slice) or columns.step not in (None, 1):
            raise TypeError("a vector supports slices such as vector[10:20], and no other index")
        first, end, _ = columns.indices(self.width)
        if end <= first:
            raise ValueError(f"a slice [{first}:{end}] of a vector of {self.width} numbers is empty")
        return self.engine.part(self, first, end - first)

    def __setitem__(self, columns: Any, values: Any) -> None:
        """Raise TypeError: handles are immutable."""
        raise TypeError(
            "vectors are immutable: change a copy of the values, `values = self.params.numpy()`, and assign "
            "`self.params = self.vector(values)`"
        )

    def __delitem__(self, columns: Any) -> None:
        """Raise TypeError: handles are immutable."""
        raise TypeError(
            "vectors are immutable, and keep their length; a slice such as vector[:10] is a new vector"
        )

    def _elementwise(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        if type(other) is not Vector or type(self) is not Vector:
            _require_awaited(other)
            return NotImplemented
        self._require_alike(other)
        return self.engine.apply(function, (self, other), {})

    def __repr__(self) -> str:
        state = "pending" if self.pending else "computed"
        return f"<{type(self).__name__} of {self.width} numbers, {len(self.terms)} terms, {state}>"


class Scalar(Vector):
    """Single number that may be pending: an inner product, a loss, a weight computed from them.

    Arithmetic and `clip` stay deferred; `float()`, comparisons (also `==`) and `bool()` compute the required
    nodes. Two scalars may be multiplied, and a scalar may scale a Vector or be the strength of a proximal
    pull.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # equal numbers would need equal hashes, hence a computation

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def __truediv__(self, other: Any) -> Any:
        number = _number(other)
        if number is not None:
            return self * (1.0 / number)
        if not isinstance(other, Scalar):
            return NotImplemented
        return self.engine.apply(operator.truediv, (self, other), {})

    def __rtruediv__(self, other: Any) -> Any:
        number = _number(other)
        return NotImplemented if number is None else self.engine.apply(operator.truediv, (number, self), {})

    def clip(self, low: float, high: float) -> Scalar:
        """Return this number limited to [low, high]."""
        return self.engine.clip(self, low, high)

    def factor(self) -> Factor:
        """Return this number as the factor of a vector, without a separate computation if possible."""
        if not self.terms:
            return 0.0
        if len(self.terms) == 1:
            ((slot, number),) = self.terms.items()
            if isinstance(number, float):
                return number if slot is self.engine.one else Coefficient(number, slot)
        return Coefficient(1.0, self.slot())

    def __float__(self) -> float:
        return float(self.tensor())

    def _combine(self, other: Any, sign: float) -> Any:
        number = _number(other)
        return super()._combine(self.engine.scalar(number) if number is not None else other, sign)

    def __radd__(self, other: Any) -> Any:
        return self._combine(other, 1.0)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._combine(other, 1.0)

    def __bool__(self) -> bool:
        return float(self) != 0.0

    def _compare(self, other: object, relation: Callable[[float, float], bool]) -> bool:
        number = float(other) if isinstance(other, Scalar) else _number(other)
        return NotImplemented if number is None else relation(float(self), number)

    def __eq__(self, other: object) -> bool:
        return self._compare(other, operator.eq)

    def __lt__(self, other: object) -> bool:
        return self._compare(other, operator.lt)

    def __le__(self, other: object) -> bool:
        return self._compare(other, operator.le)

    def __gt__(self, other: object) -> bool:
        return self._compare(other, operator.gt)

    def __ge__(self, other: object) -> bool:
        return self._compare(other, operator.ge)


def known_values_handle(engine: VectorEngine, values: Any) -> Vector:
    """Return a handle on known values; a Scalar, if they have no dimension.

    Raises ValueError for more than one dimension, and for whole numbers that float32 cannot represent.
    """
    import torch

    tensor = torch.as_tensor(values).detach()
    if tensor.dim() > 1 or tensor.dtype.is_complex:
        hint = "; `flatten()` reduces several dimensions" if tensor.dim() > 1 else ""
        raise ValueError(
            f"a vector has real numbers in one dimension, not shape {tuple(tensor.shape)} and type "
            f"{tensor.dtype}{hint}"
        )
    if not tensor.is_floating_point() and tensor.numel() and tensor.double().abs().max() > WHOLE_MAX:
        raise ValueError(
            f"whole numbers beyond {WHOLE_MAX:,} lose digits in float32, the type of vectors; to round them, "
            "use `.astype(float)`"
        )
    return engine.vector(tensor) if tensor.dim() else engine.scalar(float(tensor))


def _norm(values: Tensor) -> Tensor:
    return (values * values).sum().sqrt()


def _require_awaited(value: Any) -> None:
    """Raise TypeError for the coroutine of a verb such as `train` that was not awaited."""
    if isinstance(value, Coroutine):
        name = getattr(value, "__name__", "train")
        value.close()  # otherwise Python would warn later
        raise TypeError(f"{name}() has not been awaited: write `await self.{name}(...)`")


def _number(value: Any) -> float | None:
    """Return `value` as a float if it is a plain number, else None."""
    if isinstance(value, (int, float, np.floating, np.integer)):
        return float(value)
    return None


def _add_terms(terms: dict[Slot, Factor], addends: Terms, factor: float) -> bool:
    """Add `factor` times the combination `addends` to `terms`; False if the sum is no combination of slots.

    Slots with canceling factors are dropped: this makes `params + (trained - params)` exact.
    """
    for slot, added in addends.items():
        addend = added * factor if type(added) is float else _scale(added, factor)
        present = terms.get(slot)
        if present is None:
            if addend != 0.0:
                terms[slot] = addend
            continue
        total = _add(present, addend)
        if total is None:
            return False
        if total == 0.0:
            del terms[slot]
        else:
            terms[slot] = total
    return True


def _scale(factor: Factor, number: float) -> Factor:
    if isinstance(factor, float):
        return factor * number
    return Coefficient(factor.number * number, factor.scalar) if number else 0.0


def _add(first: Factor, second: Factor) -> Factor | None:
    if isinstance(first, float) and isinstance(second, float):
        return first + second
    if isinstance(first, Coefficient) and isinstance(second, Coefficient) and first.scalar is second.scalar:
        total = first.number + second.number
        return Coefficient(total, first.scalar) if total else 0.0
    return None
