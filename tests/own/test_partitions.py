"""Partitions of the user's own: a function, or a file of lists; checked, or refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import UserError
from sim.learning.partitions.dealing import Labels, Owners
from sim.learning.partitions.kinds import PARTITIONS
from sim.learning.partitions.partition import Partition
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.own.data_worlds import built
from tests.simulation.worlds import DIGITS, write

DATA = 'name = "digits"\npartition = { kind = "mine.py:split", KEYS }'
LABELS = Labels(np.arange(12) % 4, np.arange(6) % 4, 4)
LISTS = [[0, 1], [5, 3], [2]]


def own(keys: str = "overlap = false") -> str:
    return DATA.replace("KEYS", keys)


def from_file(path: Path, labels: Labels = LABELS, clients: int = 3, **keys: Any) -> Partition:
    section = PARTITIONS["file"].model_validate({"kind": "file", "path": str(path), **keys})
    return section.deal(labels, clients, 0)


@pytest.mark.long
def test_a_function_shares_the_samples_out(tmp_path: Path) -> None:
    code = """def split(rng, labels, test_labels, clients, share: float = 0.5):
    assert len(labels) + len(test_labels) == 1797 and labels.dtype == np.int64
    labels[:] = 0  # its own copy
    rows = rng.permutation(len(labels))[: int(share * len(labels))]
    return {"train": np.array_split(rows, clients), "test": [[i, i + 9] for i in range(clients)]}
"""
    simulation = built(tmp_path, own("share = 0.25"), code=code)
    data = simulation.engine.data
    assert data.train.counts.sum() == 359 and set(data.test.counts) == {2}
    again = built(tmp_path, own("share = 0.25"), code=code)
    assert np.array_equal(data.train.rows.numpy(), again.engine.data.train.rows.numpy())
    other = built(tmp_path, own("share = 0.25"), "run.seed=2", code=code)
    assert not np.array_equal(data.train.rows.numpy(), other.engine.data.train.rows.numpy())
    assert set(np.unique(data.train.y.numpy())) == set(range(10))


def test_beside_data_of_ones_own(tmp_path: Path) -> None:
    code = """def give(count: int):
    return np.arange(2.0 * count).reshape(count, 2), np.arange(count) % 2
def split(labels, clients):
    return [np.flatnonzero(np.arange(len(labels)) % clients == k) for k in range(clients)]
"""
    data = 'name = "mine.py:give"\ncount = 40\npartition = "mine.py:split"'
    simulation = built(tmp_path, data, code=code)
    assert simulation.engine.data.train.counts.tolist() == [11, 11, 10]


WRONG = {
    "an index beyond": ("[[0], [1], [99999]]", r"train\[2\]\[0\] is 99999; must be from 0 to 1,4\d\d"),
    "too few clients": ("[[0], [1]]", "train has lists for 2 clients; must have 3, as in clients.count"),
    "nobody's": ("[[0], [1], []]", r"train\[2\] has .*; must be a list of whole numbers, at least one"),
    "twice in one": ("[[0], [1], [4, 4]]", r"train\[2\] contains the sample 4 twice"),
    "two clients'": ("[[0], [1], [4, 0]]", "clients 0 and 2 both have the sample 0; assign it to one client"),
    "numbers with a point": ("[[0.0], [1], [2]]", r"train\[0\] has type float64 and shape \(1,\)"),
    "ragged lists": ("[[[0], [1, 2]], [1], [2]]", r"train\[0\] has type object and shape \(0,\)"),
    "other parts": ('{"train": [[0], [1], [2]], "tests": []}', "has 'train', 'tests'; must be a list"),
    "validated on what it trains on": (
        '{"train": [[0], [1], [2]], "validation": [[3], [1], [4]]}',
        "client 1 has the sample 1 in train and in validation",
    ),
    "validated on another's": (
        '{"train": [[0], [1], [2]], "validation": [[3], [0], [4]]}',
        "clients 0 and 1 both have the sample 0",
    ),
    "an exception": ("labels[99999]", "failed: IndexError"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_what_a_function_does_wrong_is_refused_with_file_and_line(tmp_path: Path, name: str) -> None:
    returned, message = WRONG[name]
    code = f"def split(labels):\n    return {returned}"
    line = 5 if "failed" in message else 4
    with pytest.raises(UserError) as refused:
        built(tmp_path, own(), code=code)
    key = r'data\.partition\.kind = ".*mine\.py:split": '
    assert re.search(rf"{key}.*mine\.py:{line}: split .*{message}", str(refused.value))


def test_samples_may_be_shared_where_it_is_said(tmp_path: Path) -> None:
    lists = [[0, 1], [1, 2], [0, 2]]
    partition = from_file(write(tmp_path, json.dumps(lists), "who.json"), overlap=True)
    assert [row.tolist() for row in partition.train] == lists


def test_lists_from_json_and_npz_are_the_same(tmp_path: Path) -> None:
    parts = {"train": LISTS, "test": [[0], [1, 2], [0, 5]], "validation": [[4], [6], [7, 8]]}
    text = from_file(write(tmp_path, json.dumps(parts), "who.json"))
    arrays = {f"{name}_{client}": np.array(row) for name in parts for client, row in enumerate(parts[name])}
    np.savez(tmp_path / "who.npz", **arrays)
    binary = from_file(tmp_path / "who.npz")
    for name, lists in parts.items():
        for partition in (text, binary):
            assert [row.tolist() for row in getattr(partition, name)] == [sorted(row) for row in lists]


def test_without_lists_of_test_samples_all_are_tested_on_all(tmp_path: Path) -> None:
    partition = from_file(write(tmp_path, json.dumps(LISTS), "who.json"))
    assert [row.tolist() for row in partition.test] == [list(range(6))] * 3
    assert partition.validation is None


def test_a_file_beside_the_scenario(tmp_path: Path) -> None:
    write(tmp_path, json.dumps(LISTS), "who.json")
    simulation = built(tmp_path, 'name = "digits"\npartition = { kind = "file", path = "who.json" }')
    assert simulation.engine.data.train.counts.tolist() == [2, 2, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[0], [1]", "is not JSON, or is damaged"),
        ("", "is empty"),
        ("[[0], [1], [12]]", r"train\[2\]\[0\] is 12; must be from 0 to 11"),
        ("[[0], [1], null]", r"train\[2\] has type object"),
        ('"012"', "train is of type str"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text, "who.json")
    with pytest.raises(UserError, match=rf"data\.partition\.path: .*who\.json: {message}"):
        from_file(path)


def test_what_is_wrong_in_arrays(tmp_path: Path) -> None:
    path = tmp_path / "who.npz"
    np.savez(path, train_0=[0], train_2=[1])
    with pytest.raises(UserError, match=r"has no array train_1, but train_0, train_2"):
        from_file(path)
    np.savez(path, rows=[0])
    with pytest.raises(UserError, match=r"has no array train_0"):
        from_file(path)
    with pytest.raises(UserError, match=r"nowhere\.npz: no such file"):
        from_file(tmp_path / "nowhere.npz")


def test_a_validation_part_of_the_datas_own_comes_behind_the_training_part(tmp_path: Path) -> None:
    labels = Labels(np.arange(3), np.arange(2), 3, np.arange(3))
    lists = {"train": [[0], [1], [2]], "validation": [[3], [4], [5]]}
    partition = from_file(write(tmp_path, json.dumps(lists), "who.json"), labels)
    assert partition.validation is not None
    assert [row.tolist() for row in partition.validation] == lists["validation"]
    with pytest.raises(UserError, match=r"has no validation lists, but the data set has a validation part"):
        from_file(write(tmp_path, json.dumps(lists["train"]), "who.json"), labels)


def test_natural_clients_are_in_the_order_of_their_names() -> None:
    owners = Owners(("a", "b", "c"), np.array([2, 0, 1, 0]), np.array([1, 2, 0]), np.array([0, 0, 2, 1]))
    labels = Labels(np.zeros(4, int), np.zeros(3, int), 2, np.zeros(4, int), owners)
    partition = PARTITIONS["natural"].model_validate({"kind": "natural"}).deal(labels, 3, 0)
    assert partition.validation is not None
    assert [row.tolist() for row in partition.train] == [[1, 3], [2], [0]]
    assert [row.tolist() for row in partition.test] == [[2], [0], [1]]
    assert [row.tolist() for row in partition.validation] == [[4, 5], [7], [6]]


@pytest.mark.parametrize(
    "stated", ["kind='iid'", "kind='dirichlet',alpha=0.3", "kind='classes-per-client',classes=2"]
)
def test_every_client_can_be_tested_on_everything(tmp_path: Path, stated: str) -> None:
    text, override = write(tmp_path, DIGITS), f"data.partition={{{stated},tests='all'}}"
    for unset, wanted in (((), 50), (("data.test_samples",), None)):
        world = build(load_scenario(text, [override], unset=unset), device="cpu")
        tests = world.engine.data.test
        assert tests.counts.tolist() == [wanted or len(tests.x)] * len(world.clients)
        world.close()
