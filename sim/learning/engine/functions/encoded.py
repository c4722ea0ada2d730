"""Numbers of few bytes, as in compressed messages: created and read by functions of `apply`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.graph.nodes import Slot, Terms
from sim.learning.engine.handles import Vector, VectorEngine

TYPES = {
    "bool": torch.bool,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int16": torch.int16,
    "int32": torch.int32,
    "float16": torch.float16,
}
"""Types of results [n] that are stored without conversion; float64, bfloat16 and scalars become float32."""
_NAMES = {dtype: name for name, dtype in TYPES.items()}
_NAMES |= dict.fromkeys((torch.float32, torch.float64, torch.bfloat16), "float32")
_PACKED = frozenset(TYPES.values())


def storage_type(values: Tensor) -> str | None:
    """Return the type in which numbers are stored; None if they cannot be stored."""
    return _NAMES.get(values.dtype)


def float32_columns(width: int, name: str) -> int:
    """Return the number of float32 columns of a pool for `width` numbers of this type."""
    return width if name == "float32" else -(-width * TYPES[name].itemsize // 4)


def encoded_rows(values: Tensor) -> Tensor:
    """Return numbers [N] or [N, width] as float32 rows of a pool.

    Scalars, [N], become float32. Other numbers of fewer than four bytes share float32 words; the end of each
    row is padded to a whole word.
    """
    if values.dim() == 1:
        return values.to(torch.float32).unsqueeze(1)
    rows, dtype = values, values.dtype
    if dtype not in _PACKED:
        return rows.to(torch.float32)
    gap = -rows.shape[1] % (4 // dtype.itemsize)
    return (torch.constant_pad_nd(rows, (0, gap)) if gap else rows.contiguous()).view(torch.float32)


def decoded_rows(rows: Tensor, name: str, width: int) -> Tensor:
    """Return the numbers [N, width] that `encoded_rows` stored."""
    if name == "float32":
        return rows
    numbers = rows.view(TYPES[name])
    return numbers if numbers.shape[-1] == width else numbers.narrow(-1, 0, width)


class EncodedVector(Vector):
    """Vector of a type other than float32, as in messages with fewer bytes; only `apply` takes it."""

    __slots__ = ("_stored", "dtype")

    dtype: str

    def __init__(self, engine: VectorEngine, width: int, slot: Slot, dtype: str) -> None:
        self.engine = engine
        self.width = width
        self.dtype = dtype
        self._slot = self._difference = self._terms = None
        self._stored = slot

    @property
    def terms(self) -> Terms:
        """Raise TypeError: an encoded vector is not a linear combination."""
        raise TypeError(f"a vector of {self.dtype} can only be sent: use `apply` to compute with it")

    @property
    def pending(self) -> bool:
        return self._stored.node is not None

    def stored(self) -> Slot:
        return self._stored

    def tensor(self) -> Tensor:
        return decoded_rows(self.engine.read(self._stored), self.dtype, self.width)

    def numpy(self) -> np.ndarray:
        return self.tensor().cpu().numpy()

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, -1.0)

    def _combine(self, other: Any, sign: float) -> Any:
        return self.terms

    def __repr__(self) -> str:
        state = "pending" if self.pending else "computed"
        return f"<{type(self).__name__} of {self.width} numbers of type {self.dtype}, {state}>"
