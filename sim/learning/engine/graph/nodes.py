"""The graph of pending computations: those whose results nobody has needed yet."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.learning.engine.vector_pool import VectorPool


LEVELS_PER_PHASE = 1 << 16
"""The levels of jobs are multiples of this: it exceeds any chain of arithmetic between two jobs."""


class GraphNode:
    """A computation that nobody has needed yet.

    Only its output slots hold a reference to it, and it holds weak ones to them. So when the last handle on
    its outputs goes, it goes as well: work that nobody can read is never done.
    """

    __slots__ = ("__weakref__", "group", "inputs", "level", "outputs", "payload")

    def __init__(self, group: Any, inputs: tuple[Slot, ...], payload: Any) -> None:
        self.group = group
        self.inputs = inputs
        self.payload = payload
        # One more than the deepest pending input's level: nodes of a level do not need each other. A job's is
        # rounded up to the next phase: so jobs share a call, whatever arithmetic comes before each.
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
    """One row of a pool, or (while `node` is set) the promise of one.

    serial: how many slots the pool had before this one. A replay makes the same slots, with the same serials.
    """

    __slots__ = ("__weakref__", "node", "pool", "row", "serial")

    def __init__(self, pool: VectorPool, row: int = -1, node: GraphNode | None = None) -> None:
        self.pool = pool
        self.row = row
        self.node = node
        self.serial = serial = pool.next_serial()
        if row >= 0:
            pool.owners[row] = serial

    def fulfil(self, row: int) -> None:
        """The node has been computed: from now on the slot is this row."""
        self.row = row
        self.node = None
        self.pool.owners[row] = self.serial

    def __del__(self) -> None:
        if self.row >= 0:
            give_back = self.pool.give_back  # a line of its own: a call by the dot looks in the class first
            give_back(self.row)


class Coefficient:
    """A factor that is a scalar which may be pending: `number` times that of the slot `scalar`."""

    __slots__ = ("number", "scalar")

    def __init__(self, number: float, scalar: Slot) -> None:
        self.number = number
        self.scalar = scalar


Factor = float | Coefficient
Terms = Mapping[Slot, Factor]
