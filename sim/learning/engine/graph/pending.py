"""Pending nodes of an engine, in an order in which they can be computed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from weakref import ref

from sim.learning.engine.graph.nodes import GraphNode

Reference = ref[GraphNode]


class PendingNodes:
    """Nodes that were submitted and not computed. It holds no strong reference to them: see `GraphNode`.

    bytes: stated memory of all of them, including nodes that are no longer held.
    """

    __slots__ = ("_bytes_each", "_open", "_waiting", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._bytes_each: dict[int, int] = {}  # bytes of a node, by operation
        self._open: dict[int, list[Reference]] = {}  # nodes that may be ready, by operation
        # Waiting nodes, by the identity of the node that they wait for, until it is computed. If the identity
        # belongs to another node later, the waiting nodes of the first one are no longer held.
        self._waiting: defaultdict[int, list[Reference]] = defaultdict(list)

    def add(self, node: GraphNode, promised_bytes: int) -> None:
        """Add a node, with the memory of the node and its outputs, equal for all nodes of its operation."""
        operation = id(node.group)
        alike = self._open.get(operation)
        if alike is None:
            alike = self._open[operation] = []
            self._bytes_each[operation] = promised_bytes
        alike.append(ref(node))
        self.bytes += promised_bytes

    def take_all(self) -> Iterator[list[list[GraphNode]]]:
        """Yield all held nodes, in levels of groups; each level depends only on earlier levels."""
        lists, waiting = list(self._open.values()), self._waiting
        self._open, self._waiting, self.bytes = {}, defaultdict(list), 0
        levels: defaultdict[int, dict[int, list[Reference]]] = defaultdict(dict)
        for references in lists:  # in an order independent of identities, which are addresses
            for reference in references:
                node = reference()
                if node is not None:
                    levels[node.level].setdefault(id(node.group), []).append(reference)
                    if id(node) in waiting:
                        lists.append(waiting.pop(id(node)))
        node = None
        for level in sorted(levels):
            yield [
                [node for reference in alike if (node := reference()) is not None]
                for alike in levels.pop(level).values()
            ]

    def take_needed(self, wanted: Iterable[GraphNode]) -> Iterator[list[list[GraphNode]]]:
        """Yield levels of groups that these nodes depend on, each with all ready nodes of its operations.

        Each level must be computed before the next one is requested.
        """
        levels = _levels_of(wanted)
        for level in sorted(levels):
            groups = list(filter(None, map(self._take_ready, levels[level])))
            identities = [id(node) for nodes in groups for node in nodes]
            yield groups
            groups = []
            self._reopen(identities)

    def _take_ready(self, operation: int) -> list[GraphNode]:
        ready = []
        for reference in self._open.pop(operation, ()):
            node = reference()
            if node is None:
                self.bytes -= self._bytes_each[operation]
                continue
            for slot in node.inputs:
                if slot.node is not None:
                    self._waiting[id(slot.node)].append(reference)
                    break
            else:
                ready.append(node)
        self.bytes -= self._bytes_each[operation] * len(ready)
        return ready

    def _reopen(self, computed: Iterable[int]) -> None:
        """Move the nodes that waited for these computed nodes to the nodes that may be ready."""
        for identity in computed:
            for reference in self._waiting.pop(identity, ()):
                node = reference()
                if node is None:
                    continue
                self._open.setdefault(id(node.group), []).append(reference)


def _levels_of(wanted: Iterable[GraphNode]) -> dict[int, dict[int, None]]:
    """Return the operations, by level, of these nodes and all their inputs."""
    levels: defaultdict[int, dict[int, None]] = defaultdict(dict)
    seen, unseen = set[int](), list(wanted)
    while unseen:
        node = unseen.pop()
        if id(node) not in seen:
            seen.add(id(node))
            levels[node.level][id(node.group)] = None
            unseen += [slot.node for slot in node.inputs if slot.node is not None]
    return levels
