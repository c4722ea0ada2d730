"""Counts of the floating-point operations of torch's code."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_aten = torch.ops.aten


def _convolution_backward(
    gradient: Tensor, of: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, padding_out: Any, groups: int, wanted: Sequence[bool], **options: Any,
) -> int:  # fmt: skip
    """Return the number of operations: each gradient costs a forward pass. torch's formula ignores groups."""
    outputs = of if transposed else gradient
    return 2 * sum(wanted[:2]) * (outputs.numel() // outputs.shape[1]) * weight.numel()


def _trilinear(
    first: Tensor, second: Tensor, third: Tensor, *dims: Sequence[int], out_val: Tensor, **options: Any
) -> int:
    """Return the operations of two products: first times second, and the summed result times third.

    dims: missing dimensions of each factor, and summed dimensions.
    """
    *missing, summed = dims[:4]
    shapes = []
    for factor, lacks in zip((first, second, third), missing, strict=True):
        shape = list(factor.shape)
        for dim in sorted(lacks):
            shape.insert(dim, 1)
        shapes.append(shape)
    pair = torch.broadcast_shapes(*shapes[:2])
    left = [1 if dim in summed and dim in missing[2] else size for dim, size in enumerate(pair)]
    return 2 * (math.prod(pair) + math.prod(torch.broadcast_shapes(left, shapes[2])))


def _fourier(of: Tensor, dims: Sequence[int], *others: Any, out_val: Tensor, **options: Any) -> int:
    size = max(of.numel(), out_val.numel())
    length = math.prod(max(of.shape[dim], out_val.shape[dim]) for dim in dims)
    return round(5 * size * math.log2(max(length, 2)))


_FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    _aten.convolution_backward: _convolution_backward,
    _aten.mv: lambda matrix, *_, **__: 2 * matrix.numel(),
    _aten.addmv: lambda of, matrix, *_, **__: 2 * matrix.numel(),
    _aten.dot: lambda vector, *_, **__: 2 * vector.numel(),
    _aten.vdot: lambda vector, *_, **__: 2 * vector.numel(),
    _aten.addbmm: lambda of, left, right, **_: 2 * left.numel() * right.shape[-1],
    _aten._trilinear: _trilinear,
    _aten._cdist_forward: lambda left, right, *_, **__: 2 * left.numel() * right.shape[-2],
    _aten._cdist_backward: lambda of, left, right, *_, **__: 2 * left.numel() * right.shape[-2],
    _aten._fft_r2c: _fourier,
    _aten._fft_c2c: _fourier,
    _aten._fft_c2r: _fourier,
}
"""(arguments, out_val=result) -> operations. A multiplication and an addition are 2; a Fourier transform of n
numbers is 5 n log2(n)."""

_PRODUCTS = re.compile(
    r"mm(_|$)|matmul|(^|_)linear(_|$)|conv|attention|encoder_layer|rnn|lstm|gru|linalg|(^|_)lu_|cholesky"
    r"|solve|(^|_)(geqrf|ormqr|svd|eig)|pdist"
)
"""Names of torch's operations that multiply and add numbers. All other operations count 0, as in torch."""


class FlopCounter(TorchDispatchMode):
    """Mode that counts the operations of matrix products, convolutions and attention in `total`.

    It uses the same formulas as `torch.utils.flop_counter.FlopCounterMode`, but does not load torch's
    compiler. As there, elementwise operations count 0. `uncounted` are the names of operations without a
    formula: they count 1 for each input or output number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.uncounted: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not load its compiler to skip this class."""
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        formula = _FORMULAS.get(func.overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **named)
            if parts is not NotImplemented:
                return parts
        output = func(*args, **named)
        if formula is not None:
            self.total += formula(*args, **named, out_val=output)
        elif func.namespace not in ("aten", "prim") or _PRODUCTS.search(func.overloadpacket.__name__):
            self.uncounted.add(func.overloadpacket._qualified_op_name)
            leaves = tree_leaves([args, named, output])
            self.total += sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))
        return output


@contextmanager
def flops_counted() -> Iterator[FlopCounter]:
    """Count the operations within the context, with attention and recurrent layers as single products."""
    mha, mkldnn = torch.backends.mha, torch.backends.mkldnn
    before = mha.get_fastpath_enabled(), mkldnn.enabled
    mha.set_fastpath_enabled(False)
    mkldnn.enabled = False  # type: ignore[assignment]
    try:
        with sdpa_kernel(SDPBackend.MATH), FlopCounter() as counter:
            yield counter
    finally:
        mha.set_fastpath_enabled(before[0])
        mkldnn.enabled = before[1]
