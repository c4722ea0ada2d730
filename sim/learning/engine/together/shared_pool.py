"""Pools of several runs in one matrix, so that one call computes vectors of several runs."""

import itertools

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.vector_pool import VectorPool, index_tensor

_START_ROWS = 16


class SharedMatrix(VectorPool):
    """Matrix whose rows belong to the pools of several runs."""

    def __init__(self, width: int, device: torch.device) -> None:
        self._pools: list[PoolOfRun] = []
        super().__init__(width, device)

    def new_pool(self) -> VectorPool:
        """Return an empty pool for one run."""
        pool = PoolOfRun(self)
        self._pools.append(pool)
        self._show_to([pool])
        return pool

    def _use(self, padded: Tensor) -> None:
        super()._use(padded)
        self._show_to(self._pools)

    def _show_to(self, pools: list["PoolOfRun"]) -> None:
        for pool in pools:
            pool.data, pool._padded = self.data, self._padded

    def _resize_in_place(self, rows: int) -> bool:
        if self._pages is None:
            return False
        for pool in self._pools:
            del pool.data, pool._padded  # memory with views is not moved
        return super()._resize_in_place(rows)


class PoolOfRun(VectorPool):
    """Pool of one run in a `SharedMatrix`.

    Slots state row numbers of the matrix. Row number n of this pool is row `_rows[n]` of the matrix. Rows are
    taken in the same order as in a separate pool, and checkpoints state the row numbers of this pool.
    """

    def __init__(self, matrix: SharedMatrix) -> None:
        self.width, self.device, self._row_numbers = matrix.width, matrix.device, matrix._row_numbers
        self._shared = matrix
        self._rows = matrix.take(_START_ROWS)
        self._free = self._rows[::-1]
        self.owners = matrix.owners
        self.next_serial = itertools.count().__next__
        self.give_back = self._free.append

    @property
    def capacity(self) -> int:
        return len(self._rows)

    @property
    def free(self) -> np.ndarray:
        number = self._numbers()
        return np.array([number[row] for row in self._free], dtype=np.int64)

    @property
    def held_owners(self) -> np.ndarray:
        return np.frombuffer(self.owners, np.int64)[self._held_rows()]

    @property
    def held_values(self) -> Tensor:
        return self.data.index_select(0, index_tensor(self._held_rows(), self.device)).cpu()

    def order_free(self, since: int) -> None:
        if since < len(self._free):
            self._free[since:] = sorted(self._free[since:], key=self._numbers().__getitem__, reverse=True)

    def move_to(self, device: torch.device) -> None:
        raise NotImplementedError("a run that shares its matrix with others is not replayed")

    def _held_rows(self) -> np.ndarray:
        return np.array(self._rows, dtype=np.int64)[self.held]

    def _numbers(self) -> dict[int, int]:
        """Return the numbers of the rows in this pool, by their numbers in the matrix."""
        return {row: number for number, row in enumerate(self._rows)}

    def _grow(self, needed: int) -> None:
        rows = self.capacity
        new = self._shared.take(max(rows * 5 // 4, needed) - rows)
        self._rows += new
        self._free[:0] = reversed(new)
