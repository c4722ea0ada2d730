"""Process-wide settings of a simulation: garbage collection and threads of torch."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def simulating(threads: int | str = 1) -> Iterator[None]:
    """Set up the process for a simulation. A run is exact only inside this context."""
    with quiet_collector(), torch_threads(threads):
        yield


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Disable automatic garbage collection. A run collects garbage at evaluations.

    The time of a collection determines which pending jobs are still needed, and so the content of batches.
    It must not depend on the number of objects that other code allocates.
    """
    enabled = gc.isenabled()
    gc.disable()
    spare()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def spare() -> None:
    """Exclude all existing objects from later collections, which keeps these short."""
    gc.collect()
    gc.freeze()


@contextmanager
def torch_threads(stated: int | str) -> Iterator[None]:
    """Set the number of threads of torch inside this context; "auto" stands for 1 until it is measured.

    One thread per core would make the last bits of sums depend on the machine. Threads also wait for each
    other at every call; on a busy machine, a small call then takes a hundred times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(stated if isinstance(stated, int) else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
