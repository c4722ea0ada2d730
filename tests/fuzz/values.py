"""Values that a person would hardly write, and a damaged file might hold."""

from datetime import date, datetime, time
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 7, 10**9, 10**12, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, -(2**63), True, False),
    *(0.0, -0.0, 0.5, 1.0, 0.999999999, 1.5, -0.25, 1e-300, 5e-324, 1e-9, 1e15, 1e308, -1e308),
    *(float("inf"), float("-inf"), float("nan")),
)
TEXTS = (
    *("", " ", "0", "-1", "nan", "none", "unlimited", ".", "~", "{}%s\\", "\x00", "a\nb"),
    *("日本語", "ﬀ̈\u202eright to left", "[bold]not rich[/bold] [/]", "<script>alert(1)</script>"),
    *("../../../../etc/hostname", "/dev/null", "x" * 300, "y" * 100_000),
    *("json:loads", "nowhere.py:Nobody", "scenario.toml:Table", "protocols.decentralized.gossip"),
    *("gossip", "cobo", "fedavg", "mapl", "local", "dpsgd", "quadratic", "digits", "cnn", "point", "iid"),
)
_COUNTS = (
    "0",
    "-1",
    "1",
    "0.1",
    "1e-9",
    "1e-300",
    "1e9",
    "1e15",
    "1e300",
    "1e999",
    "nan",
    "inf",
    "",
    "9" * 5000,
)
_UNITS = (
    *("us", "ms", "s", "min", "h", "day", "B", "GB", "MiB", "bit/s", "Gbit/s", "GFLOP/s", "TFLOP/s"),
    *("iterations", "", "parsecs", "S", "°"),
)
_KEYS = ("kind", "name", "value", "clients", "file", "", "日本", "a.b", "x" * 500, "__class__", "learn_rate")
_MOMENTS = (date(2020, 2, 29), datetime(2020, 1, 1), time(12, 0))


def odd_value(rng: Random, depth: int = 0) -> Any:
    """Anything that a TOML file can hold."""
    kinds = ("number", "number", "number", "quantity", "quantity", "text", "list", "table", "moment")
    match rng.choice(kinds if depth < 3 else kinds[:6]):
        case "number":
            return rng.choice(NUMBERS)
        case "quantity":
            return f"{rng.choice(_COUNTS)}{rng.choice(('', ' ', '  '))}{rng.choice(_UNITS)}"
        case "text":
            return rng.choice(TEXTS)
        case "list":
            return [odd_value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 3, 8)))]
        case "table":
            return {odd_key(rng): odd_value(rng, depth + 1) for _ in range(rng.choice((0, 1, 2)))}
        case _:
            return rng.choice(_MOMENTS)


def odd_key(rng: Random) -> str:
    """A key that is unknown nearly everywhere."""
    return rng.choice(_KEYS)


def near(value: Any, rng: Random) -> Any:
    """A value of the same type that differs from `value` in one respect; an odd one for other types."""
    if isinstance(value, bool):
        return rng.choice((not value, int(value), str(value).lower()))
    if isinstance(value, int | float):
        others = (-value, value + 1, value - 1, value * 2, value * 1000, value / 1000, value + 0.5)
        return rng.choice((*others, str(value), [value]))
    if isinstance(value, str):
        number, space, unit = value.partition(" ")
        spelled = (value.upper(), value + "x", value[:-1], f"-{value}", number, unit)
        measured = (f"{number}{space}{rng.choice(_UNITS)}", f"{rng.choice(_COUNTS)}{space}{unit}")
        return rng.choice((*spelled, *measured, [value], {"kind": value}, {"name": value}))
    if isinstance(value, list) and value:
        others = (value * 2, value[:-1], value[::-1], value[0], [value], [*value, value[0]], value * 1000)
        return rng.choice(others)
    return odd_value(rng)
