"""Parts of models: a range of columns taken from a vector, or inserted into a vector."""

from dataclasses import dataclass

from torch import Tensor

from sim.learning.engine.graph.nodes import GraphNode
from sim.learning.engine.graph.operations import Operation, gather_inputs
from sim.learning.engine.vector_pool import VectorPool, index_tensor


@dataclass(frozen=True)
class ExtractPart(Operation):
    """Columns [offset, offset + width) of a vector of `whole`, as a new vector: [N, width]."""

    whole: VectorPool
    offset: int
    width: int

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        rows = index_tensor([node.inputs[0].row for node in nodes], self.whole.device)
        return (self.whole.data.narrow(1, self.offset, self.width).index_select(0, rows),)


@dataclass(frozen=True)
class ReplacePart(Operation):
    """Vector of `whole` with columns [offset, offset + width) replaced by another vector: [N, P].

    Inputs: the vector, and its new part.
    """

    whole: VectorPool
    offset: int
    width: int

    def run(self, nodes: list[GraphNode]) -> tuple[Tensor, ...]:
        values = gather_inputs(nodes, 0)
        values.narrow(1, self.offset, self.width).copy_(gather_inputs(nodes, 1))
        return (values,)
