"""Graph of pending computations, whose results have not been needed yet."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sim.learning.engine.vector_pool import VectorPool


LEVELS_PER_PHASE = 1 << 16
"""Unit of the levels of jobs: it exceeds any chain of arithmetic between two jobs."""


class GraphNode:
    """Computation whose result has not been needed yet.

    Only the output slots hold a reference to the node, and the node holds weak references to the slots. When
    the last handle on an output is dropped, the node is dropped, too: unreadable results are never computed.
    """

    __slots__ = ("__weakref__", "group", "inputs", "level", "outputs", "payload")

    def __init__(self, group: Any, inputs: tuple[Slot, ...], payload: Any) -> None:
        self.group = group
        self.inputs = inputs
        self.payload = payload
        # One more than the level of the deepest pending input: nodes of a level do not depend on each other.
        # The level of a job is rounded up to the next phase, so that jobs share a call after any arithmetic.
        level: int = 0
        for slot in inputs:
            node = slot.node
            if node is not None and node.level >= level:
                level = node.level + 1
        if level and group.is_job:
            level += -level % LEVELS_PER_PHASE
        self.level: int = level
        self.outputs: list[weakref.ref[Slot]] = []


class Slot:
    """Row of a pool, or (while `node` is set) the promise of a row.

    serial: number of slots that the pool had before this one. A replay creates the same slots with equal
    serials. read: the values, if they were read before and are few.
    """

    __slots__ = ("__weakref__", "node", "pool", "read", "row", "serial")

    def __init__(self, pool: VectorPool, row: int = -1, node: GraphNode | None = None) -> None:
        self.pool = pool
        self.row = row
        self.node = node
        self.read: np.ndarray | None = None
        self.serial = serial = pool.next_serial()
        if row >= 0:
            pool.owners[row] = serial

    def fulfil(self, row: int) -> None:
        """Assign the row of the computed node to the slot."""
        self.row = row
        self.node = None
        self.pool.owners[row] = self.serial

    def __del__(self) -> None:
        if self.row >= 0:
            give_back = self.pool.give_back  # a separate line is faster than an attribute call
            give_back(self.row)


class Coefficient:
    """Factor that is a scalar and may be pending: `number` times the value of the slot `scalar`."""

    __slots__ = ("number", "scalar")

    def __init__(self, number: float, scalar: Slot) -> None:
        self.number = number
        self.scalar = scalar


Factor = float | Coefficient
Terms = Mapping[Slot, Factor]
