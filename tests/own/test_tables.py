"""Data of the user's own from files: arrays, and tables with a label, features and clients."""

import gzip
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sim.errors import UserError
from sim.files import input_file, machine
from sim.files.data_folder import DataFolder
from sim.files.input_table import TextFormat, read_table
from sim.learning.data.columns import sorted_texts
from sim.learning.data.dataset import Dataset
from sim.learning.data.kinds import DATASETS
from sim.scenario.resolved import digest
from sim.scenario.scenario import load_scenario
from tests.own.data_worlds import built, load
from tests.simulation.worlds import write

PEOPLE = """\
age,city,ward,paid,hospital
30,Bern,1,yes,north
50,Genf,2,no,south
40,Bern,1,no,north
60,Zug,3,yes,south
20,Genf,2,yes,east
80,Bern,1,no,east
"""
TESTS = """\
hospital,paid,ward,city,age
south,no,2,Chur,44
north,yes,3,Zug,44
east,yes,1,Bern,44
"""


def table(folder: Path, text: str = PEOPLE, **keys: Any) -> Dataset:
    """The samples of the table people.csv, tested on tests.csv."""
    write(folder, text, "people.csv")
    write(folder, TESTS, "tests.csv")
    files = {"file": str(folder / "people.csv"), "test_file": str(folder / "tests.csv")}
    return section({"name": "table", "label": "paid", "partition": "iid", **files, **keys})


def section(keys: dict[str, Any]) -> Dataset:
    data = DATASETS[keys["name"]].model_validate(
        {key: each for key, each in keys.items() if each is not None}
    )
    return data.load(3, 1, DataFolder())


def test_numbers_categories_classes_and_clients(tmp_path: Path) -> None:
    data = table(tmp_path, client="hospital", partition="natural", standardise=False)
    # age; city: Bern, Genf, Zug; ward
    assert data.train_x.tolist() == [
        [30, 1, 0, 0, 1],
        [50, 0, 1, 0, 2],
        [40, 1, 0, 0, 1],
        [60, 0, 0, 1, 3],
        [20, 0, 1, 0, 2],
        [80, 1, 0, 0, 1],
    ]
    assert data.test_x.tolist() == [[44, 0, 0, 0, 2], [44, 0, 0, 1, 3], [44, 1, 0, 0, 1]]
    assert data.train_y.tolist() == [1, 0, 0, 1, 1, 0] and data.test_y.tolist() == [0, 1, 1]
    assert data.outputs == 2 and data.owners is not None
    assert data.owners.names == ("east", "north", "south")
    assert data.owners.train.tolist() == [1, 2, 1, 2, 0, 0]
    assert data.owners.test is not None and data.owners.test.tolist() == [2, 1, 0]


def test_a_column_may_have_any_name(tmp_path: Path) -> None:
    data = table(tmp_path, PEOPLE.replace("ward", "row"), leave_out=["hospital"], test_file=None)
    assert data.input_shape == (5,)


def test_a_table_to_test_on_needs_the_columns_of_the_other_and_may_have_more(tmp_path: Path) -> None:
    assert table(tmp_path, PEOPLE.replace("ward", "floor"), features=["age", "city"]).input_shape == (4,)
    with pytest.raises(
        UserError, match=r"test_file: .*tests\.csv: has no column 'floor'; it has hospital, paid"
    ):
        table(tmp_path, PEOPLE.replace("ward", "floor"))


def test_numbers_that_are_names_and_columns_that_are_left_out(tmp_path: Path) -> None:
    data = table(tmp_path, categorical=["ward"], leave_out=["age", "hospital", "city"])
    assert data.train_x.tolist() == np.eye(3)[[0, 1, 0, 2, 1, 0]].tolist()
    named = table(tmp_path, categorical=["ward"], features=["ward"])
    assert named.train_x.tolist() == data.train_x.tolist()


def test_columns_of_numbers_are_standardised_by_the_training_rows(tmp_path: Path) -> None:
    data = table(tmp_path, features=["city", "age"])
    age = np.array([30, 50, 40, 60, 20, 80])
    np.testing.assert_allclose(data.train_x[:, 3], (age - age.mean()) / age.std(), rtol=1e-6)
    np.testing.assert_allclose(data.test_x[:, 3], (44 - age.mean()) / age.std(), rtol=1e-5)
    assert data.train_x[:, :3].tolist() == np.eye(3)[[0, 1, 0, 2, 1, 0]].tolist()


def test_many_columns_of_numbers_take_less_memory_than_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file of text, numbers are texts at first, of which no more than a column is looked at at once."""
    head, row = ",".join(f"x{place}" for place in range(30)), "1,2,3," * 10
    text = f"{head},y\n" + "".join(f"{row}{number % 2}\n" for number in range(4_000))
    monkeypatch.setattr(machine, "memory_bytes", lambda: 20 * 2**20)
    assert table(tmp_path, text, label="y", test_file=None).train_x.shape[1] == 30
    monkeypatch.setattr(machine, "memory_bytes", lambda: 10 * 2**20)
    with pytest.raises(UserError, match="of memory when read"):
        table(tmp_path, text, label="y", test_file=None)


def test_groups_of_clients(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"client": "hospital", "features": ["age"], "standardise": False}
    data = table(tmp_path, **keys, groups=[["south"], ["*"]])
    assert data.owners is not None and data.owners.train.tolist() == [1, 0, 1, 0, 1, 1]
    data = table(tmp_path, **keys, groups=[["south"], ["north"]])
    assert data.train_x[:, 0].tolist() == [30, 50, 40, 60] and data.test_x[:, 0].tolist() == [44, 44]
    assert data.owners is not None and data.owners.train.tolist() == [1, 0, 1, 0]


def test_a_regression_of_two_columns(tmp_path: Path) -> None:
    data = table(tmp_path, task="regression", label=["age", "ward"], features=["city"])
    assert data.train_y.tolist()[:2] == [[30, 1], [50, 2]] and data.outputs == 2
    scaled = table(tmp_path, task="regression", label="age", features=["city"], standardise_label=True)
    np.testing.assert_allclose([scaled.train_y.mean(), scaled.train_y.std()], [0, 1], atol=1e-6)


@pytest.mark.parametrize("missing", ["drop", "fill"])
def test_missing_values(tmp_path: Path, missing: str) -> None:
    text = PEOPLE.replace("50,Genf", "?,").replace("40,Bern", "NA,Bern")
    keys: dict[str, Any] = {"features": ["age", "city"], "standardise": False}
    data = table(tmp_path, text, missing=missing, **keys)
    if missing == "drop":
        assert data.train_x[:, 0].tolist() == [30, 60, 20, 80]
    else:  # 47.5 is the mean of those that are known; the last category is that of what is missing
        assert data.train_x.tolist()[1] == [47.5, 0, 0, 0, 1]
        assert data.train_x[:, 0].tolist() == [30, 47.5, 47.5, 60, 20, 80]
    with pytest.raises(UserError, match=r"people\.csv, row 2: column 'age' has no value; add a value"):
        table(tmp_path, text, **keys)


def test_text_in_another_form_and_compressed(tmp_path: Path) -> None:
    head, *rows = PEOPLE.splitlines()
    text = "| a line that is none\n" + "".join(f" {row.replace(',', ' ; ')}. \n" for row in rows) + "\n"
    (tmp_path / "other.csv.xz").write_bytes(lzma.compress(text.encode()))
    (tmp_path / "other.data.gz").write_bytes(gzip.compress(text.encode()))
    keys: dict[str, Any] = {"features": ["age", "city"], "client": "hospital", "test_file": None}
    keys |= {"separator": ";", "comment": "|", "strip": ".", "columns": head.split(",")}
    plain = table(tmp_path, **{**keys, "separator": ",", "columns": ()})
    for name in ("other.csv.xz", "other.data.gz"):
        found = section(
            {"name": "table", "label": "paid", "partition": "natural", **keys, "file": str(tmp_path / name)}
        )
        assert np.array_equal(found.train_x, plain.train_x) and np.array_equal(found.test_y, plain.test_y)
        assert found.owners is not None and found.owners.names == ("east", "north", "south")


def test_parquet_is_as_text(tmp_path: Path) -> None:
    frame = pl.read_csv(PEOPLE.encode()).with_columns(pl.col("hospital").cast(pl.Categorical))
    frame.write_parquet(tmp_path / "people.parquet")
    keys: dict[str, Any] = {"client": "hospital"}
    text, binary = table(tmp_path, **keys), table(tmp_path, **keys, file=str(tmp_path / "people.parquet"))
    assert np.array_equal(text.train_x, binary.train_x) and np.array_equal(text.test_x, binary.test_x)
    assert np.array_equal(text.train_y, binary.train_y)
    assert text.owners is not None and binary.owners is not None and text.owners.names == binary.owners.names


def test_a_number_is_the_same_category_in_all_tables(tmp_path: Path) -> None:
    """All values of the test file are whole; those of the training file are not."""
    label = [0, 1, 0, 1]
    pl.DataFrame({"size": [1.0, 1.5, 2.0, 1.0], "paid": label}).write_parquet(tmp_path / "train.parquet")
    pl.DataFrame({"size": [1.0, 2.0, 2.0, 1.5], "paid": label}).head(3).write_parquet(
        tmp_path / "test.parquet"
    )
    found = section(
        {
            "name": "table",
            "file": str(tmp_path / "train.parquet"),
            "test_file": str(tmp_path / "test.parquet"),
            "label": "paid",
            "categorical": ["size"],
            "partition": {"kind": "iid"},
        }
    )
    one, one_and_half, two = [1, 0, 0], [0, 1, 0], [0, 0, 1]
    assert found.train_x.tolist() == [one, one_and_half, two, one]
    assert found.test_x.tolist() == [one, two, two]


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no label column": (PEOPLE, {"label": "pay"}, "people.csv: has no column 'pay'; it has age, city"),
    "no such category column": (PEOPLE, {"categorical": ["plz"]}, "has no column 'plz'; correct data.categ"),
    "mixed types": (
        PEOPLE.replace("60,", "old,"),
        {},
        "row 4: column 'age' is 'old'; must be a finite float32 number",
    ),
    "too few values": (
        PEOPLE.replace("60,Zug,", "60,"),
        {},
        "has 4 values; must have 5, one for each",
    ),
    "a class that training has not": (
        PEOPLE.replace("yes", "perhaps"),
        {},
        "tests.csv, row 2: column 'paid' is 'yes'; must be one of the classes in data.file: no, perhaps",
    ),
    "no label": (PEOPLE.replace("3,yes", "3,"), {"missing": "fill"}, "row 4: column 'paid' has no value"),
    "an empty column": (
        "age,note,paid\n1,,yes\n2,,no\n",
        {"missing": "fill", "test_file": None},
        "column 'note' has no values",
    ),
    "no rows": ("age,paid\n", {"test_file": None}, "has no rows; must have at least one"),
    "rows with gaps only": ("age,paid\n,yes\n", {"missing": "drop", "test_file": None}, "every row has"),
    "a column twice": (PEOPLE.replace("city", "age"), {}, "has the column 'age' twice"),
    "no feature": ("paid\nyes\nno\n", {"test_file": None}, "has no feature column"),
    "text to predict": (PEOPLE, {"task": "regression", "label": "city"}, "row 1: column 'city' is 'Bern'"),
    "a group of nobody": (
        PEOPLE,
        {"client": "hospital", "groups": [["west"], ["*"]]},
        "column 'hospital' has no value 'west' of data.groups; it has east, north, south",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_file_and_row(tmp_path: Path, name: str) -> None:
    text, keys, message = WRONG[name]
    with pytest.raises(UserError, match=rf"^data\.(test_)?file: .*{message}"):
        table(tmp_path, text, **keys)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(PEOPLE.encode().replace(b"Zug", b"Z\xfcrich"))
    with pytest.raises(UserError, match=r"people\.csv: is not a table of text in UTF-8"):
        section({"name": "table", "label": "paid", "partition": "iid", "file": str(tmp_path / "people.csv")})


def test_parquet_of_what_are_no_values(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    frame = pl.read_csv(PEOPLE.encode())
    keys = {"name": "table", "label": "paid", "partition": "iid", "file": str(path)}
    frame.with_columns(pl.lit([[1, 2]]).alias("tags")).write_parquet(path)
    with pytest.raises(UserError, match=r"column 'tags' has type .*list.*; must contain numbers or text"):
        section(keys)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"people\.parquet: is not a Parquet table, or is damaged"):
        section(keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('label = ["a", "b"]', r"data\.label = .*must be one column, unless data\.task"),
        ('label = "a"\ngroups = [["x"]]', r"data\.groups.*needs data\.client"),
        ('label = "a"\nclient = "b"\ngroups = [["x"], ["x", "y"]]', r"data\.groups.*contains a value twice"),
        ('label = "a"\nstandardise_label = true', r"data\.standardise_label"),
        ('label = "a"\nseparator = ";;"', r"data\.separator"),
        ('label = "a"\ntest_share = 1.0', r"data\.test_share"),
        ("", r"data\.label: is missing"),
    ],
)
def test_keys_that_do_not_fit_together(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(tmp_path, f'name = "table"\nfile = "x.csv"\npartition = "iid"\n{keys}')


def test_a_file_that_is_nowhere(tmp_path: Path) -> None:
    keys = 'name = "table"\nfile = "x/none.csv"\nlabel = "a"\npartition = "iid"'
    with pytest.raises(UserError, match=r'data\.file = "x/none.csv": no such file in the current folder, in'):
        built(tmp_path, keys)


ADULT = """\
name = "table"
file = "adult/adult.data"
test_file = "adult/adult.test"
columns = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
  "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"]
comment = "|"
strip = "."
label = "income"
missing = "fill"
client = "education"
groups = [["Doctorate"], ["*"]]
partition = "natural"
"""


@pytest.mark.long
def test_uci_adult_by_degree(tmp_path: Path) -> None:
    folder = os.environ.get("COTERIE_DATA", "")
    if not (Path(folder) / "adult" / "adult.data").exists():
        pytest.skip("COTERIE_DATA has no adult/adult.data")
    simulation = built(tmp_path, ADULT, "clients.count=2")
    data = simulation.engine.data
    assert data.train.counts.tolist() == [413, 32_561 - 413]
    assert data.test.counts.sum() == 16_281
    assert int(data.train.y.sum()) == 7_841 and int(data.test.y.sum()) == 3_846  # those above 50,000


# Arrays -------------------------------------------------------------------------------------------------

X, Y = np.arange(24.0).reshape(12, 2), np.arange(12) % 3


def arrays(folder: Path, keys: dict[str, Any] | None = None, **found: Any) -> Dataset:
    np.savez(folder / "features.npz", **found)
    file = str(folder / "features.npz")
    return section({"name": "arrays", "file": file, "partition": "iid", **(keys or {})})


def test_arrays_in_parts(tmp_path: Path) -> None:
    who = np.array(["b", "a"])[np.arange(12) // 6]
    data = arrays(tmp_path, x_train=X, y_train=Y, client_train=who, x_test=-X[:3], y_test=Y[:3], other=who)
    assert np.array_equal(data.train_x, X) and np.array_equal(data.test_x, -X[:3])
    assert data.owners is not None and data.owners.names == ("a", "b") and data.owners.test is None
    assert data.outputs == 3 and data.validation_count == 0


def test_arrays_in_one_part(tmp_path: Path) -> None:
    data = arrays(tmp_path, x=X.astype(np.uint8), y=Y, client=Y)
    assert data.owners is not None and data.owners.test is not None
    assert sorted([*data.train_x[:, 0].tolist(), *data.test_x[:, 0].tolist()]) == X[:, 0].tolist()
    assert np.array_equal(data.owners.test, data.test_y)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"x": X}, r"has no array y, but x"),
        ({"features": X, "labels": Y}, r"contains features, labels; needs x, y"),
        ({"x": X, "y": Y, "x_test": X}, r"contains x, y, x_test; needs x, y"),
        ({"x_test": X, "y_test": Y}, r"contains x_test, y_test; needs x, y"),
        ({"x": X, "y": Y.astype(object)}, r"is not a .npz file of arrays of numbers"),
        ({"x": X, "y": Y[:5]}, r"y has shape \(5,\); must be \(12,\)"),
        ({"x": X, "y": Y / 2}, r"y has type float64"),
        ({"x": X * np.nan, "y": Y}, r"x\[0, 0\] is nan"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :1], "y_test": Y}, r"x_test has samples of shape"),
    ],
)
def test_arrays_that_are_refused(tmp_path: Path, found: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"data\.file: .*features\.npz: {message}"):
        arrays(tmp_path, **found)


@pytest.mark.parametrize("name", ["x", "another"])
def test_an_archive_that_asks_for_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Zeros take next to no bytes in it."""
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 2**20)
    zeros = np.zeros((2**17, 1))
    np.savez_compressed(tmp_path / "f.npz", **{"x": X, "y": Y, name: zeros})
    assert (tmp_path / "f.npz").stat().st_size < 2**14
    with pytest.raises(UserError, match=r"f\.npz: exceeds 1 MiB when unpacked; must be smaller"):
        input_file.InputFile("data.file", tmp_path / "f.npz").arrays("x", "y")


def test_a_parquet_table_that_asks_for_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_file, "LIMIT_BYTES", 2**20)
    file = tmp_path / "t.parquet"
    pl.DataFrame({"x": np.zeros(2**17), "y": np.zeros(2**17)}).write_parquet(file)
    assert file.stat().st_size < 2**14
    with pytest.raises(UserError, match=r"t\.parquet: has 131,072 rows of 2 columns, too many to read"):
        read_table(input_file.InputFile("data.file", file), TextFormat(",", "", (), ""))


def test_results_are_of_the_files_content(tmp_path: Path) -> None:
    arrays(tmp_path, x=X, y=Y)
    keys = 'name = "arrays"\nfile = "features.npz"\npartition = "iid"'
    before = digest(load(tmp_path, keys))
    (tmp_path / "elsewhere").mkdir()
    arrays(tmp_path / "elsewhere", x=X, y=Y)
    assert digest(load(tmp_path / "elsewhere", keys)) == before
    arrays(tmp_path, x=X + 1, y=Y)
    assert digest(load_scenario(tmp_path / "world.toml")) != before


def test_clients_are_texts_where_one_is_not_the_number_that_it_looks_like(tmp_path: Path) -> None:
    """ "007" and "7" are two people; without them "10" comes after "9"."""
    ids = ["007", "7", "10", "9", "7", "007"]
    text = "x,paid,id\n" + "".join(f"{n},{'yes' if n % 2 else 'no'},{who}\n" for n, who in enumerate(ids))
    tests = "x,paid,id\n1,yes,7\n"
    write(tmp_path, tests, "t.csv")
    keys = {"client": "id", "partition": "natural", "test_file": str(tmp_path / "t.csv")}
    data = table(tmp_path, text, **keys)
    assert data.owners is not None and data.owners.names == ("007", "10", "7", "9")
    data = table(tmp_path, text.replace("007", "8"), **keys)
    assert data.owners is not None and data.owners.names == ("7", "8", "9", "10")


def test_texts_of_equal_numbers_are_in_order() -> None:
    """The order of unique values of polars is another one in each process."""
    texts = pl.Series([f"{zeros}{number}" for zeros in ("", "0", "00") for number in (10, 7)])
    for shuffled in (texts, texts.reverse()):
        assert sorted_texts(shuffled) == ("007", "07", "7", "0010", "010", "10")


@pytest.mark.parametrize("first", [2**53, 2**63 + 8])  # float64 has no odd number from here on
def test_large_whole_numbers_remain_different_names(tmp_path: Path, first: int) -> None:
    ids = [first, first + 1, first + 2]
    columns = {"x": [1.0, 2.0, 3.0] * 2, "who": pl.Series(ids * 2, dtype=pl.UInt64), "paid": [0, 1] * 3}
    pl.DataFrame(columns).write_parquet(tmp_path / "people.parquet")
    file = str(tmp_path / "people.parquet")
    keys: dict[str, Any] = {"name": "table", "file": file, "test_file": file, "features": ("x",)}
    data = section(keys | {"label": "paid", "client": "who", "partition": "natural"})
    assert data.owners is not None and data.owners.names == tuple(map(str, ids))
    data = section(keys | {"label": "who", "partition": "iid"})
    assert data.train_y.tolist() == [0, 1, 2] * 2
    category = {"features": ("who",), "categorical": ("who",), "label": "paid", "partition": "iid"}
    assert section(keys | category).train_x.tolist() == np.eye(3)[[0, 1, 2] * 2].tolist()


def test_gaps_are_filled_with_what_training_rows_have(tmp_path: Path) -> None:
    """The mean of the rows that were not taken for tests: with them it would be another."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=40)
    gaps = rng.random(40) < 0.3
    rows = [
        f"{'' if gap else value},{n % 2}" for n, (value, gap) in enumerate(zip(values, gaps, strict=True))
    ]
    data = table(
        tmp_path, "x,paid\n" + "\n".join(rows) + "\n", missing="fill", test_file=None, standardise=False
    )
    for part in (data.train_x, data.test_x):
        filled = ~np.isin(part[:, 0], values.astype(np.float32))
        known = data.train_x[:, 0]
        known = known[np.isin(known, values.astype(np.float32))]
        assert filled.any()
        np.testing.assert_allclose(part[filled, 0], known.mean(), rtol=1e-5)


def test_results_are_of_the_content_of_traces_and_graphs_too(tmp_path: Path) -> None:
    from tests.simulation.worlds import QUADRATIC

    edges = write(tmp_path, "0 1\n1 2\n2 3\n3 4\n4 5\n", "edges.txt")
    options = ['clients.topology={kind="edge-list",file="edges.txt"}']
    scenario = load_scenario(write(tmp_path, QUADRATIC), options)
    before = digest(scenario)
    assert digest(load_scenario(write(tmp_path, QUADRATIC), options)) == before
    edges.write_text("0 1\n1 2\n2 3\n3 4\n4 5\n5 0\n")
    assert digest(load_scenario(write(tmp_path, QUADRATIC), options)) != before
    scenario = load_scenario(write(tmp_path, QUADRATIC), options)
    edges.unlink()
    os.mkfifo(edges)
    assert digest(scenario) != before
