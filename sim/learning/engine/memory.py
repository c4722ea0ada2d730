"""Memory: how much a computation takes, and what the user is told when nothing is left to try."""

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


class _Made(TorchDispatchMode):
    """Adds up the memory of what is made while it is entered and is there; `most` at a time, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self._now = 0
        self._there = WeakSet[UntypedStorage]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch is to tell its compiler, which it loads for that, to leave this class alone."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output, given = func(*args, **(kwargs or {})), _storages((args, kwargs))
        for storage in _storages(output) - given:  # a view is not made
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


def bytes_made(compute: Callable[[], object]) -> int:
    """The most memory that is taken at a time by what `compute` makes, of tensors on any device.

    On the meta device nothing is computed; of what cannot go on without numbers, all until then counts.
    """
    with _Made() as made, suppress(Exception):  # the user's code raises any kind
        compute()
    return made.most


def is_out_of_memory(error: Exception) -> bool:
    """Whether it was memory that was missing: on a CUDA device, for torch's CPU allocator, or for pages."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(words in said for words in _CPU_ALLOCATOR_SAYS)


@contextmanager
def explained(what: str, device: torch.device) -> Iterator[None]:
    """Running out of memory in here becomes the UserError that `does_not_fit` makes."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise does_not_fit(what, device) from error


def does_not_fit(what: str, device: torch.device, *, alone: bool = True) -> UserError:
    """The error to raise when `what` does not fit, however it is cut up. alone: no other thread computes."""
    holds, fewer = "", "" if alone else "engine.workers = 1, "
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_allocated(device)
        holds = (
            f"; {torch.cuda.get_device_name(device)} has {total / 1e9:.1f} GB, of which this run's tensors "
            f"take {held / 1e9:.1f} GB and {free / 1e9:.1f} GB are free"
        )
    return UserError(
        f"out of memory on {device}: no room for {what}{holds}; use {fewer}a smaller model, a smaller "
        "training.batch_size, a small engine.micro_batch (for models without batch norms and dropouts), "
        "fewer clients (clients.count) or a smaller engine.pending_limit"
    )
