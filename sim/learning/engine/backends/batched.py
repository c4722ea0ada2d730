"""A function of one client's numbers, run for all clients at once: `torch.func.vmap` with less around it.

What `torch.func.vmap` does before and after a function, for arguments nested in any way, takes longer than a
function of a few operations. Here all arguments are tensors, and what comes back is one or a tuple of some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._C import _functorch as functorch


def vmapped(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """What `function` makes of each row of the inputs [N, ...]: as `torch.func.vmap(function)(*inputs)`.

    Of a function that `torch.func.vmap` has run before, which loads what some operations need, and says what
    is wrong with one that does not return tensors.
    """
    count = inputs[0].shape[0]  # `len` of a tensor takes as long as a small operation
    level = functorch._vmap_increment_nesting(count, "error")
    try:
        found = function(*[functorch._add_batch_dim(values, 0, level) for values in inputs])
        if isinstance(found, Tensor):
            return functorch._remove_batch_dim(found, level, count, 0)
        return tuple([functorch._remove_batch_dim(values, level, count, 0) for values in found])
    finally:
        functorch._vmap_decrement_nesting()
