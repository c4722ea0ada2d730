"""Data of several runs side by side, so that one call reads the samples of clients of several runs."""

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from sim.learning.engine.graph.samples import ClientData, Subset

_ROLES = ("train", "validation", "test")


class CommonData:
    """Data of several runs, by the number of the run. A role's subsets are concatenated on first use."""

    def __init__(self) -> None:
        self._data: dict[int, ClientData] = {}
        self._common: dict[tuple[str, Hashable], dict[int, tuple[Subset, int]]] = {}

    def add(self, number: int, data: ClientData) -> None:
        """Add the data of a run."""
        self._data[number] = data
        self._common.clear()

    def role(self, number: int, subset: Subset) -> tuple[str, Hashable]:
        """Return role and format of a run's subset: subsets of equal role and format can be concatenated."""
        data = self._data[number]
        role = next(name for name in _ROLES if data.subset(name) is subset)
        return role, _format(subset)

    def common(self, number: int, subset: Subset) -> tuple[Subset, int]:
        """Return the subsets of all runs with this role and format as one, and the first client of a run."""
        key = self.role(number, subset)
        if key not in self._common:
            self._common[key] = self._joined(*key)
        return self._common[key][number]

    def _joined(self, role: str, form: Hashable) -> dict[int, tuple[Subset, int]]:
        subsets = {number: data.subset(role) for number, data in sorted(self._data.items())}
        subsets = {number: subset for number, subset in subsets.items() if _format(subset) == form}
        joined = _joined(list(subsets.values()))
        counts = [len(subset.counts) for subset in subsets.values()]
        firsts = np.cumsum(counts) - counts
        return {number: (joined, int(first)) for number, first in zip(subsets, firsts, strict=True)}


def _format(subset: Subset) -> Hashable:
    maps = None if subset.label_maps is None else subset.label_maps.shape[1]
    x, y = subset.x, subset.y
    return x.shape[1:], x.dtype, y.shape[1:], y.dtype, maps, subset.sample_bytes


def _joined(subsets: Sequence[Subset]) -> Subset:
    """Return one subset with the clients of all; equal samples are stored once."""
    pairs: list[tuple[Tensor, Tensor]] = []
    firsts, rows, next_first = list[int](), list[np.ndarray](), 0
    offsets: list[int] = []
    for subset in subsets:
        pair = (subset.x, subset.y)
        same = next((n for n, known in enumerate(pairs) if _equal(known, pair)), None)
        if same is None:
            same = len(pairs)
            pairs.append(pair)
            offsets.append(next_first)
            next_first += len(subset.x)
        firsts.append(offsets[same])
    for subset, first in zip(subsets, firsts, strict=True):
        rows += [owned + first for owned in subset.rows_of_each]
    x, y = [parts[0] if len(pairs) == 1 else torch.cat(parts) for parts in zip(*pairs, strict=True)]
    maps = None
    if subsets[0].label_maps is not None:
        maps = torch.cat([subset.label_maps for subset in subsets if subset.label_maps is not None])
    return Subset(x, y, rows, maps, subsets[0].output_numbers)


def _equal(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
    return all(a is b or (a.shape == b.shape and torch.equal(a, b)) for a, b in zip(one, other, strict=True))
