"""Storage of parameter vectors: one growing matrix per width, whose rows are recycled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class Arena:
    """A matrix [capacity, width] of float32 rows; a row is taken, written once, read often, and given back.

    Rows instead of one tensor per vector: a level of the pending graph gathers its inputs by one index
    operation and writes its outputs by another, and memory is reused without asking the allocator.
    """

    def __init__(self, width: int, device: torch.device, capacity: int = 16) -> None:
        self.width = width
        self.device = device
        self.data = torch.empty((capacity, width), dtype=torch.float32, device=device)
        self._free = list(range(capacity - 1, -1, -1))

    @property
    def in_use(self) -> int:
        """Number of rows held by somebody."""
        return self.data.shape[0] - len(self._free)

    def take(self, count: int) -> list[int]:
        """Reserve `count` rows, growing the matrix by doubling when too few are free."""
        if count > len(self._free):
            self._grow(self.in_use + count)
        # One pop at a time: a garbage collection may give rows back meanwhile, and must not shift the others.
        return [self._free.pop() for _ in range(count)]

    def give_back(self, row: int) -> None:
        """Free one row; whoever gives it back must not read it again."""
        self._free.append(row)

    def gather(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """Copy of the rows, [len(rows), width]."""
        return self.data.index_select(0, index_tensor(rows, self.device))

    def store(self, values: Tensor) -> list[int]:
        """Take a row for each of `values` [n, width], write it, return the row numbers."""
        rows = self.take(values.shape[0])
        self.data.index_copy_(0, index_tensor(rows, self.device), values)
        return rows

    def _grow(self, needed: int) -> None:
        old = self.data
        capacity = max(2 * old.shape[0], needed)
        self.data = torch.empty((capacity, self.width), dtype=old.dtype, device=self.device)
        self.data[: old.shape[0]] = old
        # New rows go below the free ones on the stack, so that low rows are reused first.
        self._free[:0] = range(capacity - 1, old.shape[0] - 1, -1)


def index_tensor(rows: Sequence[int] | np.ndarray, device: torch.device) -> Tensor:
    """Row numbers as an int64 tensor on `device`."""
    return torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(device)
