"""Runs whose clients start from a file of exported values."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sim.run.resume.trained_models import trained_models
from tests.resume.test_resume import coterie as command
from tests.resume.test_trained_models import NAMED, NETWORK, PICTURES, measured
from tests.simulation.worlds import DIGITS, run, write

OTHERS: dict[str, list[str]] = {
    "network.py:Network": [],
    "mlp": [],
    "cnn": NAMED["cnn"][0],
    "decoupled": NAMED["decoupled"][0],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", OTHERS)
def test_a_new_run_starts_from_an_exported_model(tmp_path: Path, kind: str) -> None:
    write(tmp_path, PICTURES, "pictures.py")
    write(tmp_path, NETWORK, "network.py")
    settings = [f"model.name={kind}", "run.duration=2 s", *OTHERS[kind]]
    first = run(tmp_path, DIGITS, *settings).directory
    assert first is not None
    [model] = trained_models(first, [3])
    file = model.save(tmp_path)
    again = run(tmp_path, DIGITS, *settings, f"model.start={file.name}").directory
    assert again is not None and again.name != first.name
    assert measured(again, "client-3", 0.0) == measured(first, "client-3", 2.0)
    other = run(tmp_path, DIGITS, *settings, f"model.start={file}", "run.seed=5").directory
    assert other is not None
    expected = load_file(file)
    for each in trained_models(other, time_s=0.0):
        assert each.state().keys() == expected.keys()
        assert all(torch.equal(values, expected[name]) for name, values in each.state().items())


def test_files_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    whole = {"1.weight": torch.zeros(10, 64), "1.bias": torch.zeros(10)}
    changes: dict[str, dict[str, Tensor]] = {
        "has no 1.bias, which the model has": {"1.weight": whole["1.weight"]},
        "contains more, which the model does not have": whole | {"more": torch.zeros(1)},
        "has shape (9,); must be (10,)": whole | {"1.bias": torch.zeros(9)},
        "has dtype torch.float64; must be torch.float32": whole | {"1.bias": torch.zeros(10).double()},
        "contains numbers that are not finite": whole | {"1.bias": torch.full((10,), torch.nan)},
    }
    for problem, tensors in changes.items():
        save_file(tensors, tmp_path / "start.safetensors")
        scenario = write(tmp_path, DIGITS)
        for verb in ("check", "run"):
            result = command(verb, scenario, "--set", "model.start=start.safetensors")
            assert result.exit_code == 2 and problem in result.stderr, (problem, result.output)
    (tmp_path / "start.safetensors").write_bytes(b"x" * 100)
    for start, more, problem in (
        ("start.safetensors", [], "is not a .safetensors file, or is damaged"),
        ("nowhere", [], "no such file"),
        (".", [], "must be a regular file"),
        ("start.safetensors", ["model.initialisation=independent"], 'must be "shared"'),
    ):
        words = [word for each in more for word in ("--set", each)]
        result = command("check", scenario, "--set", f"model.start={start}", *words)
        assert result.exit_code == 2 and problem in result.stderr, result.output
