"""Numbers that float32 cannot tell apart: they are standardized before they are rounded, or refused."""

from pathlib import Path

import numpy as np
import pytest

from sim.errors import UserError
from sim.learning.data.raw_arrays import require_exact_differences
from tests.own.data_worlds import all_of, built
from tests.own.test_tables import section
from tests.simulation.worlds import write

STEPS = np.arange(60.0)
SCALED = (STEPS - STEPS.mean()) / STEPS.std()
# Each: the first number, and how far the next one is from it.
SERIES = {
    "times in seconds": ("1600000000", 1),
    "identifiers": ("9007199254740993", 1),
    "times in nanoseconds": ("1600000000000000001", 3),
    "northings in meters": ("5237512.25", 0.01),
    "pressures": ("101325.5", 0.0001),
}


def series(kind: str) -> list[int] | list[float]:
    first, step = SERIES[kind]
    if isinstance(step, int):
        return [int(first) + step * place for place in range(60)]
    return [float(first) + step * place for place in range(60)]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("kind", SERIES)
def test_columns_are_standardised_before_they_are_rounded(tmp_path: Path, kind: str, form: str) -> None:
    import polars as pl

    frame = pl.DataFrame({"x": series(kind), "label": ["a", "b"] * 30})
    path = tmp_path / f"t.{form}"
    frame.write_csv(path) if form == "csv" else frame.write_parquet(path)
    keys = {"name": "table", "label": "label", "partition": "iid", "file": str(path)}
    data = section({**keys, "test_file": str(path)})
    np.testing.assert_allclose(data.train_x[:, 0], SCALED, atol=2e-5)
    assert len(np.unique(data.test_x)) == 60
    with pytest.raises(UserError, match=r"column 'x' has numbers around .*, which float32 rounds away; data"):
        section({**keys, "standardise": False})


@pytest.mark.parametrize("kind", SERIES)
def test_arrays_and_functions_are_standardised_before_they_are_rounded(tmp_path: Path, kind: str) -> None:
    x, y = np.array(series(kind))[:, None], np.arange(60) % 2
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    keys = {"name": "arrays", "partition": "iid", "file": str(tmp_path / "a.npz")}
    data = section({**keys, "standardise": True})
    np.testing.assert_allclose(data.train_x[:, 0], SCALED, atol=2e-5)
    assert len(np.unique(data.test_x)) == 60
    with pytest.raises(UserError, match=r"x_train\[:, 0\] has numbers around .*, which float32 rounds away"):
        section(keys)

    code = f"def load():\n    x = np.array({series(kind)!r})[:, None]\n    return [(r, 0) for r in x]"
    keys_of_code = 'name = "mine.py:load"\npartition = "iid"\nclasses = 2\n[training]'
    with pytest.raises(UserError, match=r"x\[:, 0\] has numbers around .*, which float32 rounds away"):
        built(tmp_path, keys_of_code.removesuffix("[training]"), code=code)


def test_targets_of_a_regression_too(tmp_path: Path) -> None:
    code = "def load():\n    x = np.arange(60.0)\n    return x[:, None], 1.6e9 + x"
    with pytest.raises(UserError, match=r"y has numbers around 1600000000 .*; subtract a common offset"):
        built(tmp_path, 'name = "mine.py:load"\npartition = "iid"\ntask = "regression"', code=code)
    rows = "".join(f"{place},{1_600_000_000 + place}\n" for place in range(60))
    write(tmp_path, "x,when\n" + rows, "t.csv")
    keys = {"name": "table", "label": "when", "task": "regression", "partition": "iid"}
    keys["file"] = str(tmp_path / "t.csv")
    with pytest.raises(UserError, match=r"column 'when'\[:, 0\] has numbers around"):
        section(keys)
    scaled = section({**keys, "test_file": keys["file"], "standardise_label": True})  # type: ignore[dict-item]
    np.testing.assert_allclose(scaled.train_y[:, 0], SCALED, atol=1e-6)


@pytest.mark.parametrize("kind", [np.uint64, np.int64])
def test_whole_numbers_of_any_size_are_looked_at(kind: type) -> None:
    def refuse(problem: str) -> UserError:
        return UserError(problem)

    most = np.iinfo(kind).max
    close = np.full((60, 1), most, kind) - np.arange(60, dtype=kind)[:, None]
    with pytest.raises(UserError, match=r"x\[:, 0\] has numbers around .* that differ by about 17.3, which"):
        require_exact_differences(close, "x", refuse, "")
    far = np.where(np.arange(60) % 2, most, np.iinfo(kind).min)[:, None].astype(kind)
    require_exact_differences(far, "x", refuse, "")  # float32 tells these apart


def test_what_is_only_noise_of_float64_or_float32_already_is_left(tmp_path: Path) -> None:
    code = "def load():\n    x = np.array([[0.3, 1e6], [0.1 + 0.2, 1.1e6]] * 30)\n    return x, [0, 1] * 30"
    assert len(all_of(built(tmp_path, 'name = "mine.py:load"\npartition = "iid"', code=code), "train"))
    code = code.replace("return x", "return np.float32([[1600000000], [1600000128]] * 30)")
    assert len(all_of(built(tmp_path, 'name = "mine.py:load"\npartition = "iid"', code=code), "train"))


def test_a_column_that_is_the_same_in_all_rows_becomes_0(tmp_path: Path) -> None:
    write(tmp_path, "x,label\n" + "0.1,a\n0.1,b\n" * 35, "t.csv")  # the mean of so many is not 0.1
    data = section({"name": "table", "label": "label", "partition": "iid", "file": str(tmp_path / "t.csv")})
    assert not data.train_x.any()
