"""Rows that an engine holds: saved, dropped for a replay, and restored for further computation."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.engine import Engine
from sim.learning.engine.replay_log import META, ReadLog, ReplayedReadLog, ReplayError
from sim.learning.engine.vector_pool import index_tensor

_YOUNG, _OLD = 0, 2  # generations: objects since the last collection, and all objects
_ALL_EVERY = 8
"""Number of collections per full collection, which takes long; most cycles are short-lived."""


class VectorId(NamedTuple):
    """Identity of a vector: its width, and the serial of its `Slot` among the slots of this width."""

    width: int
    serial: int


class PoolSnapshot(NamedTuple):
    """Content of a pool.

    free: the free rows; the last one is taken next. rows: values of the held rows, in ascending order of
    the rows, [held, width]. owners: for each held row, the serial of the `Slot` that holds it.
    """

    free: Tensor
    rows: Tensor
    owners: Tensor


def collect_garbage(engine: Engine) -> None:
    """Collect cyclic garbage; rows freed by it are reused in ascending order.

    The order in which Python frees the objects of a cycle depends on the history of the process.
    """
    before = {width: pool.free_count for width, pool in engine.pools.items()}
    engine.collections += 1
    # Only the number of the collection decides: Python's counters depend on all other code of the process.
    # Therefore `sim.core.process` disables automatic collections: they would move objects to older
    # generations.
    engine.free_cycles(_YOUNG if engine.collections % _ALL_EVERY else _OLD)
    for width, count in before.items():
        pool = engine.pools[width]
        engine.vectors_in_cycles += pool.free_count - count if width > 1 else 0
        pool.order_free(count)


def start_replay(engine: Engine, read_log: ReplayedReadLog) -> None:
    """Stop computing: every read returns the value in the log of an earlier run."""
    engine.read_log = read_log
    for pool in engine.pools.values():
        pool.move_to(META)


def pool_snapshots(engine: Engine) -> dict[int, PoolSnapshot]:
    """Return the content of all pools, by width: the held rows."""
    return {
        width: PoolSnapshot(torch.from_numpy(pool.free), pool.held_values, torch.from_numpy(pool.held_owners))
        for width, pool in engine.pools.items()
    }


def require_same_owners(
    engine: Engine, rows: Mapping[int, PoolSnapshot], name: Callable[[VectorId], str]
) -> None:
    """Raise ReplayError unless each row is held by the same vector as in the run.

    name: describes a vector in the message.
    """
    if engine.pools.keys() != rows.keys():
        widths = f"vectors of {sorted(engine.pools)} numbers, but the run held vectors of {sorted(rows)}"
        raise ReplayError(f"the replay holds {widths}")
    for width, pool in engine.pools.items():
        there = rows[width]
        owners = dict(zip(pool.held.tolist(), pool.held_owners.tolist(), strict=True))
        free = set(there.free.tolist())
        held = [row for row in range(len(free) + len(there.owners)) if row not in free]
        expected = dict(zip(held, there.owners.tolist(), strict=True))
        for row in sorted(owners.keys() | expected.keys()):
            ours, theirs = owners.get(row), expected.get(row)
            if ours != theirs:
                found, wanted = [
                    "nothing" if serial is None else name(VectorId(width, serial))
                    for serial in (ours, theirs)
                ]
                where = f"row {row} of the vectors of {width:,} numbers"
                raise ReplayError(f"{where} holds {found}; in the run it held {wanted}")
        if not np.array_equal(pool.free, there.free.numpy()):
            raise ReplayError(f"free rows of the vectors of {width:,} numbers are in a different order")


def end_replay(engine: Engine, rows: Mapping[int, PoolSnapshot], read_log: ReadLog) -> None:
    """Start computing from these rows, after a replay that holds the same rows as the run."""
    for width, pool in engine.pools.items():
        pool.move_to(engine.device)
        pool.data[index_tensor(pool.held, engine.device)] = rows[width].rows.to(engine.device)
    engine.read_log = read_log
