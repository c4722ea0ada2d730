"""A run that goes on, forks or is explained says so if a file or a data set has changed since."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.learning.image_files import GREY, idx, put_idx_files
from tests.resume.test_forks import done
from tests.resume.test_resume import coterie
from tests.simulation import test_language_models as language_models
from tests.simulation.worlds import write

QUIET = ("--quiet", "--device", "cpu")
TABLE = """\
[run]
duration = "2 s"
evaluate_every = "1 s"

[clients]
count = 3

[data]
DATA

[model]
name = "logistic-regression"

[training]
learning_rate = 0.1
batch_size = 4

[protocol]
name = "gossip"

[network]
latency = "20 ms"
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = "100 ms"
"""


def table(folder: Path) -> Path:
    write(folder, "x,y,label\n" + "".join(f"{n},{n % 7},{n % 2}\n" for n in range(60)), "table.csv")
    keys = ['name = "table"', 'file = "table.csv"', 'label = "label"', 'partition = "iid"']
    return write(folder, TABLE.replace("DATA", "\n".join(keys)))


def change_table(folder: Path) -> str:
    write(folder, (folder / "table.csv").read_text().replace("7,0,1", "7,5,1", 1), "table.csv")
    return "the content of table.csv was "


def named(folder: Path) -> Path:
    put_idx_files(folder / "MNIST/raw")
    return write(folder, TABLE.replace("DATA", 'name = "mnist"\npartition = { kind = "iid" }'))


def change_named(folder: Path) -> str:
    """Swap two pixels of one image, which neither the sum of its pixels nor its size tells."""
    images = GREY.copy()
    row, column = next(zip(*np.nonzero(images[0] != images[0, 0, 0]), strict=True))
    images[0, 0, 0], images[0, row, column] = images[0, row, column], images[0, 0, 0]
    (folder / "MNIST/raw/train-images-idx3-ubyte").write_bytes(idx(images))
    return "the clients' data was "


def frozen(folder: Path) -> Path:
    return language_models.world(folder)


def change_frozen(folder: Path) -> str:
    language_models.world(folder, seed=2)
    return "the content of base.safetensors was "


@pytest.mark.parametrize(
    ("make", "change"), [(table, change_table), (named, change_named), (frozen, change_frozen)]
)
def test_a_changed_input_is_noticed(
    tmp_path: Path, make: Callable[[Path], Path], change: Callable[[Path], str]
) -> None:
    run = done("run", make(tmp_path), "--out", tmp_path / "runs", "--data-dir", tmp_path)
    explain = ("explain", run, "--at", "1 s", "--client", 0, "--data-dir", tmp_path)
    assert coterie(*explain).stderr == ""
    problem = change(tmp_path)
    for words in (
        ("fork", run, "--at", "1 s", "--set", "training.learning_rate=0.2"),  # before the first checkpoint
        ("fork", run, "--at", "2 s", "--set", "training.learning_rate=0.2", "--set", "run.duration=3 s"),
        ("resume", run, "--until", "4 s"),
    ):
        refused = coterie(*words, "--data-dir", tmp_path, *QUIET)
        assert refused.exit_code == 2 and problem in refused.stderr, refused.output
    explained = coterie(*explain)
    assert (
        f"this replay may differ from the run in {run}: " in explained.stderr and problem in explained.stderr
    )
