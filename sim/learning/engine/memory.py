"""Running out of memory: how it shows, and what the user is told when nothing is left to try."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sim.errors import UserError

_CPU_ALLOCATOR_SAYS = ("can't allocate memory", "not enough memory")


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
        "training.batch_size, fewer clients (clients.count) or a smaller engine.pending_limit"
    )
