"""What a run changes in its process, and puts back at its end."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sim.learning.engine.backends.autotune import usable_cores

SAFE_PATH = "PYTHONSAFEPATH"


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


_sharing = 1  # how many runs use the cores of this machine


def cores() -> int:
    """Cores that a run in this process may use."""
    return max(1, usable_cores() // _sharing)


@contextmanager
def shared_cores(runs: int) -> Iterator[None]:
    """So many runs use the cores of this machine meanwhile."""
    global _sharing
    before, _sharing = _sharing, runs
    try:
        yield
    finally:
        _sharing = before


@contextmanager
def threads(stated: int | str) -> Iterator[None]:
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


@contextmanager
def without_main_module() -> Iterator[None]:
    """Processes that are started meanwhile do not import the user's script, which would begin all again."""
    main = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {name: main.pop(name) for name in ("__file__", "__spec__") if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(hidden)


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes that are started meanwhile import nothing from the current folder, be it a stranger's.

    Python looks there first with -c, as which multiprocessing starts its own, and with -m. The variable is
    what -P says, and is inherited.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
