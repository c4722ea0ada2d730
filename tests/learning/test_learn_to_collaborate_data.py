"""The data of Learning to Collaborate: its synthetic regression, and UCI Adult."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.data.dataset import DataSection
from sim.learning.data.kinds import Data

ROW = "39, Private, 77516, {education}, 13, Single, Sales, Single, White, Male, {gain}, 0, 40, Cuba, {income}"


def section(**keys: Any) -> DataSection:
    return TypeAdapter(Data).validate_python(keys)


def adult(tmp_path: Path, train: list[str], test: list[str]) -> Path:
    (tmp_path / "adult").mkdir(exist_ok=True)
    for name, rows in (("adult.data", train), ("adult.test", ["|1x3 Cross validator", *test])):
        (tmp_path / "adult" / name).write_text("\n".join(rows) + "\n\n")
    return tmp_path


def row(education: str = "Bachelors", gain: int | str = 0, income: str = "<=50K") -> str:
    return ROW.format(education=education, gain=gain, income=income)


def test_clients_are_near_a_common_function_and_half_have_the_opposite_sign() -> None:
    data = section(name="synthetic-regression", samples=400, rho=0.1, noise=0.01, test_samples=10)
    loaded = data.load(4, 1, DataFolder())
    partition, validation = data.share_out(loaded, 4, 1)
    assert partition.clusters == (0, 0, 1, 1) and [len(rows) for rows in validation] == [0] * 4
    fitted = []
    for rows in partition.train:
        x, y = loaded.train_x[rows], loaded.train_y[rows, 0]
        assert np.abs(x).max() <= 1
        weights, *_ = np.linalg.lstsq(x, y, rcond=None)
        assert (x @ weights - y).std() == pytest.approx(0.01, rel=0.2)
        fitted.append(weights)
    fitted = [*fitted[:2], *[-weights for weights in fitted[2:]]]
    mean = np.mean(fitted, axis=0)
    assert mean.min() > -0.4 and mean.max() < 1.4
    assert np.std(fitted, axis=0, ddof=1).mean() == pytest.approx(0.1, rel=0.35)


def test_a_client_keeps_its_samples_whoever_else_there_is_and_holds_some_back() -> None:
    data = section(name="synthetic-regression", samples=30, test_samples=5, dimension=3, validation_share=0.2)
    few, many = [data.load(count, 1, DataFolder()) for count in (2, 4)]
    np.testing.assert_array_equal(few.train_x[:30], many.train_x[:30])
    partition, validation = data.share_out(many, 4, 1)
    for client, (train, held_back) in enumerate(zip(partition.train, validation, strict=True)):
        assert len(held_back) == 6
        assert sorted([*train, *held_back]) == list(range(30 * client, 30 * client + 30))


def test_more_samples_than_fit_are_refused() -> None:
    data = section(name="synthetic-regression", samples=1_000_000, dimension=1000)
    [misfit] = data.misfits(6)
    assert misfit.key == "data.samples" and "do not fit in memory" in misfit.problem


def test_adult_by_hand(tmp_path: Path) -> None:
    train = [row(), row("Doctorate", 100, ">50K"), row("Doctorate")]
    folder = adult(tmp_path, train, [row(income=">50K."), row("Doctorate"), row("Masters")])
    data = section(name="adult", partition="natural")
    loaded = data.load(2, 1, DataFolder(folder))
    assert loaded.train_y.tolist() == [0, 1, 0] and loaded.test_y.tolist() == [1, 0, 0]
    assert loaded.owners is not None and loaded.owners.names == ("non-PhD", "PhD")
    partition, _ = data.share_out(loaded, 2, 1)
    assert [rows.tolist() for rows in partition.train] == [[0], [1, 2]]
    assert [rows.tolist() for rows in partition.test] == [[0, 2], [1]]
    # Five numbers, then 7 categories of one value and education with two of them.
    assert loaded.input_shape == (14,)
    gain = np.log1p([0.0, 100.0, 0.0])
    np.testing.assert_allclose(loaded.train_x[:, 2], (gain - gain.mean()) / gain.std(), rtol=1e-6)
    assert loaded.train_x[:, 0].tolist() == [0, 0, 0], "a number that is always the same says nothing"
    assert loaded.train_x[:, 6:8].tolist() == [[1, 0], [0, 1], [0, 1]]
    assert loaded.test_x[2, 6:8].tolist() == [0, 0], "a value that nobody in the training part has"


def test_categories_alone_are_without_numbers_and_unknown_values(tmp_path: Path) -> None:
    train = [row(), row("Doctorate", 100), row().replace("Cuba", "?")]
    folder = adult(tmp_path, train, [row(), row("Doctorate")])
    loaded = section(name="adult", partition="natural", features="categories").load(2, 1, DataFolder(folder))
    # 7 categories of one value and education with two of them: workclass, then Bachelors and Doctorate.
    assert loaded.train_x.tolist() == [[1, 1, 0, *[1] * 6], [1, 0, 1, *[1] * 6], [1, 1, 0, *[1] * 5, 0]]


@pytest.mark.parametrize(
    ("spoiled", "problem"),
    [
        ("a, b", "adult.data, line 2: has 2 values; must have 15, one for each column"),
        (row(income="50K"), "row 2: income is '50K'; must be <=50K or >50K"),
        (row(gain="much"), "row 2: column 'capital-gain' is 'much'; must be a finite float32 number"),
    ],
)
def test_a_spoiled_row_is_refused(tmp_path: Path, spoiled: str, problem: str) -> None:
    folder = adult(tmp_path, [row(), spoiled], [row()])
    with pytest.raises(UserError, match="adult") as refused:
        section(name="adult", partition="natural").load(2, 1, DataFolder(folder))
    assert problem in str(refused.value)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs adult\.data, which is not in .*adult"):
        section(name="adult", partition="natural").load(2, 1, DataFolder(tmp_path))


def test_the_real_adult_has_the_numbers_of_its_page() -> None:
    folder = os.environ.get("COTERIE_DATA")
    if not (folder and (Path(folder) / "adult").is_dir()):
        pytest.skip("needs adult in the folder COTERIE_DATA")
    data = section(name="adult", partition="natural")
    loaded = data.load(2, 1, DataFolder())
    assert (len(loaded.train_y), int(loaded.train_y.sum())) == (32_561, 7_841)
    assert (len(loaded.test_y), int(loaded.test_y.sum())) == (16_281, 3_846)
    partition, _ = data.share_out(loaded, 2, 1)
    assert [len(rows) for rows in partition.train] == [32_148, 413]
    of_categories = section(name="adult", partition="natural", features="categories")
    assert of_categories.load(2, 1, DataFolder()).input_shape == (99,), "as in the papers"
