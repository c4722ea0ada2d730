"""Quantities with units."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.settings.quantities import parse_span
from actors.settings.units import BANDWIDTH, COMPUTE, DURATION, SIZE, Quantity


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20 ms", 0.02),
        ("35 ms", 0.035),  # 35 * 0.001 in floats is 0.035000000000000003
        ("3us", 3e-6),
        ("  1.5   min ", 90.0),
        ("2 h", 7200.0),
        ("1 day", 86400.0),
        ("1e-3 s", 0.001),
        (".5 s", 0.5),
        ("0 s", 0.0),
        (0, 0.0),
        (0.0, 0.0),
        ("0", 0.0),
    ],
)
def test_durations_are_parsed_exactly(text: str | float, seconds: float) -> None:
    assert DURATION.parse(text) == seconds


def test_other_quantities() -> None:
    assert BANDWIDTH.parse("10 Mbit/s") == 10_000_000
    assert BANDWIDTH.parse("1 MB/s") == 8_000_000
    assert SIZE.parse("4 MB") == 4_000_000
    assert SIZE.parse("4 MiB") == 4_194_304
    assert SIZE.parse("1.5 kB") == 1_500
    assert COMPUTE.parse("1.5 TFLOP/s") == 1.5e12


@pytest.mark.parametrize(
    ("quantity", "value", "complaint"),
    [
        (DURATION, "20", "'20' has no unit"),
        (DURATION, 20, "20 has no unit"),
        (DURATION, True, "true is not a duration"),
        (DURATION, None, "None is not a duration"),
        (DURATION, "soon", "'soon' is not a duration"),
        (DURATION, "1/3 s", "'1/3 s' is not a duration"),
        (DURATION, "nan s", "'nan s' is not a duration"),
        (DURATION, "inf s", "'inf s' is not a duration"),
        (DURATION, "٢٠ ms", "'٢٠ ms' is not a duration"),
        (DURATION, "1e٢ s", "'1e٢ s' is not a duration"),
        (DURATION, "-1 s", "'-1 s' is not a duration"),
        (DURATION, "5 sec", "unknown unit 'sec' (did you mean 's'?)"),
        (DURATION, "5 MS", "unknown unit 'MS' (did you mean 'ms'?)"),
        (DURATION, "1e9999999999 s", "is not a duration"),
        (BANDWIDTH, "10 mbit/s", "did you mean 'Mbit/s'?"),
        (BANDWIDTH, "10 Mbps", "did you mean 'Mbit/s'?"),
        (SIZE, "1.5 B", "is not a whole number of B"),
        (COMPUTE, "3 GHz", "unknown unit 'GHz'"),
    ],
)
def test_refusals_name_the_value_and_the_units(quantity: Quantity, value: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as refusal:
        quantity.parse(value)
    assert complaint in str(refusal.value)
    assert str(refusal.value).endswith(f"; write {quantity.allowed}")


def test_a_number_of_iterations_is_written_in_ascii() -> None:
    assert parse_span("20 iterations", "iteration").count == 20
    with pytest.raises(ValueError, match="'٢٠ iterations' is not a duration"):
        parse_span("٢٠ iterations", "iteration")


def test_formats_are_short() -> None:
    assert [
        DURATION.format(seconds) for seconds in (0.02, 0.2, 0.5, 1.0, 90.0, 120.0, 100.0, 86400.0, 0.0)
    ] == [
        "20 ms",
        "200 ms",
        "500 ms",
        "1 s",
        "90 s",
        "2 min",
        "100 s",
        "1 day",
        "0 s",
    ]
    assert BANDWIDTH.format(1e7) == "10 Mbit/s"
    assert [SIZE.format(count) for count in (512, 1024, 4_000_000, 64 * 2**20, 0)] == [
        "512 B",
        "1 KiB",
        "4 MB",
        "64 MiB",
        "0 MB",
    ]
    assert COMPUTE.format(1e10) == "10 GFLOP/s"


@given(st.floats(min_value=1e-12, max_value=1e15), st.sampled_from([DURATION, BANDWIDTH, COMPUTE]))
@example(1 / 3, DURATION)
@example(0.1 + 0.2, DURATION)
def test_every_number_survives_the_round_trip(value: float, quantity: Quantity) -> None:
    assert quantity.parse(quantity.format(value)) == value


@given(st.integers(min_value=0, max_value=2**53))
@example(663_178_913_559_819)  # a text in MiB comes close, but is no whole number of bytes
def test_every_size_survives_the_round_trip(size: int) -> None:
    assert SIZE.parse(SIZE.format(size)) == size


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_format_for_what_cannot_be_written(value: float) -> None:
    with pytest.raises(ValueError, match="not a finite duration"):
        DURATION.format(value)
