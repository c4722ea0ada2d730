"""Columns return from a page with the values that they had."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.results.explore.clock import Ticks
from sim.results.report.columns import float_column, packed, whole_number_column
from tests.results.explore.unpacked import columns_of

NUMBERS = st.lists(st.integers(0, (1 << 32) - 1))


@given(NUMBERS, NUMBERS, st.lists(st.floats(width=32)))
def test_columns_are_unpacked_as_they_were(some: list[int], times: list[int], values: list[float]) -> None:
    index, content = packed(
        {
            "some": whole_number_column(some),
            "times": whole_number_column(times, rises=True),
            "values": float_column(values),
        }
    )
    found = columns_of(index, content)
    assert found["some"].tolist() == some
    assert found["times"].tolist() == times, "differences wrap around where times fall"
    np.testing.assert_array_equal(found["values"], np.array(values, np.float32))


def test_a_kind_is_as_small_as_its_largest_number() -> None:
    kinds = [whole_number_column([0, largest]).kind for largest in (255, 256, 65_535, 65_536)]
    assert kinds == ["u1", "u2", "u2", "u4"]


def test_ticks_fit_into_32_bits_for_runs_of_any_length() -> None:
    for end_s in (0.0, 0.5, 240.0, 1e6, 1e12):
        clock = Ticks.of(end_s)
        ticks = clock.ticks([0.0, end_s, float("nan"), -1.0, 2 * end_s])
        assert ticks.tolist() == [0, ticks[1], 0, 0, ticks[1]]
        assert ticks[1] <= 1 << 31
        assert abs(ticks[1] * clock.tick_s - end_s) <= clock.tick_s
