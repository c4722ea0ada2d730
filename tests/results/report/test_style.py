"""Colors: what has to be told apart can be, in light and dark, by contrast as WCAG 2 defines it."""

import re

import pytest

from sim.results.palette import DARK, LIGHT
from sim.results.report.page import write_report
from sim.results.report.style import colour
from tests.results.synthetic import write_run

SCHEMES = {"light": LIGHT, "dark": DARK}


def luminance(value: str) -> float:
    """Relative luminance of #rrggbb, WCAG 2.2."""
    parts = [int(value[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted((luminance(first) + 0.05, luminance(second) + 0.05))
    return lighter / darker


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("training", "waiting"),
        ("waiting", "down"),
        ("training", "down"),
        ("unknown", "no-weight"),
        ("unknown", "full-weight"),
        ("no-weight", "full-weight"),
        ("blue", "page"),
        ("orange", "page"),
        ("green", "page"),
    ],
)
def test_states_and_lines_can_be_told_apart(scheme, first, second):
    assert contrast(SCHEMES[scheme][first], SCHEMES[scheme][second]) >= 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("text", "ground"),
    [(text, ground) for text in ("ink", "faint") for ground in ("page", "panel")]
    + [("ink", "warning"), ("blue", "page")],
)
def test_text_can_be_read(scheme, text, ground):
    assert contrast(SCHEMES[scheme][text], SCHEMES[scheme][ground]) >= 4.5


def test_what_lies_behind_the_timeline_is_the_colour_of_down():
    assert all(scheme["down"] == scheme["page"] for scheme in SCHEMES.values())


def test_both_schemes_are_in_the_page_and_every_colour_that_is_used_has_a_value(tmp_path):
    page = write_report(write_run(tmp_path, evaluations=1, steps=2)).read_text()
    assert LIGHT.keys() == DARK.keys()
    light, dark = page.split("@media (prefers-color-scheme: dark)")[:2]
    assert all(f"--{name}: {value};" in light for name, value in LIGHT.items())
    assert all(f"--{name}: {value};" in dark for name, value in DARK.items())
    used = set(re.findall(r"var\(--([\w-]+)\)", page.split("</style>")[0]))
    assert used <= {*LIGHT, "font", "tiles"}  # how many tiles there are is said where they stand
    with pytest.raises(KeyError):
        colour("mauve")
