import pytest

from sim.results import text


def test_things_are_counted_in_singular_and_plural():
    shown = [text.counted(count, "run") for count in (0, 1, 2, 1200)]
    assert shown == ["0 runs", "1 run", "2 runs", "1,200 runs"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, text.NOTHING),
        (0, "0 s"),
        (0.0125, "12.5 ms"),
        (0.9996, "1 s"),
        (59.94, "59.9 s"),
        (59.97, "1 min"),
        (150, "2 min 30 s"),
        (3599.6, "1 h"),
        (3900, "1 h 5 min"),
        (360_000_000, "100,000 h"),
    ],
)
def test_duration(seconds, expected):
    assert text.duration(seconds) == expected.replace(" ", "\N{NO-BREAK SPACE}")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1234, "1.23 kB"),
        (295_000_000, "295 MB"),
        (2.5e15, "2,500 TB"),
    ],
)
def test_size(count, expected):
    assert text.size(count) == expected.replace(" ", "\N{NO-BREAK SPACE}")


def test_share_and_number():
    assert text.share(0.8754) == "87.5%"
    assert text.number(10480) == "10,480"
    assert text.number(40.0415) == "40.04"
    assert text.percentage_points(0.0934) == "+9.3"
    assert text.percentage_points(-0.0934) == "\N{MINUS SIGN}9.3"
    assert text.share(None) == text.number(None) == text.size(None) == text.NOTHING


def test_scales():
    assert text.scale_of_time(180) == (1.0, "s")
    assert text.scale_of_time(600) == (60.0, "min")
    assert text.scale_of_time(86_400) == (3600.0, "h")
    assert text.scale_of_size(999) == (1.0, "B")
    assert text.scale_of_size(2.5e6) == (1e6, "MB")
