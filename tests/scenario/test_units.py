"""Quantities with units."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.units import (
    BANDWIDTH,
    COMPUTE,
    DURATION,
    SIZE,
    Quantity,
    format_bandwidth,
    format_compute,
    format_duration,
    format_size,
    parse_bandwidth,
    parse_compute,
    parse_duration,
    parse_size,
)


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
    assert parse_duration(text) == seconds


def test_other_quantities() -> None:
    assert parse_bandwidth("10 Mbit/s") == 10_000_000
    assert parse_bandwidth("1 MB/s") == 8_000_000
    assert parse_size("4 MB") == 4_000_000
    assert parse_size("4 MiB") == 4_194_304
    assert isinstance(parse_size("1.5 kB"), int)
    assert parse_compute("1.5 TFLOP/s") == 1.5e12


@pytest.mark.parametrize(
    ("parse", "value", "complaint"),
    [
        (parse_duration, "20", "'20' has no unit"),
        (parse_duration, 20, "20 has no unit"),
        (parse_duration, True, "True is not a duration"),
        (parse_duration, None, "None is not a duration"),
        (parse_duration, "soon", "'soon' is not a duration"),
        (parse_duration, "1/3 s", "'1/3 s' is not a duration"),
        (parse_duration, "nan s", "'nan s' is not a duration"),
        (parse_duration, "inf s", "'inf s' is not a duration"),
        (parse_duration, "-1 s", "'-1 s' must be 0 or more"),
        (parse_duration, "5 sec", "unknown unit 'sec' (did you mean 's'?)"),
        (parse_duration, "5 MS", "unknown unit 'MS' (did you mean 'ms'?)"),
        (parse_duration, "1e999 s", "outside the range"),
        (parse_duration, "1e-999 s", "outside the range"),
        (parse_duration, "1e9999999999 s", "is not a duration"),
        (parse_bandwidth, 0, "0 has no unit"),
        (parse_bandwidth, "0 bit/s", "must be more than 0"),
        (parse_bandwidth, "10 mbit/s", "did you mean 'Mbit/s'?"),
        (parse_bandwidth, "10 Mbps", "did you mean 'Mbit/s'?"),
        (parse_size, "1.5 B", "is not a whole number of B"),
        (parse_compute, "3 GHz", "unknown unit 'GHz'"),
    ],
)
def test_refusals_name_the_value_and_the_units(parse: object, value: object, complaint: str) -> None:
    quantity = {
        parse_duration: DURATION,
        parse_bandwidth: BANDWIDTH,
        parse_size: SIZE,
        parse_compute: COMPUTE,
    }[parse]
    with pytest.raises(ValueError) as refusal:
        parse(value)  # type: ignore[operator]
    assert complaint in str(refusal.value)
    assert str(refusal.value).endswith(f"; write {quantity.allowed}")


def test_formats_are_short() -> None:
    assert [
        format_duration(seconds) for seconds in (0.02, 0.2, 0.5, 1.0, 90.0, 120.0, 100.0, 86400.0, 0.0)
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
    assert format_bandwidth(1e7) == "10 Mbit/s"
    assert [format_size(count) for count in (512, 1024, 4_000_000, 64 * 2**20, 0)] == [
        "512 B",
        "1 KiB",
        "4 MB",
        "64 MiB",
        "0 MB",
    ]
    assert format_compute(1e10) == "10 GFLOP/s"


@given(st.floats(min_value=1e-12, max_value=1e15), st.sampled_from([DURATION, BANDWIDTH, COMPUTE]))
@example(1 / 3, DURATION)
@example(0.1 + 0.2, DURATION)
def test_every_number_survives_the_round_trip(value: float, quantity: Quantity) -> None:
    assert quantity.parse(quantity.format(value)) == value


@given(st.integers(min_value=0, max_value=2**53))
@example(663_178_913_559_819)  # a text in MiB comes close, but is no whole number of bytes
def test_every_size_survives_the_round_trip(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_format_for_what_cannot_be_written(value: float) -> None:
    with pytest.raises(ValueError, match="not a finite duration"):
        format_duration(value)
