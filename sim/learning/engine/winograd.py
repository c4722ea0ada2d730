"""Convolutions of 3x3 with less than half of the multiplications, by the method of Winograd.

A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks (CVPR 2016), section 4.1: F(2x2, 3x3).
The output is cut into tiles of 2x2. Each hangs on 4x4 inputs, the next tile's on inputs two further, and in
the transforms of inputs d and kernel g it takes 16 multiplications instead of 36:

    Y = A' ((G g G') * (B' d B)) A,   * element by element, ' transposed

Over channels these are 16 products of matrices. Whatever lies around them is a few sums of what lies side by
side, with the channels last. The gradients are the same in reverse: A for A', B for B'.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHANNELS_MIN = 64  # on both sides: with 32 the transforms cost more than the multiplications (measured)
_TILES_MIN = 64  # of the whole batch: with fewer, the kernels' transforms do (measured)
_TILES_AT_ONCE = 256  # what becomes of so many still lies in the caches (measured: 128 to 512 are as good)

_G = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_G_FOR_BOTH_AXES = torch.kron(_G, _G)  # [16, 9]: G g G' is its product with g, both as vectors


class Scratch:
    """Memory that is used again, since the system takes longer to give new pages than we to fill them."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Uninitialised; it overwrites what was taken under this name before."""
        size = prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size or held.dtype != like.dtype:
            held = self._held[name] = like.new_empty(size)
        return held[:size].view(shape)


def gains_from_winograd(x: Tensor, weight: Tensor, how: Sequence[Any]) -> bool:
    """Whether `winograd` can take a convolution's place, and is faster.

    how: stride, padding, dilation and groups, as torch.nn.Conv2d gives them to torch.conv2d.
    """
    stride, padding, dilation, groups = how
    if (
        x.device.type != "cpu"
        or x.dim() != 4
        or tuple(weight.shape[2:]) != (3, 3)
        or (stride, dilation, groups) != ((1, 1), (1, 1), 1)
        or isinstance(padding, str)
        or torch.is_autocast_enabled("cpu")
    ):
        return False
    tiles_down, tiles_across = _tiles(x, padding)
    enough = len(x) * tiles_down * tiles_across >= _TILES_MIN
    return enough and min(weight.shape[:2]) >= _CHANNELS_MIN


def winograd(x: Tensor, weight: Tensor, padding: Sequence[int], scratch: Scratch) -> Tensor:
    """As torch.conv2d with a stride of 1: x [B, C, H, W], weight [K, C, 3, 3]; channels last.

    It can be differentiated once.
    """
    result: Tensor = _Winograd.apply(x, weight, tuple(padding), scratch)
    return result


def _tiles(x: Tensor, padding: Sequence[int]) -> tuple[int, int]:
    """How many tiles of the output lie below and beside each other; x [B, C, H, W]."""
    down, across = (ceil((size + 2 * pad - 2) / 2) for size, pad in zip(x.shape[2:], padding, strict=True))
    return down, across


class _Winograd(torch.autograd.Function):
    """In the shapes below: b images, n x m tiles each, c channels of the input, k of the output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, padding: tuple[int, int], scratch: Scratch) -> Tensor:
        b, c, height, width = x.shape
        k, (n, m), (top, left) = len(weight), _tiles(x, padding), padding
        padded = x.new_zeros(b, 2 * n + 2, 2 * m + 2, c)
        padded[:, top : top + height, left : left + width] = x.permute(0, 2, 3, 1)
        kernels = _transformed_kernels(weight, scratch)
        output = x.new_empty(b, n, 2, m, 2, k)
        some = ceil(_TILES_AT_ONCE / (n * m))
        for own, into in zip(padded.split(some), output.split(some), strict=True):
            tiles = _transformed_inputs(own, scratch)
            products = scratch.take("products", x, 16, tiles.shape[1], k)
            _write_outputs(torch.bmm(tiles, kernels.mT, out=products), into, scratch)
        ctx.save_for_backward(padded, weight)
        ctx.rest = padding, x.shape, some, scratch
        rows, columns = height + 2 * top - 2, width + 2 * left - 2
        return output.view(b, 2 * n, 2 * m, k)[:, :rows, :columns].contiguous().permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, Tensor, None, None]:
        padded, weight = ctx.saved_tensors
        (top, left), (b, c, height, width), some, scratch = ctx.rest
        k, n, m = len(weight), padded.shape[1] // 2 - 1, padded.shape[2] // 2 - 1
        error = error.permute(0, 2, 3, 1)
        if error.shape[1:3] != (2 * n, 2 * m):
            whole = error.new_zeros(b, 2 * n, 2 * m, k)
            whole[:, : error.shape[1], : error.shape[2]] = error
            error = whole
        error = error.contiguous().view(b, n, 2, m, 2, k)
        kernels = _transformed_kernels(weight, scratch)
        of_kernels = scratch.take("gradient of kernels", weight, 16, k, c).zero_()
        of_padded = torch.empty_like(padded)
        for own, own_error, into in zip(
            padded.split(some), error.split(some), of_padded.split(some), strict=True
        ):
            tiles = _transformed_inputs(own, scratch)
            of_products = _transformed_errors(own_error, scratch)
            of_kernels.baddbmm_(of_products.mT, tiles)
            _write_gradient_of_inputs(torch.bmm(of_products, kernels, out=tiles), into, scratch)
        of_x = of_padded[:, top : top + height, left : left + width].permute(0, 3, 1, 2)
        return of_x, _gradient_of_kernels(of_kernels, weight), None, None


def _transformed_kernels(weight: Tensor, scratch: Scratch) -> Tensor:
    """[16, k, c]."""
    k, c = weight.shape[:2]
    into = scratch.take("kernels", weight, 16, k * c)
    matrix = _G_FOR_BOTH_AXES.to(weight.dtype)
    return torch.mm(matrix, weight.reshape(-1, 9).T, out=into).view(16, k, c)


def _gradient_of_kernels(transformed: Tensor, weight: Tensor) -> Tensor:
    matrix = _G_FOR_BOTH_AXES.to(weight.dtype)
    return (matrix.T @ transformed.flatten(1)).T.view(weight.shape)


def _transformed_inputs(padded: Tensor, scratch: Scratch) -> Tensor:
    """padded: [b, 2 n + 2, 2 m + 2, c]. Returns [16, b * n * m, c]."""
    b, height, width, c = padded.shape
    n, m = height // 2 - 1, width // 2 - 1
    rows = scratch.take("rows", padded, 4, b, n, width, c)
    _inputs_forward([padded[:, i : i + 2 * n : 2] for i in range(4)], rows)
    tiles = scratch.take("tiles", padded, 4, 4, b, n, m, c)
    _inputs_forward([rows[:, :, :, j : j + 2 * m : 2] for j in range(4)], tiles.transpose(0, 1))
    return tiles.view(16, -1, c)


def _write_gradient_of_inputs(tiles: Tensor, into: Tensor, scratch: Scratch) -> None:
    """The reverse of `_transformed_inputs`; into: [b, 2 n + 2, 2 m + 2, c]."""
    b, height, width, c = into.shape
    n, m = height // 2 - 1, width // 2 - 1
    rows = scratch.take("rows", into, 4, b, n, width, c)
    _inputs_backward(tiles.view(4, 4, b, n, m, c).transpose(0, 1), rows, 3)
    _inputs_backward(rows, into, 1)


def _write_outputs(products: Tensor, into: Tensor, scratch: Scratch) -> None:
    """products: [16, b * n * m, k]; into: [b, n, 2, m, 2, k]."""
    b, n, _, m, _, k = into.shape
    rows = scratch.take("rows of outputs", into, 2, 4, b, n, m, k)
    _outputs_forward(products.view(4, 4, b, n, m, k), rows)
    _outputs_forward(rows.transpose(0, 1), into.permute(4, 2, 0, 1, 3, 5))


def _transformed_errors(error: Tensor, scratch: Scratch) -> Tensor:
    """The reverse of `_write_outputs`; error: [b, n, 2, m, 2, k]. Returns [16, b * n * m, k]."""
    b, n, _, m, _, k = error.shape
    rows = scratch.take("rows of outputs", error, 2, 4, b, n, m, k)
    _outputs_backward(error.permute(4, 2, 0, 1, 3, 5), rows.transpose(0, 1))
    products = scratch.take("products", error, 4, 4, b, n, m, k)
    _outputs_backward(rows, products)
    return products.view(16, -1, k)


def _inputs_forward(d: Sequence[Tensor], into: Tensor) -> None:
    """B' d along one axis."""
    torch.sub(d[0], d[2], out=into[0])
    torch.add(d[1], d[2], out=into[1])
    torch.sub(d[2], d[1], out=into[2])
    torch.sub(d[1], d[3], out=into[3])


def _inputs_backward(v: Tensor, into: Tensor, axis: int) -> None:
    """B v along one axis, in which a tile's last two inputs are the next one's first two."""
    count = into.shape[axis] // 2 - 1
    even, odd = into.unflatten(axis, (-1, 2)).unbind(axis + 1)
    first, last = even.narrow(axis, 0, count), even.narrow(axis, 1, count)
    even.narrow(axis, count, 1).zero_()
    first.copy_(v[0])
    last.add_(v[1]).add_(v[2]).sub_(v[0])
    first, last = odd.narrow(axis, 0, count), odd.narrow(axis, 1, count)
    odd.narrow(axis, count, 1).zero_()
    torch.sub(v[1], v[2], out=first).add_(v[3])
    last.sub_(v[3])


def _outputs_forward(m: Tensor, into: Tensor) -> None:
    """A' m along one axis."""
    torch.add(m[1], m[2], out=into[0]).add_(m[0])
    torch.sub(m[1], m[2], out=into[1]).sub_(m[3])


def _outputs_backward(y: Tensor, into: Tensor) -> None:
    """A y along one axis."""
    into[0].copy_(y[0])
    torch.add(y[0], y[1], out=into[1])
    torch.sub(y[0], y[1], out=into[2])
    torch.neg(y[1], out=into[3])
