"""What fails between a file of the user's and the first step: `check` says it, with its line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli.commands import app
from tests.simulation.worlds import DIGITS, QUADRATIC, write

NORM = "nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))"
MODEL = "from torch import nn\n\n\ndef net(classes):\n    return {}\n"
SQUEEZE = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(64, classes)

    def forward(self, x):
        y = self.layer(x).squeeze(0)
        return y.reshape(len(x), y.shape[1])
"""
ONE = "batch normalization needs several samples: training.batch_size"


def answered(folder: Path, verb: str, text: str, code: str, *options: str) -> tuple[int, str]:
    (folder / "own.py").write_text(code, encoding="utf-8")
    given = [each for option in options for each in ("--set", option)]
    where = ["--out", str(folder / "runs"), "--quiet"] if verb == "run" else []
    result = CliRunner().invoke(app, [verb, str(write(folder, text)), *given, *where])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def partition(folder: Path, *sizes: int) -> str:
    rows = iter(range(sum(sizes)))
    (folder / "one.json").write_text(json.dumps([[next(rows) for _ in range(size)] for size in sizes]))
    return f"data.partition={{kind='file',path={str(folder / 'one.json')!r}}}"


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize(
    ("sizes", "batch", "who"),
    [
        ((1, 9, 9, 4, 5, 6), 8, "client-0 trains on one sample at a time (it owns 1)"),
        ((4, 9, 9, 4, 1, 6), 4, "client-4 trains on one sample at a time (it owns 1)"),
        ((4, 9, 9, 4, 5, 6), 1, "client-0 trains on one sample at a time (it owns 4)"),
    ],
)
def test_a_batch_of_one_under_a_batch_norm(
    tmp_path: Path, verb: str, sizes: tuple[int, ...], batch: int, who: str
) -> None:
    options = [
        "model={name='own.py:net'}",
        partition(tmp_path, *sizes),
        f"clients.count={len(sizes)}",
        f"training.batch_size={batch}",
    ]
    code, said = answered(tmp_path, verb, DIGITS, MODEL.format(NORM), *options)
    assert (code, said.count("\n")) == (2, 1)
    assert ONE in said and who in said


def test_a_model_that_drops_the_dimension_of_one_sample(tmp_path: Path) -> None:
    options = [
        "model={name='own.py:Net'}",
        partition(tmp_path, 4, 9, 1, 4, 5, 6),
        "clients.count=6",
        "training.batch_size=4",
    ]
    code, said = answered(tmp_path, "check", DIGITS, SQUEEZE, *options)
    assert code == 2
    assert (
        f"{tmp_path / 'own.py'}:11: Net cannot be computed: client-2 trains on one sample at a time" in said
    )


def test_batches_of_one_are_fine_for_other_models(tmp_path: Path) -> None:
    options = [partition(tmp_path, 1, 1, 1, 1, 1, 1), "clients.count=6", "training.batch_size=1"]
    code, said = answered(tmp_path, "check", DIGITS, "", *options)
    assert code == 0, said


CLIENT = """\
from dataclasses import dataclass

from pydantic import model_validator

from protocols.framework.client import Client


class Own(Client):
    class Settings(Client.Settings):
        x: int = 3
{}
    async def step(self):
        await self.sleep(1)
"""
FAULTS = {
    "a validator that divides": (
        "        @model_validator(mode='after')\n"
        "        def sound(self):\n            return self if 1 / (self.x - 4) else self  # here\n",
        "Own.Settings() failed: ZeroDivisionError: division by zero",
    ),
    "a validator that looks up": (
        "        @model_validator(mode='before')\n"
        "        def sound(cls, given):\n            return {'x': given['y']}  # here\n",
        "Own.Settings() failed: KeyError: 'y'",
    ),
    "a property that divides": (
        "        @property\n        def fraction(self):\n            return 1 / (self.x - 4)  # here\n",
        "ZeroDivisionError: division by zero",
    ),
    "an objective whose views fail": (
        "    @classmethod\n    def objective(cls, settings):\n        return Mine()\n\n"
        "class Mine:\n    __call__ = print\n\n"
        "    @property\n    def views(self):\n        return {}['x']  # here\n"
        "class Own(Own):\n",
        "KeyError: 'x'",
    ),
}


@pytest.mark.parametrize(("body", "complaint"), FAULTS.values(), ids=FAULTS.keys())
def test_what_the_users_code_raises_is_told_with_its_line(tmp_path: Path, body: str, complaint: str) -> None:
    code = CLIENT.format(body)
    [line] = [number for number, text in enumerate(code.splitlines(), 1) if text.endswith("# here")]
    text = QUADRATIC.replace('name = "local"', 'name = "own.py:Own"\nx = 4')
    code_of_exit, said = answered(tmp_path, "check", text, code)
    assert code_of_exit == 2
    assert f"{tmp_path / 'own.py'}:{line}: {complaint}" in said
