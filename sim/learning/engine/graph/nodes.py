"""The pending graph: computations that nobody has needed yet, and what they will put into rows of pools."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.learning.engine.vector_pool import VectorPool


LEVELS_PER_PHASE = 1 << 16
"""More than arithmetic between two jobs can be deep."""


class GraphNode:
    """A computation that nobody has needed yet.

    It is held by its output slots only and knows them weakly: when the last handle goes, the node goes, and
    work that nobody can read is never done.
    """

    __slots__ = ("__weakref__", "group", "inputs", "level", "outputs", "payload")

    def __init__(self, group: Any, inputs: tuple[Slot, ...], payload: Any) -> None:
        self.group = group
        self.inputs = inputs
        self.payload = payload
        # Behind the deepest input that is still pending: nodes of a level do not depend on each other. A job
        # begins a phase, so that jobs meet in one call whatever arithmetic lies before each of them.
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
    """One row of a pool, or (while `node` is set) the promise of one."""

    __slots__ = ("__weakref__", "node", "pool", "row")

    def __init__(self, pool: VectorPool, row: int = -1, node: GraphNode | None = None) -> None:
        self.pool = pool
        self.row = row
        self.node = node

    def fulfil(self, row: int) -> None:
        """The node has been computed: from now on the slot is this row."""
        self.row = row
        self.node = None

    def __del__(self) -> None:
        if self.row >= 0:
            give_back = self.pool.give_back  # a line of its own: a call by the dot looks in the class first
            give_back(self.row)


class Coefficient:
    """A factor whose value is itself a pending scalar: `number` times the scalar slot `scalar`."""

    __slots__ = ("number", "scalar")

    def __init__(self, number: float, scalar: Slot) -> None:
        self.number = number
        self.scalar = scalar


Factor = float | Coefficient
Terms = Mapping[Slot, Factor]
