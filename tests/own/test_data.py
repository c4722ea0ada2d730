"""Data of the user's own, from a function: read as they are, or refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.results.store.run_directory import RunDirectory
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from tests.own.data_worlds import all_of, built, load, owned

NAME = 'name = "mine.py:load"\n'
IID = NAME + 'partition = "iid"'
# 30 samples (i, i + 0.5) of the class i % 3, of the client "c", "a" or "b".
SAMPLES = """
x = np.stack([np.arange(30.0), np.arange(30) + 0.5], axis=1)
y = np.arange(30) % 3
who = np.array(["c", "a", "b"])[np.arange(30) // 10]
"""
GOOD = {
    "arrays": "def load():\n    return x, y",
    "tensors": "def load():\n    return torch.from_numpy(x), torch.from_numpy(y)",
    "with clients": "def load():\n    return x, y, who",
    "numbers of clients": "def load():\n    return x, y, [7] * 10 + [0] * 10 + [3] * 10",
    "samples": "def load():\n    return [(x[i], y[i]) for i in range(30)]",
    "a generator": "def load():\n    yield from zip(x, y, who)",
    "a data set of torch": (
        "def load():\n    return torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))"
    ),
    "a class of data sets": (
        "class load(Dataset):\n    def __len__(self):\n        return 30\n"
        "    def __getitem__(self, i):\n        return torch.tensor(x[i]), int(y[i])"
    ),
    "a table": 'def load():\n    return {"train": (x, y, who)}',
}  # fmt: skip


@pytest.mark.parametrize("form", GOOD)
def test_all_forms_are_the_same_samples(tmp_path: Path, form: str) -> None:
    simulation = built(tmp_path, IID, code=SAMPLES + GOOD[form])
    train, test = all_of(simulation, "train"), owned(simulation, "test")[0]
    assert np.array_equal(np.sort(np.concatenate([train, test[0][:, 0]])), np.arange(30))
    for x, y in owned(simulation, "train"):
        assert np.array_equal(x[:, 1], x[:, 0] + 0.5)
        assert np.array_equal(y, x[:, 0] % 3)
    assert len(test[0]) == 6
    if "clients" not in form and form not in ("a generator", "a table"):
        assert np.array_equal(np.bincount(test[1]), [2, 2, 2])  # a fifth of each class


def test_parts_of_its_own(tmp_path: Path) -> None:
    parts = '{"train": (x, y), "test": (x[:5] + 100, y[:5]), "validation": (-x[1:7], y[1:7])}'
    code = f"def load():\n    return {parts}"
    simulation = built(tmp_path, IID, code=SAMPLES + code)
    assert np.array_equal(all_of(simulation, "train"), np.arange(30))
    assert np.array_equal(all_of(simulation, "validation"), np.arange(-6, 0))
    assert np.array_equal(owned(simulation, "test")[2][0][:, 0], np.arange(100, 105))
    assert {len(x) for x, _ in owned(simulation, "validation")} == {2}


def test_clients_of_its_own(tmp_path: Path) -> None:
    code = 'def load():\n    return {"train": (x, y, who), "validation": (-x, y, who)}'
    simulation = built(tmp_path, NAME + 'partition = "natural"', code=SAMPLES + code)
    for client, first in enumerate((10, 20, 0)):  # a, b, c
        mine = [owned(simulation, name)[client][0][:, 0] for name in ("train", "test", "validation")]
        assert np.array_equal(np.sort(np.concatenate(mine[:2])), np.arange(first, first + 10))
        assert len(mine[1]) == 2
        assert np.array_equal(np.sort(-mine[2]), np.arange(first, first + 10))


@pytest.mark.parametrize("choose", ["largest", "random"])
def test_some_of_its_clients(tmp_path: Path, choose: str) -> None:
    code = "def load():\n    return x, y, np.repeat([4, 5, 6, 7], [3, 9, 8, 10])"
    partition = f'partition = {{ kind = "natural", choose = "{choose}", tests = "all" }}'
    simulation = built(tmp_path, NAME + partition, code=SAMPLES + code)
    counts = simulation.engine.data.train.counts.tolist()
    assert counts == [7, 6, 8] if choose == "largest" else set(counts) < {2, 7, 6, 8}
    assert set(simulation.engine.data.test.counts) == {1 + 2 + 2 + 2}


@pytest.mark.report
def test_a_regression_is_solved(tmp_path: Path) -> None:
    """The clients' least squares, by gradient descent; the loss is the mean squared error."""
    code = """def load():
    x = np.random.default_rng(0).normal(size=(60, 2))
    return x, x @ [[2.0, 0], [-1, 3]] + 1
"""
    keys = IID + '\ntask = "regression"'
    options = (
        "run.duration=60 s",
        "run.evaluate_every=30 s",
        "training.batch_size=16",
        "run.compare_alone=true",
    )
    result = run_scenario(
        load(tmp_path, keys, *options, code=code), RunOptions(out=tmp_path / "runs", device="cpu")
    )
    assert result.summary["loss"]["mean"] < 1e-6
    assert result.summary["accuracy"] == {} or result.summary["accuracy"]["mean"] is None
    assert result.directory is not None
    table = RunDirectory.load(result.directory).scan("metrics").collect().filter(name="loss")
    assert table["value"][0] > 1
    assert "test loss" in (result.directory / "report.html").read_text()


SEVERAL = """
words = np.stack([y, y + 3, y], axis=1)
def load():
    return (x.reshape(30, 1, 2), words, y * 1.0), y
class Samples(Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, i):
        return (torch.tensor(x[i])[None], words[i], float(y[i])), int(y[i])
class Both(torch.nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        assert input_shape == ((1, 2), (3,), ())
        self.table, self.head = torch.nn.Embedding(7, 4), torch.nn.Linear(2 + 4 + 1, classes)
    def forward(self, numbers, words, last):
        seen = torch.cat([numbers.flatten(1) / 30, self.table(words.long()).mean(1), last[:, None]], dim=1)
        return self.head(seen)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["load", "Samples"])
def test_several_inputs(tmp_path: Path, name: str) -> None:
    keys = f'name = "mine.py:{name}"\npartition = "iid"'
    options = (
        "model.name=mine.py:Both",
        "run.duration=40 s",
        "run.evaluate_every=40 s",
        "training.learning_rate=0.3",
    )
    scenario = load(tmp_path, keys, *options, code=SAMPLES + SEVERAL)
    data = scenario.data.load(3, 1, DataFolder())
    assert data.inputs == ((1, 2), (3,), ()) and data.input_shape == (6,)
    assert np.array_equal(data.train_x[:, 1], data.train_x[:, 0] + 0.5)
    assert np.array_equal(data.train_x[:, 5], data.train_y)
    result = run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu"))
    assert result.summary["accuracy"]["mean"] > 0.7  # the words say the class


@pytest.mark.parametrize("label", [0, 1, 7])
def test_labels_of_a_single_class_are_refused(tmp_path: Path, label: int) -> None:
    code = SAMPLES + f"def load():\n    return x, y * 0 + {label}"
    with pytest.raises(UserError) as refused:
        built(tmp_path, IID, code=code)
    assert f"all 24 training labels are class {label}; the labels must have at least two classes" in str(
        refused.value
    )


def test_its_keys_are_its_arguments_and_it_is_given_what_it_takes(tmp_path: Path) -> None:
    code = """def load(rng, clients, folder, noise: float, sizes: list[int] = [4]):
    assert clients == 3 and folder.name == "here"
    return rng.normal(size=(30, *sizes)), np.arange(30) % 2
"""
    (tmp_path / "here").mkdir()
    keys = IID + "\nnoise = 0.5\nsizes = [2, 5]"
    scenario = load(tmp_path, keys, code=code)
    data = scenario.data.load(3, 1, DataFolder(tmp_path / "here"))
    assert data.input_shape == (2, 5)
    other = scenario.data.load(3, 2, DataFolder(tmp_path / "here"))
    assert not np.array_equal(data.train_x, other.train_x)
    with pytest.raises(UserError, match=r"data.noise = .*must be a number"):
        load(tmp_path, keys.replace("0.5", '"loud"'), code=code)
    with pytest.raises(UserError, match=r"data.nois = .*unknown key; allowed: .*noise"):
        load(tmp_path, keys.replace("noise", "nois"), code=code)
    with pytest.raises(UserError, match=r"data.noise: is missing"):
        load(tmp_path, IID, code=code)


WRONG = {  # what the function returns, and what is said of it
    "nothing": ("None", "NoneType; must be .x, y.*a torch Dataset"),
    "a word": ('"x"', "str; must be"),
    "labels that are too few": ("x, y[1:]", r"y has shape \(29,\); must be \(30,\), a class for each"),
    "labels in rows": ("x, np.eye(3, dtype=int)[y]", r"y has shape \(30, 3\); must be \(30,\), a class"),
    "float labels": ("x, y + 0.5", "y has type float64; must be whole numbers, the classes from 0"),
    "labels that are huge": ("x, y + 10**9", r"y\[0\] is 1000000000; must be a class from 0 to 99,999"),
    "not a number": ("np.where(x == 7, np.nan, x), y", r"x\[7, 0\] is nan, a missing value; fill"),
    "too large": ("x * 1e300, y", r"x\[0, 1\] is 5e\+299; must be a finite float32 number"),
    "a sample that is none": ("[(x[0], 0), 3]", r"sample 1 is 3; must be \(x, y\) or"),
    "ragged arrays": ("([[1.0], [2.0, 3.0]], y[:2])", "x is not an array: ValueError"),
    "one sample": ("x[:1], y[:1]", "has 1 sample; needs at least two of each class"),
    "one sample of each class": ("x[:2], np.arange(2)", "has 2 samples; needs at least two of each"),
    "samples without numbers": ("x[:, 0], y", r"x has shape \(30,\); must be .*x\[:, None\]"),
    "an exhausted generator": ("iter(())", "x: no samples; return at least one"),
    "batches": ("[(x, y)] * 3", r"y has shape \(3, 30\)"),
    "samples of different shapes": (
        "[(x[0], 0), (x[0, :1], 1)]",
        r"sample 1 has 2 values and x of shape \(1,\); must have 2 values and x of shape \(2,\)",
    ),
    "samples without labels": ("iter(x)", r"sample 0 is array.*; must be \(x, y\)"),
    "another part": ('{"train": (x, y), "valid": (x, y)}', "a dict with 'train', 'valid'; must have train"),
    "parts that differ": (
        '{"train": (x, y), "test": (x[:, :1], y)}',
        r"x of test has samples of shape \(1,\); must be \(2,\), as in x of train",
    ),
    "inputs that are too few": ("(x, x[1:]), y", r"x\[1\] has shape \(29, 2\); must be .* as many"),
    "an input that is no number": ("(x, who), y", r"x\[1\] has type <U1"),
    "clients that are too few": ("x, y, who[1:]", r"clients has shape \(29,\); must be \(30,\)"),
    "a part without clients": (
        '{"train": (x, y, who), "validation": (x, y)}',
        "clients of validation is missing",
    ),
    "an exception": ("x[99]", "failed: IndexError: index 99 is out of bounds"),
    "an exception in a data set": ("(1 / 0 for _ in x)", "failed: ZeroDivisionError: division by zero"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_file_and_line(tmp_path: Path, name: str) -> None:
    returned, message = WRONG[name]
    code = f"{SAMPLES}def load():\n    return {returned}"
    line = 9 if "failed" in message else 8
    with pytest.raises(UserError) as refused:
        built(tmp_path, IID, code=code)
    assert re.search(
        rf'data\.name = ".*mine\.py:load": .*mine\.py:{line}: load .*{message}', str(refused.value)
    )


@pytest.mark.parametrize(
    ("keys", "returned", "message"),
    [
        (IID + "\nclasses = 2", "x, y", r"y\[2\] is 2; must be a class from 0 to 1, as data.classes = 2"),
        (IID + '\ntask = "regression"', "x, who", "y has type <U1; must be real numbers"),
        (IID + '\ntask = "regression"', "x, y[:5]", r"y has shape \(5,\); must be \(30,\), or \(30, num"),
        (IID + '\ntask = "regression"', "x, y / 0", r"y\[0\] is nan"),
        (NAME + 'partition = "natural"', "x, y", "the data set has no owners of samples"),
        (NAME + 'partition = "natural"', "x, y, y // 2", "the data set has 2 clients .0, 1.; must be 2"),
        (
            NAME + 'partition = "natural"',
            'dict(train=(x, y, who), test=(x, y))',
            'data.partition.tests = "own": the data set does not give the client of each test sample; must',
        ),
        (
            NAME + 'partition = "natural"',
            'dict(train=(x, y, who), test=(x[:20], y[:20], who[:20]))',
            r'client 1 \("b" in the data\) has no test samples; data.partition.tests',
        ),
        (
            NAME + 'partition = { kind = "dirichlet", alpha = 1 }',
            "dict(train=(x, y), validation=(x, y))",
            "data.partition: does not distribute the validation part of the data",
        ),
        (IID + "\nvalidation_share = 0.1", "dict(train=(x, y), validation=(x, y))", "validation_share = 0.1"),
        (
            NAME + 'partition = { kind = "classes-per-client", classes = 5 }',
            "x, y",
            "data.partition.classes = 5: must be at most the number of classes",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_keys(tmp_path: Path, keys: str, returned: str, message: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(UserError, match=message):
        built(
            tmp_path,
            keys,
            code=f"{SAMPLES}def load():\n    with np.errstate(all='ignore'):\n        return {returned}",
        )


def test_a_regression_has_no_classes_to_share_out(tmp_path: Path) -> None:
    keys = NAME + 'task = "regression"\npartition = { kind = "dirichlet", alpha = 1 }'
    with pytest.raises(UserError, match=r'data.partition.kind = "dirichlet": distributes samples by class'):
        load(tmp_path, keys, code=SAMPLES + "def load():\n    return x, y")


@pytest.mark.parametrize(
    "options", [["model.name=point"], ["model.name=decoupled", 'model.backbones=["small-mlp"]']]
)
def test_models_that_predict_no_numbers_are_refused(tmp_path: Path, options: list[str]) -> None:
    message = (
        r'model\.name = .*does not support data\.task = "regression"; must be one of logistic-regression, mlp'
    )
    with pytest.raises(UserError, match=message):
        load(tmp_path, IID + '\ntask = "regression"', *options, code=SAMPLES + "def load():\n    return x, y")


def test_an_endless_data_set_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.learning.data.own.NUMBERS_MAX", 1000)
    code = SAMPLES + "import itertools\ndef load():\n    return itertools.cycle([(x[0], 0)])"
    with pytest.raises(UserError, match=r"more than 1,000 numbers; return fewer .is the iterator endless"):
        built(tmp_path, IID, code=code)
