"""Missing values that numpy would drop, and numbers that are texts: refused, not taken for others."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from sim.errors import UserError
from tests.own.data_worlds import TEXT, built
from tests.own.test_tables import section
from tests.simulation.worlds import write

IID = 'name = "mine.py:load"\npartition = "iid"'
HEAD = """
import pandas as pd
import polars as pl
x = np.arange(12.0).reshape(6, 2)
y = np.array([0, 1, 0, 1, 0, 1])
gap = np.arange(6) == 3
who = np.array(list("aabbcc"))
"""
MISSING = {  # what the function returns, and what is said of it
    "a masked array": ("np.ma.array(x, mask=x == 7), y", r"x\[3, 1\] is masked, a missing value; fill it"),
    "masked labels": ("x, np.ma.array(y, mask=gap)", r"y\[3\] is masked, a missing value"),
    "masked clients": ("x, y, np.ma.array(who, mask=gap)", r"clients\[3\] is masked"),
    "a list of masked rows": ("[np.ma.array(row, mask=row == 7) for row in x], y", r"x\[3, 1\] is masked"),
    "masked samples": (
        "[(np.ma.array(r, mask=r == 7), c) for r, c in zip(x, y)]",
        r"sample 3\[1\] is masked, a missing value",
    ),
    "a single masked label": (
        "[(r, np.ma.masked if c else 0) for r, c in zip(x, y)]",
        "sample 1 is masked, a missing value",
    ),
    "None among numbers": ("[[1, 2], [None, 4]], [0, 1]", r"x\[1, 0\] is None, a missing value"),
    "NaN among objects": ("np.where(x == 7, np.nan, x).astype(object), y", r"x\[3, 1\] is nan, a missing"),
    "pandas' NA": ("x, pd.array([0, 1, None, 1, 0, 1], dtype='Int64')", r"y\[2\] is nan, a missing"),
    "a frame with NA": (
        "pd.DataFrame({'a': pd.array([1, None], dtype='Int64'), 'b': [True, False]}), [0, 1]",
        r"x\[1, 0\] is <NA>, a missing",
    ),
    "NaT among times": (
        "pd.to_datetime(['2026-01-01', None]).to_numpy()[:, None], [0, 1]",
        r"is NaT, a miss",
    ),
    "times as whole numbers": (
        "pd.to_datetime(['2026-01-01', None]).to_numpy().astype(int)[:, None], [0, 1]",
        r"x\[1, 0\] is -9223372036854775808, a missing value",
    ),
    "polars' nulls of texts": ("x, y, pl.Series(['a', None, 'b', 'b', 'c', 'c'])", r"clients\[1\] is None"),
    "polars' nulls of numbers": ("x, pl.Series([0, 1, None, 1, 0, 1])", r"y\[2\] is nan, a missing"),
    "NaN among clients": ("x, y, ['a', 'a', float('nan'), 'b', 'c', 'c']", r"clients\[2\] is nan, a missing"),
    "NaN that became a text": (
        "x, y, pd.Series(['a', 'a', None, 'b', 'c', 'c'], dtype=object).to_numpy().astype(str)",
        r"clients\[2\] is None, a missing",
    ),
    "a client without a name": ("x, y, np.where(gap, '', who)", r"clients\[3\] is empty, a missing"),
    "a number as a text": ("[['1,5', '2'], ['3', '4']], [0, 1]", "x has type <U3; must be real numbers"),
    "a text among clients' numbers": ("x, y, [1, 1, '2', 2, 3, 3]", "clients has type object; must be"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MISSING)
def test_missing_values_of_arrays_are_refused(tmp_path: Path, name: str) -> None:
    returned, message = MISSING[name]
    with pytest.raises(UserError, match=message):
        built(tmp_path, IID, code=f"{HEAD}def load():\n    return {returned}")


def test_objects_that_are_all_numbers_are_numbers(tmp_path: Path) -> None:
    code = "def load():\n    return pd.DataFrame({'a': range(6), 'b': [True, False] * 3}).astype(object), y"
    assert built(tmp_path, IID, code=HEAD + code).features == "2 numbers for each sample"


TEXTS = {
    "decimal commas": ["1,5", "2,75", "12", "3,0"],
    "decimal commas only": ["1,5", "2,75", "-12,1", "3,0"],
    "thousands": ["1,234.5", "12,000.1", "7,001.0", "1,234,567"],
    "thousands in other countries": ["1.234,5", "12'000,1", "7 001", "1.234.567,1"],
    "lakhs": ["1,50,000", "2,75,000", "1,00,000", "9,99,999"],
    "a unit": ["12 kg", "13.5 kg", "7 kg", "1 kg"],
    "units": ["12 kg", "800 g", "7 kg", "1 kg"],
    "a unit of two": ["12 km/h", "80.5 km/h", "7 km/h", "1 km/h"],
    "percentages": ["12%", "13.5%", "7%", "1%"],
    "degrees": ["12 \N{DEGREE SIGN}C", "13 \N{DEGREE SIGN}C", "7 \N{DEGREE SIGN}C", "1 \N{DEGREE SIGN}C"],
    "prices": ["$12", "$13.50", "$7", "$1,200.00"],
    "a long minus": ["\N{MINUS SIGN}12", "\N{MINUS SIGN}13.5", "\N{MINUS SIGN}7", "\N{MINUS SIGN}1"],
}
CATEGORIES = {
    "ranges of ages": ["18-25", "26-35", "36-45", "46+"],
    "ordinals": ["1st", "2nd", "3rd", "4th"],
    "rooms": ["1a", "1b", "2a", "2b"],
    "addresses": ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
    "days": ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04"],
    "words": ["kg", "%", "-", "1.2.3"],
}


def with_texts(folder: Path, texts: list[str]) -> dict[str, object]:
    rows = "".join(f'"{text}";{"ab"[place % 2]}\n' for place, text in enumerate(texts * 5))
    write(folder, "size;label\n" + rows, "t.csv")
    file = str(folder / "t.csv")
    return {"name": "table", "file": file, "separator": ";", "label": "label", "partition": "iid"}


@pytest.mark.parametrize("kind", TEXTS)
def test_numbers_that_are_texts_are_no_categories(tmp_path: Path, kind: str) -> None:
    keys = with_texts(tmp_path, TEXTS[kind])
    with pytest.raises(UserError, match=r"column 'size' is .*in data\.categorical") as refused:
        section(keys)
    assert TEXTS[kind][0].isascii() is False or f"'{TEXTS[kind][0]}'" in str(refused.value).replace('"', "'")
    assert section({**keys, "categorical": ["size"]}).input_shape == (4,)


@pytest.mark.parametrize("kind", CATEGORIES)
def test_texts_that_are_categories_stay_such(tmp_path: Path, kind: str) -> None:
    assert section(with_texts(tmp_path, CATEGORIES[kind])).input_shape == (4,)


@pytest.mark.parametrize("text", ["N/A", "n/a", "<NA>", "NaT", "NULL", "None", "#N/A"])
def test_what_other_programs_write_for_nothing_is_missing(tmp_path: Path, text: str) -> None:
    keys = with_texts(tmp_path, ["red", "green", text, "blue"])
    with pytest.raises(UserError, match=r"row 3: column 'size' has no value; add a value"):
        section(keys)


def test_check_lists_columns_kinds_and_widths(tmp_path: Path) -> None:
    rows = "".join(f"{place},{'xyz'[place % 3]},{place * 2},{'ab'[place % 2]}\n" for place in range(30))
    write(tmp_path, "age,city,height,label\n" + rows, "t.csv")
    keys = f'name = "table"\nfile = "{tmp_path}/t.csv"\nlabel = "label"\npartition = "iid"'
    path = write(tmp_path, TEXT.replace("DATA", keys))
    said = CliRunner().invoke(app, ["check", str(path)])
    assert said.exit_code == 0, said.output
    line = next(line for line in said.stdout.splitlines() if line.startswith("  features"))
    assert line.split(maxsplit=1)[1] == (
        "2 of numbers: age, height; 1 of categories: city (3); 5 in all for each sample"
    )
