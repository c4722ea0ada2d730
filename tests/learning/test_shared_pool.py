"""A pool of one of several runs takes and frees rows, and states them, as a pool of its own."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sim.learning.engine.graph.nodes import Slot
from sim.learning.engine.together.shared_pool import SharedMatrix
from sim.learning.engine.vector_pool import VectorPool

CPU = torch.device("cpu")
WIDTH = 5


class Held:
    """Vectors of one run, stored in a pool of its own and in a pool beside other runs."""

    def __init__(self, matrix: SharedMatrix) -> None:
        self.pools = (VectorPool(WIDTH, CPU), matrix.new_pool())
        self.slots: list[tuple[Slot, Slot]] = []
        self.values: list[torch.Tensor] = []

    def store(self, values: torch.Tensor) -> None:
        rows = [pool.store(values) for pool in self.pools]
        for own, shared, value in zip(*rows, values, strict=True):
            self.slots.append((Slot(self.pools[0], own), Slot(self.pools[1], shared)))
            self.values.append(value)

    def drop(self, index: int) -> None:
        del self.slots[index], self.values[index]

    def require_same(self) -> None:
        own, shared = self.pools
        assert (own.capacity, own.in_use, own.bytes_held) == (
            shared.capacity,
            shared.in_use,
            shared.bytes_held,
        )
        assert own.free.tolist() == shared.free.tolist() and own.free_count == shared.free_count
        assert own.held.tolist() == shared.held.tolist()
        assert own.held_owners.tolist() == shared.held_owners.tolist()
        assert torch.equal(own.held_values, shared.held_values)
        if self.slots:
            found = shared.gather([slot.row for _, slot in self.slots])
            assert torch.equal(found, torch.stack(self.values))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 30)), max_size=40))
def test_rows_are_those_of_a_pool_of_its_own(steps: list[tuple[int, int]]) -> None:
    matrix, counter = SharedMatrix(WIDTH, CPU), 0
    runs = [Held(matrix) for _ in range(3)]
    for run, change in steps:
        held = runs[run]
        if change > 0:
            values = torch.arange(counter, counter + change * WIDTH, dtype=torch.float32)
            held.store(values.view(change, WIDTH))
            counter += change * WIDTH
        since = [pool.free_count for pool in held.pools]
        for _ in range(min(-change, len(held.slots))):
            held.drop(change % len(held.slots))
        for pool, count in zip(held.pools, since, strict=True):
            pool.order_free(count)
    for held in runs:
        held.require_same()


def test_sums_of_several_runs_are_one_call() -> None:
    matrix = SharedMatrix(WIDTH, CPU)
    first, second = matrix.new_pool(), matrix.new_pool()
    one, two = first.store(torch.ones(1, WIDTH)), second.store(torch.full((1, WIDTH), 2.0))
    second.store(torch.zeros(500, WIDTH))  # the matrix moves, and both pools see it
    found = first.sums([*one, *two], np.array([0, 1]), torch.tensor([1.0, 3.0]))
    assert found[:, 0].tolist() == [1.0, 6.0]


def test_a_pool_beside_others_is_not_moved() -> None:
    with pytest.raises(NotImplementedError, match="not replayed"):
        SharedMatrix(WIDTH, CPU).new_pool().move_to(torch.device("meta"))
