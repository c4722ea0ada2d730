"""Storage of parameter vectors: one growing matrix per width, with recycled rows."""

from __future__ import annotations

import itertools
import mmap
from array import array
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.memory import does_not_fit_error, is_out_of_memory

LINE_BYTES = 64  # size of a cache line; no device needs a larger alignment
_LINE_NUMBERS = LINE_BYTES // 4
_CHECKSUM_NUMBERS = 1 << 16  # multiplied at once


class VectorPool:
    """Matrix [capacity, width] of float32 rows; a row is taken, written once, read often, and freed.

    A level of the pending graph therefore gathers its inputs by one operation and writes its outputs by
    another. Raises UserError if the device has no memory for the needed rows.

    Each row, and each gathered row, starts at a cache line: the last bits of small products depend on
    the alignment of their factors, and must not depend on the choice of free rows.
    """

    def __init__(self, width: int, device: torch.device, capacity: int = 16) -> None:
        self.width = width
        self.device = device
        # A single number per row is not padded.
        self._row_numbers = width if width == 1 else -(-width // _LINE_NUMBERS) * _LINE_NUMBERS
        self._pages: mmap.mmap | None = None  # of main memory, which can grow without a copy
        self._use(self._allocate(capacity, needed=1))
        self._free = list(range(self.data.shape[0] - 1, -1, -1))
        self.owners = array("q", bytes(8 * self.data.shape[0]))
        """Serial of the `Slot` that holds each row; any number for a free row."""
        self.next_serial = itertools.count().__next__
        self.give_back: Callable[[int], None] = self._free.append
        """Free one row, which must not be read again; a list's method, so that no Python frame is created."""

    @property
    def in_use(self) -> int:
        """Number of held rows."""
        return self.capacity - len(self._free)

    @property
    def capacity(self) -> int:
        """Number of rows, held or free."""
        return self.data.shape[0]

    @property
    def bytes_held(self) -> int:
        """Memory of all rows without padding, in bytes; a pool never shrinks, so this is also the maximum."""
        return 4 * self.capacity * self.width

    def take(self, count: int) -> list[int]:
        """Reserve `count` rows; the matrix grows by a quarter, or more if needed, if too few are free."""
        if count > len(self._free):
            self._grow(self.in_use + count)
        # Fixed bounds: a garbage collection may append freed rows meanwhile.
        end = len(self._free)
        rows = self._free[end - count : end]
        del self._free[end - count : end]
        rows.reverse()
        return rows

    @property
    def free(self) -> np.ndarray:
        """Rows that are not held; the last element is the next row to be taken."""
        return np.array(self._free, dtype=np.int64)

    @property
    def free_count(self) -> int:
        """Number of rows that are not held."""
        return len(self._free)

    @property
    def held(self) -> np.ndarray:
        """Rows that are held, in ascending order."""
        is_held = np.ones(self.capacity, dtype=bool)
        is_held[self.free] = False
        return np.flatnonzero(is_held)

    @property
    def held_owners(self) -> np.ndarray:
        """Serial of the `Slot` that holds each of the rows `held`."""
        return np.frombuffer(self.owners, np.int64)[self.held]

    @property
    def held_values(self) -> Tensor:
        """Values of the rows `held` in main memory, [held, width]."""
        return self.data.index_select(0, index_tensor(self.held, self.device)).cpu()

    def order_free(self, since: int) -> None:
        """Sort the free rows after the first `since` ones, so that they are reused in ascending order."""
        self._free[since:] = sorted(self._free[since:], reverse=True)

    def move_to(self, device: torch.device) -> None:
        """Move to another device, with the same number of rows and undefined values."""
        self.device = device
        self._use(self._allocate(len(self.data), needed=len(self.data)))

    def gather(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """Return a copy of the rows, [len(rows), width], each starting at a cache line."""
        return self._of_width(self._padded.index_select(0, index_tensor(rows, self.device)))

    def sums(self, rows: Sequence[int], firsts: np.ndarray, weights: Tensor) -> Tensor:
        """Return weighted sums of rows, [len(firsts), width], each starting at a cache line.

        firsts: start of each sum in `rows` and `weights`; an empty sum is 0.
        """
        terms, first = index_tensor(rows, self.device), index_tensor(firsts, self.device)
        # Further arguments: no scaling of gradients, a sum, no sparse gradients.
        return self._of_width(torch.embedding_bag(self._padded, terms, first, False, 0, False, weights)[0])

    def _of_width(self, padded: Tensor) -> Tensor:
        return padded if self._row_numbers == self.width else padded[:, : self.width]

    def _use(self, padded: Tensor) -> None:
        """Use this matrix for the rows; the last cache line of each row is padded."""
        self._padded = padded
        self.data = self._of_width(padded)

    def store(self, values: Tensor) -> list[int]:
        """Take a row for each of `values` [n, width], write it, return the row numbers."""
        rows = self.take(values.shape[0])
        self.write(rows, values)
        return rows

    def write(self, rows: Sequence[int], values: Tensor) -> None:
        """Write rows that were taken, in any thread."""
        if self.device.type == "cpu":  # numpy takes a third of the time
            self.data.numpy()[rows] = values.detach().numpy()
        else:
            # `data`: threads must not share a tensor's version counter.
            self.data.data.index_copy_(0, index_tensor(rows, self.device), values)

    def _grow(self, needed: int) -> None:
        rows = self.data.shape[0]
        wanted = max(rows * 5 // 4, needed)
        if not (self._resize_in_place(wanted) or self._resize_in_place(needed)):
            old = self.data
            padded = self._allocate(wanted, needed)
            self._of_width(padded)[:rows] = old
            self._use(padded)
        self.owners.extend(itertools.repeat(0, self.data.shape[0] - rows))
        # New rows go below the free ones on the stack, so that low rows are reused first.
        self._free[:0] = range(self.data.shape[0] - 1, rows - 1, -1)

    def _resize_in_place(self, rows: int) -> bool:
        """Grow the matrix in place to `rows` rows; False if this is impossible."""
        if self._pages is None:
            return False
        del self.data, self._padded  # memory with views is not moved
        try:
            self._pages.resize(4 * rows * self._row_numbers)
        except (BufferError, OSError):  # there are views; no memory
            return False
        except (SystemError, AttributeError):  # not supported (before and from Python 3.15)
            return False
        finally:
            self._use(self._matrix(self._pages))
        return True

    def _allocate(self, wanted: int, needed: int) -> Tensor:
        """Return `wanted` rows, or only `needed` rows if memory is insufficient."""
        for rows in (wanted, needed):
            try:
                return self._empty(rows)
            except (RuntimeError, OSError) as error:
                if not is_out_of_memory(error):
                    raise
        raise does_not_fit_error(f"a store of {needed:,} vectors of {self.width:,} numbers", self.device)

    def _empty(self, rows: int) -> Tensor:
        self._pages = None
        if self.device.type != "cpu" or not self.width:  # pages cannot be empty
            return torch.empty((rows, self._row_numbers), dtype=torch.float32, device=self.device)
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # shared pages cannot grow
        self._pages = mmap.mmap(-1, 4 * rows * self._row_numbers, flags=private)
        return self._matrix(self._pages)

    def _matrix(self, pages: mmap.mmap) -> Tensor:
        return torch.from_numpy(np.frombuffer(pages, np.float32)).view(-1, self._row_numbers)


class LazyPoolRows:
    """Rows of a pool as a matrix [N, width], which is copied only when it is indexed."""

    def __init__(self, pool: VectorPool, rows: np.ndarray) -> None:
        self.device, self.row_bytes = pool.data.device, 4 * pool.width
        self._pool, self._rows = pool, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, indices: slice | np.ndarray | list[int]) -> Tensor:
        return self._pool.gather(self._rows[indices])

    @property
    def serials(self) -> list[int]:
        """Serial numbers of the vectors in the rows: equal numbers mean equal values."""
        owners = self._pool.owners
        return [owners[row] for row in self._rows.tolist()]

    def of(self, indices: list[int]) -> LazyPoolRows:
        """Return a part of these rows."""
        return LazyPoolRows(self._pool, self._rows[indices])


def aligned_to_cache_lines(items: Tensor) -> Tensor:
    """Return the same numbers [N, ...], with each n starting at a cache line."""
    count, shape = len(items), items.shape[1:]
    numbers, line = shape.numel(), LINE_BYTES // items.itemsize
    if count == 1 or numbers % line == 0 or items.device.type != "cpu":
        return items
    padded = items.new_empty((count, -(-numbers // line) * line))
    return padded[:, :numbers].view(count, *shape).copy_(items)


def index_tensor(rows: Sequence[int] | np.ndarray, device: torch.device) -> Tensor:
    """Return row numbers as an int64 tensor on `device`."""
    return numpy_to_device(np.asarray(rows, dtype=np.int64), device)


def numpy_to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """Return the same numbers on `device`. A copy to CUDA is queued there, without a wait.

    The queue needs pinned memory, which torch does not reuse before the copy has ended.
    """
    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def checksums(rows: Tensor) -> np.ndarray:
    """Return an int64 checksum for each row, which changes if any bit of the row changes.

    rows: float32 [N, P]. The checksum is the sum, modulo 2^64, of the bits of each number times an odd weight
    that depends on the number's position. It is exact for any order of summation.
    """
    bits = rows.view(torch.int32)
    weights = torch.arange(rows.shape[1], device=rows.device, dtype=torch.int64) * 2 + 1
    # Some rows at a time: an int64 copy of all rows would triple the memory of a large run.
    blocks = bits.split(max(1, _CHECKSUM_NUMBERS // max(1, rows.shape[1])))
    return torch.cat([(block * weights).sum(dim=1) for block in blocks]).cpu().numpy()
