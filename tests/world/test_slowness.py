"""Recurring and measured slow times: exact, and on average what their formulas say."""

import pytest

from sim.kernel.random import RandomStream
from sim.world.devices.slowness import (
    Slowness,
    periodic_slowness,
    random_slow_times,
    repeated_slowness,
    single_slow_time,
)


def test_a_job_passes_through_the_slow_part_of_a_period() -> None:
    slowness = Slowness(1.0, periodic_slowness(10.0, 0.25, 4.0))
    assert slowness.finish_s(0.0, 7.5) == 7.5
    assert slowness.finish_s(7.0, 1.0) == 7.5 + 0.5 * 4
    assert slowness.finish_s(9.5, 1.0) == 10.0 + (1.0 - 0.125)


def test_a_phase_shifts_the_first_period() -> None:
    slowness = Slowness(1.0, periodic_slowness(10.0, 0.25, 4.0, phase_s=8.0))
    assert slowness.finish_s(0.0, 0.5) == 2.0  # at 8 s of its period; the slow part is over at 10 s
    assert slowness.finish_s(2.0, 7.5) == 9.5


def test_all_kinds_of_slow_times_multiply() -> None:
    known = [single_slow_time(0.0, 5.0, 2.0), periodic_slowness(10.0, 0.5, 3.0, phase_s=5.0)]
    slowness = Slowness(7.0, *known, repeated_slowness((0.0, 1.0, 2.0), (1.0, 5.0)))
    # From 0 to 1 s: 7 * 2 * 3, then 7 * 2 * 3 * 5.
    assert slowness.finish_s(0.0, 1 / 42 + 1 / 420) == pytest.approx(1.5)


def test_a_trace_repeats_and_may_begin_in_the_middle() -> None:
    trace = repeated_slowness((0.0, 2.0, 3.0), (1.0, 4.0), offset_s=2.0)
    slowness = Slowness(1.0, trace)
    assert slowness.finish_s(0.0, 0.25) == 1.0
    assert slowness.finish_s(1.0, 2.0) == 3.0
    assert slowness.finish_s(3.0, 0.125) == 3.5


def test_long_run_speeds_are_those_of_the_formulas() -> None:
    periodic = Slowness(1.0, periodic_slowness(10.0, 0.4, 5.0))
    assert 10_000.0 / periodic.finish_s(0.0, 10_000.0) == pytest.approx(0.6 + 0.4 / 5, rel=1e-3)
    # A Markov process that is on for 2 s and off for 8 s on average: on for 2 / (2 + 8) of the time.
    random = Slowness(1.0, random_slow_times(8.0, 2.0, 5.0, RandomStream(1, "x")))
    assert 100_000.0 / random.finish_s(0.0, 100_000.0) == pytest.approx(0.8 + 0.2 / 5, rel=0.01)
