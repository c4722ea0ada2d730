"""What beginners do silently wrong is told at the end of a run, with its line."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.swallowed import silent_handlers
from sim.scenario.scenario import load_scenario
from tests.simulation.worlds import QUADRATIC, load

CATCHES = """\
import random
from coterie import Client, PeerUnavailable

class Own(Client):
    async def step(self):
        update = await self.train()
        try:
            self.params = self.params + 0.5 * update
            self.use(1)
        except KeyError:
            raise
        except {kind}:
            {then}

    def use(self, numbers):
        {fails}
"""


def warnings(folder: Path, text: str, **more: Any) -> list[str]:
    (folder / "own.py").write_text(text)
    scenario = load(folder, QUADRATIC.replace('"local"', '"own.py:Own"'))
    result = run_scenario(scenario, RunOptions(out=folder / "runs", device="cpu", **more))
    found: list[str] = result.summary["warnings"]
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["Exception", "BaseException", "(ValueError, Exception)"])
def test_errors_that_a_method_swallows_are_told(here: Path, kind: str) -> None:
    text = CATCHES.format(kind=kind, then="pass", fails="self.parms")
    [said] = warnings(here, text)
    count, _, rest = said.partition(
        " errors were caught and not reported in the code of client-0 and 5 others; "
    )
    assert int(count) > 6
    assert rest.startswith("the first: own.py:16: AttributeError: 'Own' object has no attribute 'parms'")
    assert rest.endswith("(caught at own.py:12)")


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "then", "fails"),
    [
        ("Exception", "pass", "pass"),  # nothing is caught
        ("Exception", "print('oh')", "self.parms"),
        ("Exception as error", "self.error = error", "self.parms"),
        ("AttributeError", "pass", "self.parms"),
        ("Exception", "pass", "raise PeerUnavailable('client-1', 'silent')"),  # as in bad weather
    ],
)
def test_what_is_told_meant_or_expected_is_not(here: Path, kind: str, then: str, fails: str) -> None:
    assert warnings(here, CATCHES.format(kind=kind, then=then, fails=fails)) == []


def test_only_methods_with_such_handlers_are_traced(here: Path) -> None:
    text = CATCHES.format(kind="KeyError", then="pass", fails="assert sys.gettrace() is None")
    assert warnings(here, f"import sys\n{text}") == []
    assert silent_handlers(str(here / "own.py")) == frozenset()


DRAWS = """\
import random, torch
import random as r
import numpy as np
from numpy.random import default_rng
from random import shuffle
from torch import randn
from coterie import Client

class Own(Client):
    async def step(self):
        update = await self.train()
        self.draw()
        self.params = self.params + 0.5 * update

    def draw(self):
        {draw}
"""


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        ("random.random()", "random"),
        ("r.choice(self.peers)", "random"),
        ("shuffle([1, 2])", "random"),
        ("np.random.rand()", "numpy.random"),
        ("randn(2)", "torch"),
        ("torch.zeros(2).normal_()", "torch"),
    ],
)
def test_draws_from_generators_that_all_code_shares_are_told(here: Path, draw: str, name: str) -> None:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    [said] = warnings(here, DRAWS.format(draw=draw))
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    assert said.startswith(f"random numbers were drawn from the generator of {name} that all code shares")
    assert "(own.py:16)" in said and "self.rng" in said


def test_a_generator_without_a_seed_is_told(here: Path) -> None:
    [said] = warnings(here, DRAWS.format(draw="default_rng().random()"))
    assert said.startswith("numpy.random.default_rng() without a seed (own.py:16)")


@pytest.mark.parametrize(
    "draw",
    [
        "self.rng.random()",
        "default_rng(self.rng.integers(9)).random()",
        "random.Random(3).random()",
        "torch.rand(2, generator=torch.Generator().manual_seed(1))",
    ],
)
def test_draws_that_the_seed_sets_are_not(here: Path, draw: str) -> None:
    assert warnings(here, DRAWS.format(draw=draw)) == []


def test_a_shipped_method_draws_from_none(tmp_path: Path) -> None:
    short = {"run.duration": "20 s"}
    scenario = load_scenario("gossip", [f"{key}={value}" for key, value in short.items()])
    assert run_scenario(scenario, RunOptions(out=tmp_path, device="cpu")).summary["warnings"] == []
