"""Readable numbers: short, with units, and without line breaks."""

from typing import Any

_SPACE = "\N{NO-BREAK SPACE}"
NOTHING = "\N{EN DASH}"  # shown if there is no number


def counted(count: int, noun: str) -> str:
    """Format a number of things: "1 run", "1,200 runs". noun: in the singular, with a plural in "s"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def duration(seconds: float | None) -> str:
    """Format seconds: three digits below a minute, whole seconds below an hour, whole minutes above."""
    if seconds is None:
        return NOTHING
    if seconds == 0:
        return f"0{_SPACE}s"
    if abs(seconds) < 0.9995:
        return f"{seconds * 1e3:.3g}{_SPACE}ms"
    if abs(seconds) < 59.95:
        return f"{seconds:.3g}{_SPACE}s"
    if abs(seconds) < 3599.5:
        return _two_parts(round(seconds), "min", "s")
    return _two_parts(round(seconds / 60), "h", "min")


def _two_parts(small_units: int, large: str, small: str) -> str:
    whole, remaining = divmod(small_units, 60)
    text = f"{whole:,}{_SPACE}{large}"
    return f"{text}{_SPACE}{remaining}{_SPACE}{small}" if remaining else text


def size(count: float | None) -> str:
    """Format bytes with three significant digits and decimal prefixes."""
    if count is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g}{_SPACE}{unit}"
        count /= 1000
    return f"{count:,.3g}{_SPACE}TB" if count < 999.5 else f"{count:,.0f}{_SPACE}TB"


def energy(joules: float | None) -> str:
    """Format joules with three significant digits."""
    return _scaled(joules, ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ")))


def mass(grams: float | None) -> str:
    """Format grams with three significant digits."""
    return _scaled(grams, ((1e6, "t"), (1e3, "kg"), (1.0, "g"), (1e-3, "mg")))


def _scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None:
        return NOTHING
    factor, unit = next((each for each in units if abs(value) >= 0.9995 * each[0]), units[-1])
    return f"{value / factor:.3g}{_SPACE}{unit}" if value else f"0{_SPACE}{units[-2][1]}"


def share(value: float | None) -> str:
    """Format a share from 0 to 1 in percent, with one decimal."""
    return NOTHING if value is None else f"{100 * value:.1f}%"


def percentage_points(value: float | None) -> str:
    """Format a difference of shares in percentage points, with sign and one decimal."""
    return NOTHING if value is None else f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}")


def points(fall: float | None) -> str:
    """Format the drop of a share as a number of percentage points, with one decimal."""
    return NOTHING if fall is None else f"{100 * fall:.1f}"


def drop_in_points(fall: float) -> str:
    """Format the drop of a share, above 0, in percentage points."""
    return f"{points(fall)}{_SPACE}points" if fall >= 0.0005 else f"less than 0.1{_SPACE}points"


def message_type(name: str) -> str:
    """Return the name of a message type in texts; answers without a class get a name here."""
    return {"None": "answer without content", "error": "answer with an error"}.get(name, name)


def number(value: float | None) -> str:
    """Format a count with thousands separators, or a float with four significant digits."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def scale_of_time(span_s: float) -> tuple[float, str]:
    """Return (seconds per unit, unit) for an axis of length `span_s`."""
    if span_s <= 180:
        return 1.0, "s"
    return (60.0, "min") if span_s <= 3 * 3600 else (3600.0, "h")


def scale_of_size(largest: float) -> tuple[float, str]:
    """Return (bytes per unit, unit) for an axis up to `largest` bytes."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if largest >= factor:
            return factor, unit
    return 1.0, "B"


def without_formula(value: Any) -> Any:
    """Return a table's value for spreadsheets, with a quote before text that would be a formula."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
