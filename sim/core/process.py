"""Process-wide settings of a simulation: garbage collection and threads of torch."""

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def simulating(threads: int | str = 1) -> Iterator[None]:
    """Set up the process for a simulation. A run is exact only inside this context."""
    with without_garbage_collection(), torch_threads(threads):
        yield


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable automatic garbage collection. A run collects garbage at evaluations.

    The time of a collection determines which pending jobs are still needed, and so the content of batches.
    It must not depend on the number of objects that other code allocates.
    """
    global _quiet
    if _quiet:  # several runs of this process overlap
        yield
        return
    enabled, _quiet = gc.isenabled(), True
    gc.disable()
    _finished.make_room()
    gc.freeze()
    try:
        yield
    finally:
        _quiet = False
        gc.unfreeze()
        if enabled:
            gc.enable()


_quiet = False


class _MemoryOfFinishedRuns:
    """Memory that earlier runs of this process may still hold in reference cycles, until a full collection.

    A full collection takes as long as a short run, since it visits all objects of all imported modules.
    """

    def __init__(self) -> None:
        self._bytes = math.inf
        """Upper bound of the memory; infinite before the first collection."""

    def add(self, bytes_held: float) -> None:
        """Record the end of a run that held this many bytes."""
        self._bytes += bytes_held + _RUN_BYTES

    def make_room(self) -> None:
        """Collect all garbage of the process if finished runs may hold much of it."""
        if self._bytes > _FINISHED_BYTES_MAX:
            gc.collect()
            self._bytes = 0.0


_RUN_BYTES = 8 * 2**20  # of the objects of a small run, about; also limits how many runs stay
_FINISHED_BYTES_MAX = 128 * 2**20
_finished = _MemoryOfFinishedRuns()
run_finished = _finished.add


def exclude_from_collection() -> None:
    """Exclude all existing objects from later collections, which keeps these short."""
    gc.collect()
    gc.freeze()


@contextmanager
def torch_threads(stated: int | str) -> Iterator[None]:
    """Set the number of threads of torch inside this context; "fastest" stands for 1 until it is measured.

    One thread per core would make the last bits of sums depend on the machine. Threads also wait for each
    other at every call; on a busy machine, a small call then takes a hundred times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(stated if isinstance(stated, int) else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
