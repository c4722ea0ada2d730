"""The pending nodes of an engine, in the order in which they can be computed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from weakref import ref

from sim.learning.engine.graph.nodes import GraphNode

Reference = ref[GraphNode]


class PendingNodes:
    """Nodes that were submitted and not computed. It holds none of them: see `GraphNode`.

    bytes: what all of them are said to take, those included that nobody holds any more.
    """

    __slots__ = ("_bytes_each", "_open", "_waiting", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._bytes_each: dict[int, int] = {}  # by operation
        self._open: dict[int, list[Reference]] = {}  # by operation, those that may be ready
        # By the node that others were found to wait for; they are looked at again once it has been computed.
        # An identity may be another node's by now. Then nobody holds those that waited for the first one.
        self._waiting: defaultdict[int, list[Reference]] = defaultdict(list)

    def add(self, node: GraphNode, promised_bytes: int) -> None:
        """Add a node, and the memory that it and its outputs take, as much as others of its operation."""
        alike = self._open.get(id(node.group))
        if alike is None:
            alike = self._open[id(node.group)] = []
            self._bytes_each[id(node.group)] = promised_bytes
        alike.append(ref(node))
        self.bytes += promised_bytes

    def take_all(self) -> Iterator[list[GraphNode]]:
        """All nodes that somebody holds, in groups of which each needs only those before it."""
        lists = [*self._open.values(), *self._waiting.values()]
        self._open, self._waiting, self.bytes = {}, defaultdict(list), 0
        levels: dict[tuple[int, int], list[Reference]] = {}
        for reference in (each for references in lists for each in references):
            node = reference()
            if node is not None:
                levels.setdefault((node.level, id(node.group)), []).append(reference)
        node = None
        for key in sorted(levels, key=_level):
            yield [node for reference in levels.pop(key) if (node := reference()) is not None]

    def take_needed(self, wanted: Iterable[GraphNode]) -> Iterator[list[GraphNode]]:
        """Groups with all that these nodes need and themselves, each with all of its operation that is ready.

        Each group must have been computed before the next one is asked for.
        """
        keys, seen, unseen = dict[tuple[int, int], None](), set[int](), list(wanted)
        while unseen:
            node = unseen.pop()
            if id(node) not in seen:
                seen.add(id(node))
                keys[node.level, id(node.group)] = None
                unseen += [slot.node for slot in node.inputs if slot.node is not None]
        for _, operation in sorted(keys, key=_level):
            nodes = self._take_ready(operation)
            if not nodes:
                continue
            identities = [id(node) for node in nodes]
            yield nodes
            nodes = []
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
        """Those that waited for these may be ready now."""
        for identity in computed:
            for reference in self._waiting.pop(identity, ()):
                node = reference()
                if node is None:
                    continue
                self._open.setdefault(id(node.group), []).append(reference)


def _level(key: tuple[int, int]) -> int:
    return key[0]
