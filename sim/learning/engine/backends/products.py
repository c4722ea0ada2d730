"""Matrix products of many clients. No bit of a client's product depends on the other clients in the call."""

from math import gcd

import torch
from torch import Tensor

from sim.learning.engine.vector_pool import LINE_BYTES

_LINE = LINE_BYTES // 4  # numbers


def product(first: Tensor, second: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return products [N, A, C] of matrices [N, A, B] and [N, B, C], plus a bias [N, A, 1].

    On a CPU, the last bits of small products depend on the distance of their matrices from a cache line, and
    therefore on the index of a client among the N, unless all matrices of a stack have the same distance. If
    the sizes do not ensure that, the factors are copied and padded, so that the products also start at cache
    lines.
    """
    count, rows, columns = first.shape[0], first.shape[1], second.shape[2]
    uneven = (rows * columns | first.stride(0) | second.stride(0)) % _LINE
    # torch uses another algorithm for one matrix times one vector than for several.
    is_single = count == 1 and (rows == 1 or columns == 1)
    if not (uneven or is_single) or first.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return first.bmm(second) if bias is None else torch.baddbmm(bias, first, second)
    if is_single:
        first, second = first.expand(2, -1, -1), second.expand(2, -1, -1)
    if rows * first.shape[2] < columns * second.shape[1]:
        first, second = (
            _pad_to_cache_lines(first, _aligned_size(rows, columns)),
            _pad_to_cache_lines(second.mT, columns).mT,
        )
    else:
        first, second = (
            _pad_to_cache_lines(first, rows),
            _pad_to_cache_lines(second.mT, _aligned_size(columns, rows)).mT,
        )
    found = first.bmm(second)[:count, :rows, :columns]
    return found if bias is None else found.add_(bias)


def _aligned_size(size: int, other: int) -> int:
    """Return the smallest number >= `size` whose product with `other` fills whole cache lines."""
    step = _LINE // gcd(_LINE, other)
    return -(-size // step) * step


def _pad_to_cache_lines(matrices: Tensor, rows: int) -> Tensor:
    """Return the matrices [N, A, B], each starting at a cache line, padded with zeros to `rows` rows."""
    count, given, columns = matrices.shape
    if matrices.stride(0) % _LINE == 0 and given == rows:
        return matrices
    numbers, is_transposed = rows * columns, matrices.stride(2) != 1
    shape = (count, -(-numbers // _LINE) * _LINE)
    padded = (matrices.new_empty(shape) if given == rows else matrices.new_zeros(shape))[:, :numbers]
    # The inner dimension affects the algorithm of a product.
    filled = padded.view(count, columns, rows).mT if is_transposed else padded.view(count, rows, columns)
    filled[:, :given].copy_(matrices)
    return filled
