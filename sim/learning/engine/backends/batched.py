"""A function of one client's numbers, run for all clients at once: `torch.func.vmap` with less around it.

What `torch.func.vmap` does around a function, for arguments nested in any way, takes longer than a function
of a few operations. Here arguments are tensors, and what comes back is one or a tuple of some.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeVar

from torch import Tensor
from torch._C import _functorch as functorch

Result = TypeVar("Result")

# Torch asks users to report each operation that it runs for one client after the other.
functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]


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


def in_frames_of_its_own(function: Callable[[], Result]) -> Result:
    """What `function` returns or raises, from a thread: what it imports keeps no frame of the caller's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


@cache
def prepare_gradients() -> None:
    """Import what torch imports in its first call of `grad` under `vmap`; takes a second, once in a process.

    Some of these modules would keep the frames of whoever was under way, and all that was held there, until
    the next collection of garbage. Which rows are free then, and hence the order of later sums, would depend
    on what else the process had done before.
    """
    in_frames_of_its_own(partial(import_module, "torch._dynamo"))
