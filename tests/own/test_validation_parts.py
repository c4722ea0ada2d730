"""Validation parts that the data contain: used for validation, or named in a notice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.data.kinds import DATASETS
from sim.run.setup.checking import check
from tests.own.data_worlds import built, load, owned
from tests.own.test_huggingface import GREY, images, read, saved, unscaled
from tests.own.test_image_folders import alike
from tests.own.test_tables import PEOPLE, TESTS, table
from tests.simulation.worlds import write


def validation_of(data: Any) -> tuple[np.ndarray, np.ndarray]:
    first = len(data.train_y) - data.validation_count
    return data.train_x[first:], data.train_y[first:]


def test_a_split_called_validation_is_used(tmp_path: Path) -> None:
    splits = {"train": images(), "validation": images(GREY[:9]), "test": images(GREY[9:15])}
    data = read(saved(tmp_path / "s", **splits))
    x, y = validation_of(data)
    assert np.array_equal(unscaled(data, x), GREY[:9, None])
    assert y.tolist() == [0, 1, 2] * 3
    assert data.notices == ()
    without = read(saved(tmp_path / "t", **{name: splits[name] for name in ("train", "test")}))
    assert np.array_equal(without.train_x, data.train_x[:30])
    assert without.scaling == data.scaling


def test_each_client_validates_on_its_part(tmp_path: Path) -> None:
    rows = {"x": np.arange(30.0), "y": np.arange(30) % 2, "who": np.repeat(["a", "b", "c"], 10)}
    some = {name: column[[1, 11, 12, 29]] for name, column in rows.items()}
    kinds = {"x": {"_type": "Value"}, "y": {"_type": "Value"}, "who": {"_type": "Value"}}
    source = saved(tmp_path / "s", kinds, train=rows, validation=some, test=rows)
    keys = f'name = "huggingface"\nsource = "{source}"\nlabel = "y"\nclient = "who"\npartition = "natural"'
    simulation = built(tmp_path, keys + "\nstandardise = false")
    assert [x[:, 0].tolist() for x, _ in owned(simulation, "validation")] == [[1.0], [11.0, 12.0], [29.0]]
    assert [len(x) for x, _ in owned(simulation, "train")] == [10, 10, 10]


def test_another_split_can_be_named(tmp_path: Path) -> None:
    source = saved(tmp_path / "s", train=images(), validation=images(GREY[:9]), dev=images(GREY[:3]))
    assert read(source, validation_split="dev").validation_count == 3
    assert read(source, test_split="validation").validation_count == 0
    with pytest.raises(UserError, match=r"has no split 'none', the value of data\.validation_split"):
        read(source, validation_split="none")
    with pytest.raises(ValueError, match=r"must be different from data\.split and data\.test_split"):
        read(source, validation_split="train")


@pytest.mark.parametrize(
    "keys, reason",
    [
        (
            {"partition": {"kind": "dirichlet", "alpha": 1.0}},
            'data.partition = "dirichlet" does not distribute',
        ),
        ({"validation_share": 0.2}, "data.validation_share = 0.2 holds out training samples"),
    ],
)
def test_a_part_that_cannot_be_used_is_named(tmp_path: Path, keys: dict[str, Any], reason: str) -> None:
    splits = {"train": images(), "validation": images(GREY[:9]), "test": images(GREY[9:15])}
    data = read(saved(tmp_path / "s", **splits), **keys)
    assert data.validation_count == 0
    [notice] = data.notices
    assert f"the validation part of the data is not used, because {reason}" in notice


def test_a_stated_split_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "s", train=images(), validation=images(GREY[:9]), test=images(GREY[9:15]))
    keys = f'name = "huggingface"\nsource = "{source}"\nvalidation_split = "validation"\n'
    scenario = load(tmp_path, keys + 'partition = { kind = "dirichlet", alpha = 1 }')
    with pytest.raises(UserError, match=r"data\.partition: does not distribute the validation part"):
        check(scenario)


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_folder_of_images_for_validation(tmp_path: Path, name: str) -> None:
    alike(tmp_path / "train"), alike(tmp_path / "test", 3), alike(tmp_path / name, 2)
    keys = {"name": "images", "source": str(tmp_path), "partition": "iid"}
    data = DATASETS["images"].model_validate(keys).load(3, 1, DataFolder())
    x, y = validation_of(data)
    assert len(x) == len(y) == 2 * len(set(y.tolist()))
    assert len(data.test_y) == 3 * len(set(y.tolist()))


def test_two_folders_for_validation_are_refused(tmp_path: Path) -> None:
    for name in ("train", "test", "val", "valid"):
        alike(tmp_path / name, 2)
    keys = {"name": "images", "source": str(tmp_path), "partition": "iid"}
    with pytest.raises(UserError, match="has test, val, valid; must have at most one of val, valid, val"):
        DATASETS["images"].model_validate(keys).load(3, 1, DataFolder())


def test_a_table_for_validation(tmp_path: Path) -> None:
    write(tmp_path, TESTS.replace("44", "50"), "validation.csv")
    keys = {"validation_file": str(tmp_path / "validation.csv"), "standardise": False}
    data = table(tmp_path, PEOPLE, leave_out=("city", "hospital"), **keys)
    x, y = validation_of(data)
    assert x.tolist() == [[50, 2], [50, 3], [50, 1]]
    assert y.tolist() == [0, 1, 1]
