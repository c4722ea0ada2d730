"""A function of stacked tensors as one graph that holds for any number of rows.

`torch.func.vmap` takes the number of clients as a plain number in many places, so that torch's own symbolic
tracing ends with a graph for just that number. Here a function is traced for three numbers of rows N. The
graphs differ in numbers like N, N * channels or N + 1 only: a line through the first two traces gives each as
a * N + b, and the third trace has to agree.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from sim.learning.engine.convolution import OPAQUE

_COUNTS = (3, 5, 8)


class DependsOnCount(ValueError):
    """The graphs for several numbers of rows are not the same graph, as far as can be told."""


def graph_for_any_count(function: Callable[..., Any], rows: Sequence[Tensor]) -> GraphModule:
    """The graph of `function` for stacked arguments [N, ...] with N >= 2; rows: an example of each row.

    The function has to treat all rows alike. Nothing is computed. Raises DependsOnCount.
    """

    def traced(*stacked: Tensor) -> Any:  # make_fx counts the `self` of a method as an argument
        return function(*stacked)

    graphs = [
        make_fx(traced, tracing_mode="fake")(*(row.new_empty(count, *row.shape) for row in rows))
        for count in _COUNTS
    ]
    return _Merge(graphs).graph_module


class _Merge:
    """Turns the first of three graphs into one for any count."""

    def __init__(self, graphs: Sequence[GraphModule]) -> None:
        self.graph_module, *_ = graphs
        self._graph = self.graph_module.graph
        nodes = [list(graph.graph.nodes) for graph in graphs]
        self._places = [{node: place for place, node in enumerate(own)} for own in nodes]
        self._top = next(node for node in nodes[0] if node.op != "placeholder")
        self._terms: dict[tuple[int, int], Node] = {}
        with self._graph.inserting_before(self._top):
            self._count = self._graph.call_function(torch.ops.aten.sym_size.int, (nodes[0][0], 0))
        _require(len({len(own) for own in nodes}) == 1, "their lengths differ")
        for same in zip(*nodes, strict=True):
            self._merge_node(same)
        self._graph.lint()
        self.graph_module.recompile()

    def _merge_node(self, same: tuple[Node, ...]) -> None:
        node = same[0]
        _require(len({(own.op, own.target) for own in same}) == 1, f"{[own.target for own in same]}")
        if node.op == "get_attr":
            raise DependsOnCount(f"the graph holds a constant tensor, {node.target}")
        node.args = self._merged([own.args for own in same])
        node.kwargs = self._merged([own.kwargs for own in same])
        node.target = OPAQUE.get(node.target, node.target)

    def _merged(self, same: Sequence[Any]) -> Any:
        """One argument, of the same node in the three graphs."""
        first = same[0]
        if isinstance(first, Node):
            places = {places[own] for places, own in zip(self._places, same, strict=True)}
            _require(len(places) == 1, f"{same}")
            return first
        if isinstance(first, list | tuple):
            _require(len({len(own) for own in same}) == 1, f"{same}")
            return type(first)(self._merged(parts) for parts in zip(*same, strict=True))
        if isinstance(first, dict):
            return {name: self._merged([own[name] for own in same]) for name in first}
        if all(own == first for own in same):
            return first
        _require(all(type(own) is int for own in same), f"{same}")
        factor, rest = divmod(same[1] - first, _COUNTS[1] - _COUNTS[0])
        offset = first - factor * _COUNTS[0]
        _require(rest == 0 and factor * _COUNTS[2] + offset == same[2], f"{same}")
        return self._term(factor, offset)

    def _term(self, factor: int, offset: int) -> Node:
        """factor * N + offset, computed once, at the top of the graph."""
        if (factor, offset) not in self._terms:
            with self._graph.inserting_before(self._top):
                term = self._count
                if factor != 1:
                    term = self._graph.call_function(operator.mul, (term, factor))
                if offset:
                    term = self._graph.call_function(operator.add, (term, offset))
            self._terms[factor, offset] = term
        return self._terms[factor, offset]


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise DependsOnCount(f"the graph depends on the number of rows in more than sizes: {what}")
