"""The rows that an engine holds: let go of for a walk through a run, kept, and put back to go on from."""

import gc
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.engine import Engine
from sim.learning.engine.replay.replay_log import META, Reads, WalkedReads, WalkError
from sim.learning.engine.vector_pool import index_tensor


class Stored(NamedTuple):
    """What a pool holds: which rows are free, in order, and the numbers of the others, [rows, width]."""

    free: Tensor
    rows: Tensor


def collect(engine: Engine) -> None:
    """Collect cyclic garbage; the rows that it held are taken again in ascending order.

    In which order objects of a cycle end depends on what the process has done before.
    """
    before = {width: len(pool.free) for width, pool in engine.pools.items()}
    gc.collect()
    for width, count in before.items():
        engine.pools[width].order_free(count)


def walk(engine: Engine, reads: WalkedReads) -> None:
    """Have an engine compute nothing from now on: what is read is what the log of an earlier run says."""
    engine.reads = reads
    for pool in engine.pools.values():
        pool.move_to(META)


def stored(engine: Engine) -> dict[int, Stored]:
    """What somebody holds, by the width of the pool."""
    return {
        width: Stored(torch.from_numpy(pool.free), pool.gather(pool.held).cpu())
        for width, pool in engine.pools.items()
    }


def compute_from(engine: Engine, there: Mapping[int, Stored], reads: Reads) -> None:
    """After a walk: compute from now on, from these rows. WalkError where the run held other ones."""
    if engine.pools.keys() != there.keys():
        raise WalkError("other vectors are held than in the run")
    for width, pool in engine.pools.items():
        if not np.array_equal(pool.free, there[width].free.numpy()):
            raise WalkError(f"other vectors of {width:,} numbers are held than in the run")
    for width, pool in engine.pools.items():
        pool.move_to(engine.device)
        pool.data[index_tensor(pool.held, engine.device)] = there[width].rows.to(engine.device)
    engine.reads = reads
