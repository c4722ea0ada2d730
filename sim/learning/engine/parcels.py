"""Parcels: inputs and results of a part of a flush as bytes and arrays, for computation elsewhere."""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.engine import Engine
from sim.learning.engine.graph.nodes import GraphNode, Slot
from sim.learning.engine.graph.operations import OutputRows
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.graph.samples import ClientData, Subset
from sim.learning.engine.vector_pool import LazyPoolRows, VectorPool

SUBSETS = ("train", "validation", "test")


class Parcel(NamedTuple):
    """Pickled value: the bytes, and separately its tensors and rows of pools.

    These are arrays, for another process, or tensors, for another device of this process.
    """

    pickled: bytes
    arrays: list[Any]


def _reduce_kernel(kernel: ModelKernel) -> tuple[Any, ...]:
    given = (kernel.architecture, kernel.objective, kernel.backend, kernel.precision, kernel.micro_batch)
    return ModelKernel, given


def _reduce_sampler(sampler: BatchSampler) -> tuple[Any, ...]:
    """Reduce a sampler to its fields, without cached values."""
    return BatchSampler, tuple([getattr(sampler, field.name) for field in fields(sampler)])


def _reduce_node(node: GraphNode) -> tuple[Any, ...]:
    """Reduce a node to its inputs, without its outputs."""
    return GraphNode, (node.group, node.inputs, node.payload)


class ParcelPickler(pickle.Pickler):
    """Pickler of one parcel.

    data: data that the other end already has; the parcel contains only the names of its subsets. kernels:
    kernels that the other end already has; the parcel contains only their indices, and new kernels are added
    to the list. None to send all kernels. rows: `OutputRows` whose values the other end expects; the parcel
    contains only their indices. device: target device of the parcel, in this process. `slots`: the packed
    slots, by the index of their values among the arrays.
    """

    dispatch_table: Mapping[type, Callable[[Any], tuple[Any, ...]]] = {
        ModelKernel: _reduce_kernel,
        BatchSampler: _reduce_sampler,
        GraphNode: _reduce_node,
    }

    def __init__(
        self,
        data: ClientData | None = None,
        kernels: list[ModelKernel] | None = None,
        rows: Sequence[OutputRows] = (),
        device: torch.device | None = None,
    ) -> None:
        self._file, self._device = io.BytesIO(), device
        super().__init__(self._file, pickle.HIGHEST_PROTOCOL)
        self.kernels, self.rows, self.slots = kernels, list(rows), dict[int, Slot]()
        self._subsets = {} if data is None else {id(data.subset(name)): name for name in SUBSETS}
        self._arrays: list[np.ndarray | Tensor] = []
        # Index of each array, and its source, by the identity of the source.
        self._indices: dict[int, tuple[int, object]] = {}

    def pack(self, value: Any) -> Parcel:
        """Return the parcel of a value; raises as `pickle` for values that cannot be sent."""
        self.dump(value)
        return Parcel(self._file.getvalue(), self._arrays)

    def persistent_id(self, each: Any) -> tuple[Any, ...] | None:
        """Return the name of an object that is not among the bytes."""
        kind = type(each)
        if kind is Slot:
            index = self._index_of(each, lambda: each.pool.data[each.row : each.row + 1])
            self.slots[index] = each
            return "slot", index
        if kind is OutputRows:
            index = self._index_of(each, lambda: each.pool.gather(each.rows))
            return "rows", index, _index_in(self.rows, each)
        if kind is VectorPool:
            return "pool", each.width
        if kind is Subset and id(each) in self._subsets:
            return "subset", self._subsets[id(each)]
        if kind is ModelKernel and self.kernels is not None:
            return "kernel", _index_in(self.kernels, each)
        if kind is LazyPoolRows:
            return "tensor", self._index_of(each, lambda: each[:])
        is_array = kind is Tensor and each.device.type == "cpu" and each.dtype != torch.bfloat16
        if is_array or (kind is Tensor and self._device is not None):
            return "tensor", self._index_of(each, each.detach)
        return None

    def _index_of(self, of: object, numbers: Callable[[], Tensor]) -> int:
        """Return the index of an object's values among the arrays."""
        if id(of) not in self._indices:
            self._indices[id(of)] = len(self._arrays), of
            device = self._device
            self._arrays.append(numbers().numpy() if device is None else numbers().to(device))
        return self._indices[id(of)][0]


def _index_in(known: list[Any], each: object) -> int:
    """Return the index of an object in a list; a new object is appended."""
    for index, other in enumerate(known):
        if other is each:
            return index
    known.append(each)
    return len(known) - 1


class ParcelUnpickler(pickle.Unpickler):
    """Unpickler of one parcel from a trusted process: unpickling may execute code.

    engine: has the named data, and the pools for rows. kernels: in the other end's order. rows: expected
    rows, which get the values; others are created in the engine's pools, and added.
    """

    def __init__(
        self,
        parcel: Parcel,
        engine: Engine | None = None,
        kernels: Sequence[ModelKernel] = (),
        rows: Sequence[OutputRows] = (),
    ) -> None:
        super().__init__(io.BytesIO(parcel.pickled))
        self.rows = list(rows)
        self._arrays, self._engine, self._kernels = parcel.arrays, engine, kernels

    def persistent_load(self, name: tuple[Any, ...]) -> Any:
        """Return the object of a name from `ParcelPickler.persistent_id`."""
        kind, which, *others = name
        if kind == "tensor":
            return torch.as_tensor(self._arrays[which])
        if kind == "kernel":
            return self._kernels[which]
        if kind == "rows" and others[0] < len(self.rows):
            rows = self.rows[others[0]]
            rows.pool.write(rows.rows, torch.as_tensor(self._arrays[which]))
            return rows
        assert self._engine is not None
        if kind == "pool":
            return self._engine.pool(which)
        if kind == "subset":
            return self._engine.data.subset(which)
        numbers = torch.as_tensor(self._arrays[which])
        pool = self._engine.pool(numbers.shape[1])
        rows = pool.store(numbers)
        if kind == "slot":
            return Slot(pool, rows[0])
        self.rows.append(OutputRows(pool, rows))
        return self.rows[-1]


def compute_parcel(
    parcel: Parcel, engine: Engine, kernels: Sequence[ModelKernel], home: torch.device | None = None
) -> Parcel:
    """Return the parcel with the result of a function; the given parcel holds the function and its arguments.

    home: target device of the result, in this process.
    """
    unpacker = ParcelUnpickler(parcel, engine, kernels)
    function, arguments = unpacker.load()
    try:
        return ParcelPickler(rows=unpacker.rows, device=home).pack(function(*arguments))
    finally:
        for rows in unpacker.rows:
            for row in rows.rows:
                rows.pool.give_back(row)
