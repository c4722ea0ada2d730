"""Periods at their boundaries, with times and periods that floats do not represent."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernel.random import RandomStream
from sim.world.latency.nodes import NodeLatency
from sim.world.partitions import ScheduledPartition
from sim.world.periods import place_in_period


@given(st.integers(0, 10**7), st.integers(1, 10**4), st.integers(0, 9_999))
def test_a_time_is_in_the_period_of_its_decimal_digits(number: int, milliseconds: int, part: int) -> None:
    period = Decimal(milliseconds) / 1000
    elapsed = period * number + period * part / 10_000
    found, share = place_in_period(float(elapsed), float(period))
    assert found == number
    assert share == pytest.approx(part / 10_000, abs=1e-8)


def test_a_flapping_partition_is_on_in_the_first_part_of_each_period() -> None:
    flapping = ScheduledPartition(0.0, 10.0, period_s=0.1, active_share=0.5)
    for number in range(100):
        assert flapping.is_on(float(Decimal(number) / 10)), number
        assert not flapping.is_on(float(Decimal(number) / 10 + Decimal("0.05"))), number
    assert ScheduledPartition(1.0, 10.0).is_on(9.0) and not ScheduledPartition(1.0, 10.0).is_on(10.0)


def test_a_slice_of_latencies_starts_at_its_multiple() -> None:
    latency = NodeLatency(np.arange(4.0).reshape(4, 1, 1), {"a": 0, "b": 0}, slice_s=0.1)
    draws = RandomStream(0)
    found = [latency.sample(("a", "b"), float(Decimal(number) / 10), draws) for number in range(40)]
    assert found == [0.0, 1.0, 2.0, 3.0] * 10
