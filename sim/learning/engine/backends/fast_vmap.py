"""Run of one client's function for all clients at once: `torch.func.vmap` with less overhead.

For a function of a few operations, the handling of nested arguments in `torch.func.vmap` takes longer than
the function. Here arguments are tensors, and the result is one tensor or a tuple of tensors.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeVar

from torch import Tensor
from torch._C import _functorch as functorch

Result = TypeVar("Result")

# By default, torch asks users to report each operation that it runs for one client at a time.
functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]


def call_under_vmap(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """Return the results of `function` for each row of inputs [N, ...], as `torch.func.vmap` does.

    Call `torch.func.vmap` with the function once before: it loads required modules, and explains the error if
    a function does not return tensors.
    """
    count = inputs[0].shape[0]  # `len` of a tensor costs as much as a small operation
    level = functorch._vmap_increment_nesting(count, "error")
    try:
        found = function(*[functorch._add_batch_dim(values, 0, level) for values in inputs])
        if isinstance(found, Tensor):
            return functorch._remove_batch_dim(found, level, count, 0)
        return tuple([functorch._remove_batch_dim(values, level, count, 0) for values in found])
    finally:
        functorch._vmap_decrement_nesting()


def in_new_thread(function: Callable[[], Result]) -> Result:
    """Return the result of `function` in a new thread, so that its imports keep no frame of the caller."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


@cache
def prepare_gradients() -> None:
    """Import the modules of torch's first `grad` under `vmap`; takes a second, once per process.

    Some of these modules would keep the frames of the active call, and all values in them, until the next
    garbage collection. Free rows, and therefore the order of later sums, would then depend on earlier work of
    the process.
    """
    in_new_thread(partial(import_module, "torch._dynamo"))
