"""The rows that an engine holds: saved, dropped for a replay, and put back to compute again."""

import gc
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.engine import Engine
from sim.learning.engine.replay.replay_log import META, ReadLog, ReplayedReadLog, ReplayError
from sim.learning.engine.vector_pool import index_tensor


class Stored(NamedTuple):
    """The content of a pool: which rows are free, in order, and the numbers of the others, [rows, width]."""

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


def start_replay(engine: Engine, read_log: ReplayedReadLog) -> None:
    """Compute nothing from now on: every read returns what the log of an earlier run says."""
    engine.read_log = read_log
    for pool in engine.pools.values():
        pool.move_to(META)


def stored(engine: Engine) -> dict[int, Stored]:
    """The content of all pools, by their width: the rows that somebody holds."""
    return {
        width: Stored(torch.from_numpy(pool.free), pool.gather(pool.held).cpu())
        for width, pool in engine.pools.items()
    }


def compute_from(engine: Engine, rows: Mapping[int, Stored], read_log: ReadLog) -> None:
    """After a replay: compute from now on, from these rows. ReplayError where the run held other ones."""
    if engine.pools.keys() != rows.keys():
        raise ReplayError("other vectors are held than in the run")
    for width, pool in engine.pools.items():
        if not np.array_equal(pool.free, rows[width].free.numpy()):
            raise ReplayError(f"other vectors of {width:,} numbers are held than in the run")
    for width, pool in engine.pools.items():
        pool.move_to(engine.device)
        pool.data[index_tensor(pool.held, engine.device)] = rows[width].rows.to(engine.device)
    engine.read_log = read_log
