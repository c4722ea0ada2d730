"""A run that is cut short anywhere goes on exactly, over methods, optimizers, pulls, backends and workers."""

import itertools
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import tomli_w

from sim.scenario.scenario import load_scenario
from tests.fuzz.worlds import SHORT, short
from tests.protocols.test_survival import LOSSY, variants
from tests.resume.crashes import require_goes_on_anywhere
from tests.simulation.worlds import write

OPTIMIZERS = {
    "sgd": (),
    "momentum": ("training.momentum=0.9", "training.nesterov=true"),
    "adamw": ("training.optimizer=adamw", "training.weight_decay=0.01"),
    "own": (
        "training.override=[{ clients = [0], learning_rate = 0.02, batch_size = 3 },"
        " { clients = [0, 2], clip_norm = 0.5 }]",
    ),
}
MODELS = {
    "dense": ('model={ name = "mlp", hidden = [8] }', "engine.way=dense"),
    "vmap": ('model={ name = "mlp", hidden = [8] }', "engine.way=vmap"),
    "loop": ('model={ name = "mlp", hidden = [8] }', "engine.way=loop"),
}
GROUPS = ('model_group=[{ clients = [1, 2], model = { name = "logistic-regression" } }]',)
PULLED = ("protocol.name=cobo", "protocol.patience=700 ms")
PLAIN = ("protocol.name=gossip",)
ALONE = ("protocol.name=ditto", "protocol.patience=700 ms")  # a job in each of many calls, with pulls
FEW = [
    (PULLED, "sgd", "dense", 1),
    (PULLED, "adamw", "loop", 2),
    (PLAIN, "momentum", "loop", 1),
    (PLAIN, "adamw", "vmap", 2),
    (ALONE, "momentum", "dense", 2),
    (PLAIN, "own", "vmap", 2),
    (PULLED, "own", "loop", 1),
]


def crash(
    folder: Path, protocol: Sequence[str], optimizer: str, model: str, workers: int, crashes: int
) -> None:
    known = {override.partition("=")[0] for override in protocol}
    chosen = [each for each in MODELS[model] if each.partition("=")[0] not in known]
    if len(chosen) < len(MODELS[model]):  # the method says which model it is for
        chosen = [f"engine.way={'auto' if model == 'dense' else model}"]
    overrides = [*protocol, *chosen, f"engine.workers={workers}"]
    trained = OPTIMIZERS[optimizer] if "training.momentum" not in known else ()
    overrides += [*trained, f"protocol.unusual={[each.partition('=')[0] for each in trained]}"]
    scenario = load_scenario(write(folder, LOSSY), overrides)
    assert require_goes_on_anywhere(folder / "run", scenario, events=40, crashes=crashes) >= 1


@pytest.mark.parametrize("protocol, optimizer, model, workers", FEW)
def test_a_run_goes_on_from_anywhere(
    tmp_path: Path, protocol: Sequence[str], optimizer: str, model: str, workers: int
) -> None:
    crash(tmp_path, protocol, optimizer, model, workers, crashes=1)


@pytest.mark.parametrize("model", ["dense", "loop"])
def test_a_run_with_groups_of_models_goes_on_from_anywhere(tmp_path: Path, model: str) -> None:
    method = f"protocol.name={Path(__file__).parents[2] / 'docs/examples/distillation.py'}:Distillation"
    crash(tmp_path, (method, *GROUPS), "momentum", model, 2, crashes=1)


def test_the_quickstart_goes_on_from_anywhere(tmp_path: Path) -> None:
    table = short("quickstart")
    scenario = load_scenario(write(tmp_path, tomli_w.dumps(table)))
    assert require_goes_on_anywhere(tmp_path / "run", scenario, events=100, crashes=1) > 3


WORLDS = list(itertools.product(OPTIMIZERS, MODELS, (1, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", variants(), ids=" ".join)
def test_every_method_goes_on_from_anywhere(tmp_path: Path, protocol: Sequence[str]) -> None:
    draws = random.Random(f"{protocol}{os.environ.get('COTERIE_TEST_SEED') or 1}")
    for number, (optimizer, model, workers) in enumerate(draws.sample(WORLDS, 3)):
        print(optimizer, model, workers)
        (tmp_path / str(number)).mkdir()
        crash(tmp_path / str(number), protocol, optimizer, model, workers, crashes=2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", SHORT)
def test_every_scenario_goes_on_from_anywhere(tmp_path: Path, name: str, workers: int) -> None:
    table = short(name)
    table.setdefault("engine", {})["workers"] = workers
    scenario = load_scenario(write(tmp_path, tomli_w.dumps(table)))
    require_goes_on_anywhere(tmp_path / "run", scenario, events=20, crashes=2)
