"""What a part of a flush needs and results in, as bytes and arrays: so it can be computed elsewhere."""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.backends.kernels import Kernel
from sim.learning.engine.engine import Engine
from sim.learning.engine.graph.nodes import GraphNode, Slot
from sim.learning.engine.graph.operations import Rows
from sim.learning.engine.graph.sampler import BatchSampler
from sim.learning.engine.graph.samples import ClientData, Subset
from sim.learning.engine.vector_pool import HeldRows, VectorPool

SUBSETS = ("train", "validation", "test")


class Parcel(NamedTuple):
    """Something pickled: the bytes, and beside them its tensors and rows of pools.

    These are arrays, for another process, or tensors, for another device of this one.
    """

    pickled: bytes
    arrays: list[Any]


def _kernel(kernel: Kernel) -> tuple[Any, ...]:
    given = (kernel.architecture, kernel.objective, kernel.backend, kernel.precision, kernel.micro_batch)
    return Kernel, given


def _sampler(sampler: BatchSampler) -> tuple[Any, ...]:
    """Without what it remembers."""
    return BatchSampler, tuple([getattr(sampler, field.name) for field in fields(sampler)])


def _node(node: GraphNode) -> tuple[Any, ...]:
    """Without its outputs, which are for whoever stores them."""
    return GraphNode, (node.group, node.inputs, node.payload)


class Packer(pickle.Pickler):
    """Makes one parcel.

    data: what the other end has a copy of, and so is only named. kernels: likewise, in its order; those that
    are new are added; None if the kernel is what is sent. rows: likewise, `Rows` that the other end waits for
    the numbers of. device: where the parcel goes, of this process. `slots` are those that were packed, by the
    places of their numbers among the arrays.
    """

    dispatch_table: Mapping[type, Callable[[Any], tuple[Any, ...]]] = {
        Kernel: _kernel,
        BatchSampler: _sampler,
        GraphNode: _node,
    }

    def __init__(
        self,
        data: ClientData | None = None,
        kernels: list[Kernel] | None = None,
        rows: Sequence[Rows] = (),
        device: torch.device | None = None,
    ) -> None:
        self._file, self._device = io.BytesIO(), device
        super().__init__(self._file, pickle.HIGHEST_PROTOCOL)
        self.kernels, self.rows, self.slots = kernels, list(rows), dict[int, Slot]()
        self._subsets = {} if data is None else {id(data.subset(name)): name for name in SUBSETS}
        self._arrays: list[np.ndarray | Tensor] = []
        # Of arrays, by the identity of what they are of, which is kept as long.
        self._places: dict[int, tuple[int, object]] = {}

    def pack(self, value: Any) -> Parcel:
        """The parcel of a value; raises as `pickle` does for what cannot be sent."""
        self.dump(value)
        return Parcel(self._file.getvalue(), self._arrays)

    def persistent_id(self, each: Any) -> tuple[Any, ...] | None:
        """The name of what is not among the bytes."""
        kind = type(each)
        if kind is Slot:
            place = self._place(each, lambda: each.pool.data[each.row : each.row + 1])
            self.slots[place] = each
            return "slot", place
        if kind is Rows:
            place = self._place(each, lambda: each.pool.gather(each.rows))
            return "rows", place, _index(self.rows, each)
        if kind is VectorPool:
            return "pool", each.width
        if kind is Subset and id(each) in self._subsets:
            return "subset", self._subsets[id(each)]
        if kind is Kernel and self.kernels is not None:
            return "kernel", _index(self.kernels, each)
        if kind is HeldRows:
            return "tensor", self._place(each, lambda: each[:])
        is_array = kind is Tensor and each.device.type == "cpu" and each.dtype != torch.bfloat16
        if is_array or (kind is Tensor and self._device is not None):
            return "tensor", self._place(each, each.detach)
        return None

    def _place(self, of: object, numbers: Callable[[], Tensor]) -> int:
        """Where the numbers of something are among the arrays."""
        if id(of) not in self._places:
            self._places[id(of)] = len(self._arrays), of
            device = self._device
            self._arrays.append(numbers().numpy() if device is None else numbers().to(device))
        return self._places[id(of)][0]


def _index(known: list[Any], each: object) -> int:
    """Where something is in a list, to the end of which it is added if it is new."""
    for place, other in enumerate(known):
        if other is each:
            return place
    known.append(each)
    return len(known) - 1


class Unpacker(pickle.Unpickler):
    """Opens one parcel, of another process that is trusted: opening one may execute code.

    engine: has the data that are only named, and the pools for rows. kernels: in the other end's order. rows:
    those that the numbers are for; others are made in the engine's pools, and added.
    """

    def __init__(
        self,
        parcel: Parcel,
        engine: Engine | None = None,
        kernels: Sequence[Kernel] = (),
        rows: Sequence[Rows] = (),
    ) -> None:
        super().__init__(io.BytesIO(parcel.pickled))
        self.rows = list(rows)
        self._arrays, self._engine, self._kernels = parcel.arrays, engine, kernels

    def persistent_load(self, name: tuple[Any, ...]) -> Any:
        """What a name of `Packer.persistent_id` means here."""
        kind, which, *places = name
        if kind == "tensor":
            return torch.as_tensor(self._arrays[which])
        if kind == "kernel":
            return self._kernels[which]
        if kind == "rows" and places[0] < len(self.rows):
            rows = self.rows[places[0]]
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
        self.rows.append(Rows(pool, rows))
        return self.rows[-1]


def computed(
    parcel: Parcel, engine: Engine, kernels: Sequence[Kernel], home: torch.device | None = None
) -> Parcel:
    """The parcel of what a function returns, of one that holds the function and its arguments.

    home: the device that it goes to, of this process.
    """
    unpacker = Unpacker(parcel, engine, kernels)
    function, arguments = unpacker.load()
    try:
        return Packer(rows=unpacker.rows, device=home).pack(function(*arguments))
    finally:
        for rows in unpacker.rows:
            for row in rows.rows:
                rows.pool.give_back(row)
