"""Memory: the size of a computation, and the error when all smaller calls fail."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet, finalize

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from sim.errors import UserError

_CPU_ALLOCATOR_SAYS = ("can't allocate memory", "not enough memory")


class _PeakMemoryMode(TorchDispatchMode):
    """Mode that sums the memory of live tensors created within it; `most` is the peak in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self._now = 0
        self._there = WeakSet[UntypedStorage]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not load its compiler to skip this class."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output, given = func(*args, **(kwargs or {})), _storages((args, kwargs))
        for storage in _storages(output) - given:  # a view allocates nothing
            if storage not in self._there:
                self._there.add(storage)
                self._now += storage.nbytes()
                finalize(storage, self._let_go, storage.nbytes())
        self.most = max(self.most, self._now)
        return output

    def _let_go(self, bytes_there: int) -> None:
        self._now -= bytes_there


def _storages(values: Any) -> set[UntypedStorage]:
    return {each.untyped_storage() for each in tree_iter(values) if isinstance(each, Tensor)}


def peak_bytes_of(compute: Callable[[], object]) -> int:
    """Return the peak memory in bytes of the tensors that `compute` creates, on any device.

    If `compute` fails, as code that needs values does on the meta device, memory up to this point counts.
    """
    with _PeakMemoryMode() as made, suppress(Exception):  # the user's code may raise any error
        compute()
    return made.most


def is_out_of_memory(error: Exception) -> bool:
    """Return True if memory was insufficient: on a CUDA device, in torch's CPU allocator or elsewhere."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(words in said for words in _CPU_ALLOCATOR_SAYS)


@contextmanager
def explaining_out_of_memory(what: str, device: torch.device) -> Iterator[None]:
    """Return a context that converts an out-of-memory error to the UserError of `does_not_fit_error`."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise does_not_fit_error(what, device) from error


def does_not_fit_error(what: str, device: torch.device, *, alone: bool = True) -> UserError:
    """Return the error for a computation `what` that does not fit in memory even in the smallest call.

    alone: no other thread computes.
    """
    holds, fewer = "", "" if alone else "engine.workers = 1, "
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_allocated(device)
        holds = (
            f"; {torch.cuda.get_device_name(device)} has {total / 1e9:.1f} GB; the tensors of this run "
            f"take {held / 1e9:.1f} GB and {free / 1e9:.1f} GB are free"
        )
    return UserError(
        f"out of memory on {device}: no room for {what}{holds}; use {fewer}a smaller model, a smaller "
        "training.batch_size, a small engine.micro_batch (for models without batch normalization and dropout "
        "layers), fewer clients (clients.count) or a smaller engine.pending_limit"
    )
