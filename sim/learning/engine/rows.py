"""The rows that an engine holds: let go of for a walk through a run, kept, and put back to go on from."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.arena import index_tensor
from sim.learning.engine.engine import Engine
from sim.learning.engine.reads import META, Reads, WalkedReads, WalkError


class Stored(NamedTuple):
    """What an arena holds: which rows are free, in order, and the numbers of the others, [rows, width]."""

    free: Tensor
    rows: Tensor


def collect(engine: Engine) -> None:
    """Collect cyclic garbage; the rows that it held are taken again in ascending order.

    In which order objects of a cycle end depends on what the process has done before.
    """
    before = {width: len(arena.free) for width, arena in engine.arenas.items()}
    gc.collect()
    for width, count in before.items():
        engine.arenas[width].order_free(count)


def walk(engine: Engine, reads: WalkedReads) -> None:
    """Have an engine compute nothing from now on: what is read is what the log of an earlier run says."""
    engine.reads = reads
    for arena in engine.arenas.values():
        arena.move_to(META)


def stored(engine: Engine) -> dict[int, Stored]:
    """What somebody holds, by the width of the arena."""
    return {
        width: Stored(torch.from_numpy(arena.free), arena.gather(arena.held).cpu())
        for width, arena in engine.arenas.items()
    }


def compute_from(engine: Engine, there: Mapping[int, Stored], reads: Reads) -> None:
    """After a walk: compute from now on, from these rows. WalkError where the run held other ones."""
    if engine.arenas.keys() != there.keys():
        raise WalkError("other vectors are held than in the run")
    for width, arena in engine.arenas.items():
        if not np.array_equal(arena.free, there[width].free.numpy()):
            raise WalkError(f"other vectors of {width:,} numbers are held than in the run")
    for width, arena in engine.arenas.items():
        arena.move_to(engine.device)
        arena.data[index_tensor(arena.held, engine.device)] = there[width].rows.to(engine.device)
    engine.reads = reads
