"""Columns of lists in tables: numbers and tags, as features and as labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sim.errors import UserError
from sim.learning.data.dataset import Dataset
from tests.own.data_worlds import load
from tests.own.test_huggingface import saved
from tests.own.test_tables import section
from tests.simulation.worlds import run

ROWS = {
    "age": [30, 50, 40, 60],
    "where": [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5], [6.5, 7.5]],
    "likes": [["tea", " cake "], [], ["cake"], ["tea", "tea"]],
    "paid": ["yes", "no", "yes", "no"],
}
WHERE = np.array(ROWS["where"])
CAKE_TEA = [[1, 1], [0, 0], [1, 0], [0, 1]]


def parquet(folder: Path, rows: dict[str, Any], name: str = "rows.parquet") -> str:
    path = folder / name
    pl.DataFrame(rows).write_parquet(path)
    return str(path)


def table(folder: Path, rows: dict[str, Any], tests: dict[str, Any] | None = None, **keys: Any) -> Dataset:
    given = {"file": parquet(folder, rows), "test_file": parquet(folder, tests or rows, "tests.parquet")}
    return section(
        {"name": "table", "label": "paid", "partition": "iid", "standardise": False, **given, **keys}
    )


def test_numbers_and_tags_are_features(tmp_path: Path) -> None:
    data = table(tmp_path, ROWS)
    assert np.array_equal(data.train_x, np.column_stack([ROWS["age"], WHERE, CAKE_TEA]).astype(np.float32))
    assert data.train_y.tolist() == [1, 0, 1, 0]
    assert "where[0], where[1], likes=cake, likes=tea" in data.features


def test_numbers_are_standardised_and_tags_are_not(tmp_path: Path) -> None:
    data = table(tmp_path, ROWS, standardise=True, features=("likes", "where"))
    scaled = (WHERE - WHERE.mean(0)) / WHERE.std(0)
    np.testing.assert_allclose(data.train_x, np.column_stack([CAKE_TEA, scaled]), rtol=1e-6)


@pytest.mark.parametrize("kind", [pl.Array(pl.Float32, 2), pl.List(pl.Float64)])
def test_lists_of_each_type_are_read(tmp_path: Path, kind: Any) -> None:
    where = pl.Series("where", ROWS["where"], dtype=kind)
    data = table(tmp_path, ROWS | {"where": where}, features=("where",))
    assert data.train_x.tolist() == WHERE.tolist()


def test_truth_values_are_numbers(tmp_path: Path) -> None:
    rows = ROWS | {"where": [[True, False]] * 2 + [[False, True]] * 2}
    assert table(tmp_path, rows, features=("where",)).train_x.tolist() == [[1, 0]] * 2 + [[0, 1]] * 2


def test_tags_are_labels_of_a_regression(tmp_path: Path) -> None:
    data = table(tmp_path, ROWS, label="likes", task="regression", features=("where",))
    assert data.train_y.tolist() == CAKE_TEA
    assert data.outputs == 2
    both = table(tmp_path, ROWS, label=("age", "where"), task="regression", features=("likes",))
    assert both.train_y.tolist() == np.column_stack([ROWS["age"], WHERE]).tolist()


def test_numbers_named_as_categories_are_tags(tmp_path: Path) -> None:
    rows = ROWS | {"likes": [[7, 10], [], [10], [9]]}
    data = table(tmp_path, rows, features=("likes",), categorical=("likes",))
    tags = ["10", "7", "9"]
    expected = [[float(tag in map(str, each)) for tag in tags] for each in rows["likes"]]
    assert data.train_x.tolist() == expected


def test_large_whole_numbers_are_different_tags(tmp_path: Path) -> None:
    first = 2**53  # float64 has no odd number from here on
    likes = pl.Series([[first, first + 1], [], [first + 1], [first]], dtype=pl.List(pl.UInt64))
    data = table(tmp_path, ROWS | {"likes": likes}, features=("likes",), categorical=("likes",))
    assert data.train_x.tolist() == [[1, 1], [0, 0], [0, 1], [1, 0]]


def test_tags_that_no_training_row_has(tmp_path: Path) -> None:
    tests = ROWS | {"likes": [["beer"], ["tea", "beer"], [], []]}
    data = table(tmp_path, ROWS, tests, features=("likes",))
    assert data.test_x.tolist() == [[0, 0], [0, 1], [0, 0], [0, 0]]
    with pytest.raises(UserError, match=r"row 1: column 'likes' has the tag 'beer', which is not in the tra"):
        table(tmp_path, ROWS, tests, label="likes", task="regression", features=("age",))


def test_missing_lists_and_numbers(tmp_path: Path) -> None:
    rows = ROWS | {
        "where": [[0.5, 1.5], None, [4.5, None], [6.5, 7.5]],
        "likes": [["tea"], ["cake"], None, []],
    }
    with pytest.raises(UserError, match=r"row 2: column 'where\[0\]' has no value"):
        table(tmp_path, rows, ROWS)
    filled = table(tmp_path, rows, ROWS, missing="fill", features=("where", "likes")).train_x
    third, second = (0.5 + 4.5 + 6.5) / 3, (1.5 + 7.5) / 2
    assert filled[:, :2].tolist() == [[0.5, 1.5], [np.float32(third), second], [4.5, second], [6.5, 7.5]]
    assert filled[2, 2:].tolist() == [np.float32(1 / 3)] * 2
    assert len(table(tmp_path, rows, ROWS, missing="drop", features=("where", "likes")).train_x) == 2


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "other lengths": (
        {"where": [[1.0, 2.0], [3.0], [1.0, 2.0], [1.0, 2.0]]},
        {},
        {},
        r"file: .*row 2: column 'where' has 1 numbers; must have 2, as the first list",
    ),
    "other lengths of tests": (
        {},
        {"where": [[1.0, 2.0, 3.0]] * 4},
        {},
        r"test_file: .*row 1: column 'where' has 3 numbers; must have 2",
    ),
    "empty lists": ({"where": [[]] * 4}, {}, {}, r"column 'where' has 0 numbers in its first list"),
    "no tags": (
        {"likes": pl.Series([[]] * 4, dtype=pl.List(pl.String))},
        {},
        {},
        r"column 'likes' has 0 different tags",
    ),
    "no lists in tests": ({}, {"where": [1.0] * 4}, {}, r"test_file: .*column 'where' must contain lists"),
    "texts in tests": ({}, {"where": [["a", "b"]] * 4}, {}, r"column 'where' must contain numbers, as in"),
    "as classes": ({}, {}, {"label": "likes"}, r"column 'likes' contains lists; set data\.task = \"regres"),
    "as clients": ({}, {}, {"client": "likes"}, r"column 'likes' contains lists; data\.client needs a name"),
    "a column of the same name": (
        {"where[1]": [1, 2, 3, 4]},
        {},
        {},
        r"has a column 'where\[1\]', but the lists in column 'where' become a column of this name, too",
    ),
    "too large numbers": (
        {"where": pl.Series([[1, 2**63]] * 4, dtype=pl.List(pl.UInt64))},
        {},
        {},
        r"column 'where' has lists of whole numbers above 9,223,372,036,854,775,807; must contain smaller",
    ),
    "lists of lists": (
        {"where": [[[1.0]]] * 4},
        {},
        {},
        r"column 'where' has type .*list.*; must contain num",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_lists_that_do_not_fit_are_refused(tmp_path: Path, name: str) -> None:
    rows, tests, keys, message = WRONG[name]
    with pytest.raises(UserError, match=message):
        table(tmp_path, ROWS | rows, ROWS | rows | tests, **keys)


def test_lists_of_classes_of_hugging_face(tmp_path: Path) -> None:
    names = {"_type": "ClassLabel", "names": ["cat", "ant", "bee"]}
    kinds = {
        "tags": {"_type": "List", "feature": names},
        "x": {"_type": "List", "feature": {"_type": "Value"}},
    }
    rows: dict[str, Sequence[Any]] = {"tags": [[0, 2], [1], [], [2]], "x": WHERE.tolist()}
    keys = {"name": "huggingface", "partition": "iid", "label": "tags", "task": "regression"}
    data = section(
        {**keys, "source": saved(tmp_path / "s", kinds, train=rows, test=rows), "standardise": False}
    )
    assert data.train_x.tolist() == WHERE.tolist()
    assert data.train_y.tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]]  # ant, bee, cat
    rows["tags"] = [[0, 3], [1], [], [2]]
    with pytest.raises(UserError, match=r"row 0: column 'tags' must contain lists of classes from 0 to 2"):
        section({**keys, "source": saved(tmp_path / "t", kinds, train=rows, test=rows)})


def test_a_run_learns_tags(tmp_path: Path) -> None:
    """The tags depend on the signs of the numbers in a list; without them, the loss is 0.25."""
    x = np.random.default_rng(1).normal(size=(90, 3))
    tags = [[f"t{k}" for k in range(3) if each[k] > 0] for each in x]
    parquet(tmp_path, {"x": x.tolist(), "tags": tags})
    keys = 'name = "table"\nfile = "rows.parquet"\nlabel = "tags"\ntask = "regression"\npartition = "iid"'
    scenario = load(tmp_path, keys, 'run.metrics=["loss", "accuracy"]', "run.duration=20 s")
    text = (tmp_path / "world.toml").read_text()
    result = run(tmp_path, text, *scenario.overrides)
    assert result.summary["loss"]["mean"] < 0.2
    assert result.summary["accuracy"]["mean"] is not None
