"""Precision of products: float32, or a faster precision that changes the results."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

PRECISIONS = ("float32", "tf32", "bfloat16")
"""Precisions of the factors of matrix products and convolutions: 24, 11 or 8 significant bits."""

_AS_IT_IS = nullcontext()


def autocast_context(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which products on `device` are in bfloat16 if `precision` is "bfloat16".

    On the meta device, where only memory counts, products stay float32, which takes more memory.
    """
    if precision != "bfloat16" or device.type == "meta":
        return _AS_IT_IS
    # Without the cache, which would keep a copy of each client's parameters until the end of a loop.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


def no_autocast_context(product: Tensor) -> AbstractContextManager[object]:
    """Return a context without autocast, if `product` was computed under autocast."""
    if product.dtype == torch.float32:
        return _AS_IT_IS
    return torch.autocast(product.device.type, enabled=False)


@contextmanager
def allowing_tf32(precision: str) -> Iterator[None]:
    """Inside the context, allow or forbid TF32 for float32 products on CUDA, in the whole process.

    torch allows TF32 for convolutions by default, and then float32 would not mean float32.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
