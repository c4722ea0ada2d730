"""The process in which a simulation runs: its garbage collector, and the threads of torch."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def simulating(threads: int | str = 1) -> Iterator[None]:
    """Set up the process for a simulation that is built and run inside; a run is exact only in here."""
    with quiet_collector(), torch_threads(threads):
        yield


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Collect cyclic garbage at evaluations only.

    When it is found decides which pending work is still wanted, hence what a batch consists of, hence the
    last bits of its results; so it must not depend on how many objects other code happens to allocate.
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
    """Have collections of this run look no more at what exists now, and lasts as long: they stay short."""
    gc.collect()
    gc.freeze()


@contextmanager
def torch_threads(stated: int | str) -> Iterator[None]:
    """Compute with so many threads, one until they are measured, and afterwards with as many as before.

    As many as there are cores would make the last bits of all sums hang on the machine. They also wait for
    each other at every call, however small: beside other work a hundred times as long as one thread takes.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(stated if isinstance(stated, int) else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
