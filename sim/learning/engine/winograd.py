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
from torch.nn.functional import pad

_TILES_AT_ONCE = 256  # in whole images; what becomes of so many lies in the caches (128 to 512 are as good)

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


def gains_from_winograd(x: Tensor, weight: Tensor, bias: Tensor | None, how: Sequence[Any]) -> bool:
    """Whether `winograd` can take a convolution's place, and is faster.

    how: stride, padding, dilation and groups, as torch.nn.Conv2d gives them to torch.conv2d.
    """
    stride, padding, dilation, groups = how
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and x.dim() == 4
        and tuple(weight.shape[1:]) == (x.shape[1], 3, 3)
        and (stride, dilation, groups) == ((1, 1), (1, 1), 1)
        and isinstance(padding, tuple)
        and len(padding) == 2
        and (bias is None or (bias.shape == weight.shape[:1] and bias.dtype == x.dtype))
        # Within vmap and grad there are rules for torch's own convolution only.
        and not torch._C._are_functorch_transforms_active()
        and _saves_more_than_it_costs(x, weight, padding)
    )


def _saves_more_than_it_costs(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> bool:
    """By measurements on a CPU (AVX2) with 2 to 64 images of 4x4 to 32x32 and 32 to 512 channels.

    Saved are multiplications, 20 of 36 in each tile that lies in the output as a whole. What the transforms
    cost beside them is, for tiles, less by the number of channels, and for kernels by that of tiles.
    """
    k, c = weight.shape[:2]
    n, m = _tiles(x, padding)
    (rows, columns), tiles = _output_size(x, padding), len(x) * n * m
    if min(rows, columns, tiles) < 1:
        return False
    saved = (36 * rows * columns / (4 * n * m) - 16) / 20
    trains = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    of_tiles, of_kernels = (33, 24) if trains else (65, 40)
    return of_tiles * (1 / c + 1 / k) + of_kernels / tiles < saved


def winograd(x: Tensor, weight: Tensor, padding: tuple[int, int], scratch: Scratch) -> Tensor:
    """As torch.conv2d with a stride of 1: x [B, C, H, W], weight [K, C, 3, 3]; channels last."""
    result: Tensor = _Winograd.apply(x, weight, padding, scratch)
    return result.permute(0, 3, 1, 2)


def _output_size(x: Tensor, padding: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the output; x [B, C, H, W]."""
    return x.shape[2] + 2 * padding[0] - 2, x.shape[3] + 2 * padding[1] - 2


def _tiles(x: Tensor, padding: tuple[int, int]) -> tuple[int, int]:
    """How many tiles of the output lie below and beside each other; x [B, C, H, W]."""
    rows, columns = _output_size(x, padding)
    return ceil(rows / 2), ceil(columns / 2)


class _Winograd(torch.autograd.Function):
    """In the shapes below: b images, n x m tiles each, c channels of the input, k of the output.

    The output is [b, rows, columns, k], and no view, so that what follows may change it in place.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, padding: tuple[int, int], scratch: Scratch) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding, ctx.scratch = padding, scratch
        (b, k), (n, m), (rows, columns) = (len(x), len(weight)), _tiles(x, padding), _output_size(x, padding)
        kernels = _transformed_kernels(weight, scratch)
        output = x.new_empty(b, 2 * n, 2 * m, k)
        some = ceil(_TILES_AT_ONCE / (n * m))
        for own, into in zip(_padded(x, padding).split(some), output.split(some), strict=True):
            tiles = _transformed_inputs(own, scratch)
            products = scratch.take("products", x, 16, tiles.shape[1], k)
            _write_outputs(torch.bmm(tiles, kernels.mT, out=products), into, scratch)
        return output if (rows, columns) == (2 * n, 2 * m) else output[:, :rows, :columns].clone()

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # asked for a gradient that can be differentiated: torch's own can
            how = ((1, 1), ctx.padding, (1, 1), False, (0, 0), 1, (True, True, False))
            found = torch.ops.aten.convolution_backward(error.permute(0, 3, 1, 2), x, weight, None, *how)
            return found[0], found[1], None, None
        padding, scratch = ctx.padding, ctx.scratch
        (c, height, width), (top, left), (n, m) = x.shape[1:], padding, _tiles(x, padding)
        k, padded = len(weight), _padded(x, padding)
        if error.shape[1:3] != (2 * n, 2 * m):
            error = pad(error, (0, 0, 0, 2 * m - error.shape[2], 0, 2 * n - error.shape[1]))
        kernels = _transformed_kernels(weight, scratch)
        of_kernels = scratch.take("gradient of kernels", weight, 16, k, c).zero_()
        of_padded = torch.empty_like(padded)
        some = ceil(_TILES_AT_ONCE / (n * m))
        for own, own_error, into in zip(
            padded.split(some), error.split(some), of_padded.split(some), strict=True
        ):
            tiles = _transformed_inputs(own, scratch)
            of_products = _transformed_errors(own_error, scratch)
            of_kernels.baddbmm_(of_products.mT, tiles)
            _write_gradient_of_inputs(torch.bmm(of_products, kernels, out=tiles), into, scratch)
        of_x = of_padded[:, top : top + height, left : left + width].permute(0, 3, 1, 2)
        return of_x, _gradient_of_kernels(of_kernels, weight), None, None


def _padded(x: Tensor, padding: tuple[int, int]) -> Tensor:
    """What all tiles of the output hang on: [b, 2 n + 2, 2 m + 2, c]."""
    (top, left), (n, m), (b, c, height, width) = padding, _tiles(x, padding), x.shape
    padded = x.new_zeros(b, 2 * n + 2, 2 * m + 2, c)
    padded[:, top : top + height, left : left + width] = x.permute(0, 2, 3, 1)
    return padded


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
    """products: [16, b * n * m, k]; into: [b, 2 n, 2 m, k]."""
    by_tile = _by_tile(into)
    _, _, b, n, m, k = by_tile.shape
    rows = scratch.take("rows of outputs", into, 2, 4, b, n, m, k)
    _outputs_forward(products.view(4, 4, b, n, m, k), rows)
    _outputs_forward(rows.transpose(0, 1), by_tile.transpose(0, 1))


def _transformed_errors(error: Tensor, scratch: Scratch) -> Tensor:
    """The reverse of `_write_outputs`; error: [b, 2 n, 2 m, k]. Returns [16, b * n * m, k]."""
    by_tile = _by_tile(error)
    _, _, b, n, m, k = by_tile.shape
    rows = scratch.take("rows of outputs", error, 2, 4, b, n, m, k)
    _outputs_backward(by_tile.transpose(0, 1), rows.transpose(0, 1))
    products = scratch.take("products", error, 4, 4, b, n, m, k)
    _outputs_backward(rows, products)
    return products.view(16, -1, k)


def _by_tile(output: Tensor) -> Tensor:
    """[b, 2 n, 2 m, k] as [2, 2, b, n, m, k]."""
    return output.unflatten(1, (-1, 2)).unflatten(3, (-1, 2)).permute(2, 4, 0, 1, 3, 5)


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
