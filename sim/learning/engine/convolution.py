"""Convolutions as the compiler has to leave them.

Those of N clients are one convolution in N groups, and torch's compiler takes a number of groups only if it
is the same in every call. It would call the same function of torch for it in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


@torch.library.custom_op("coterie::convolution", mutates_args=())
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """As torch.ops.aten.convolution."""
    return _aten.convolution(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    ).contiguous()


@torch.library.custom_op("coterie::convolution_backward", mutates_args=())
def convolution_backward(
    error: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Tensor]:
    """As torch.ops.aten.convolution_backward, with an empty tensor for what is not asked for."""
    found = _aten.convolution_backward(
        error,
        x,
        weight,
        bias_sizes,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        output_mask,
    )
    return [error.new_empty(0) if own is None else own.contiguous() for own in found]


@convolution.register_fake
def _(x: Tensor, *others: Any) -> Tensor:
    return _aten.convolution(x, *others).contiguous()


@convolution_backward.register_fake
def _(error: Tensor, *others: Any) -> list[Tensor]:
    found = _aten.convolution_backward(error, *others)
    return [error.new_empty(0) if own is None else own.contiguous() for own in found]


OPAQUE: Mapping[Any, Any] = {
    _aten.convolution.default: torch.ops.coterie.convolution.default,
    _aten.convolution_backward.default: torch.ops.coterie.convolution_backward.default,
}
"""What stands in a graph for convolutions."""
