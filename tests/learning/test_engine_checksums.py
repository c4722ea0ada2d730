"""Checksums of parameters: any change shows, and nothing else does."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sim.learning.engine import checksums
from tests.draws import examples
from tests.learning.engines import generator

ROWS = st.lists(
    st.lists(st.floats(width=32, allow_nan=False), min_size=6, max_size=6), min_size=1, max_size=5
).map(lambda rows: torch.tensor(rows, dtype=torch.float32))


@given(rows=ROWS, place=st.tuples(st.integers(0, 99), st.integers(0, 5), st.integers(0, 31)))
@examples(100)
def test_checksum_changes_with_every_bit(rows: Tensor, place: tuple[int, int, int]) -> None:
    row, column, bit = place[0] % len(rows), place[1], place[2]
    flipped = rows.clone()
    bits = flipped.numpy().view(np.uint32)
    bits[row, column] ^= np.uint32(1 << bit)
    before, after = checksums(rows), checksums(flipped)
    assert before[row] != after[row]
    others = np.arange(len(rows)) != row
    assert np.array_equal(before[others], after[others])


@given(rows=ROWS)
@examples(50)
def test_checksum_of_a_row_is_its_own(rows: Tensor) -> None:
    together = checksums(rows)
    assert together.dtype == np.int64
    assert together.tolist() == [int(checksums(rows[n : n + 1])[0]) for n in range(len(rows))]
    assert together.tolist() == checksums(rows.T.contiguous().T).tolist()


def test_checksum_is_this_number() -> None:
    """The same on every machine: 1.0 is 0x3f800000; -0.0 is not 0.0; sums wrap around at 2^64."""
    rows = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-0.0, 0.0]])
    assert checksums(rows).tolist() == [0, 0x3F800000, 3 * 0x3F800000, -(2**31)]
    long = torch.randn(1, 100_000, generator=generator())
    weights = range(1, 200_001, 2)
    exact = sum(int(b) * w for b, w in zip(long.numpy().view(np.int32)[0], weights, strict=True))
    assert int(checksums(long)[0]) == (exact + 2**63) % 2**64 - 2**63
