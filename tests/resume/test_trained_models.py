"""Models out of a run: torch's own modules, loaded from exported files, have the accuracies of the run."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import coterie
from sim.learning.architecture import Architecture, OwnArchitecture
from sim.learning.models.plain import plain_module
from sim.run.options import RunOptions
from sim.run.resume.trained_models import trained_models
from sim.run.running import run_scenario
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.resume.test_resume import coterie as command
from tests.resume.test_resume import interrupted
from tests.simulation import test_language_models as languages
from tests.simulation.worlds import DIGITS, QUADRATIC, run, write

PICTURES = """\
import numpy as np
from sklearn.datasets import load_digits

def pictures(rng):
    x, y = load_digits(return_X_y=True)
    return (x / 16).reshape(-1, 1, 8, 8).astype(np.float32), y
"""
NETWORK = """\
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.frozen = nn.Linear(64, 64).requires_grad_(False)
        self.hidden = nn.Linear(64, 64)
        self.again = self.hidden  # tied
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(0.3)
        self.register_buffer("scale", torch.rand(64) + 0.5)
        self.register_buffer("shift", torch.full((64,), 0.25), persistent=False)
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        x = self.frozen(x.flatten(1)) * self.scale + self.shift
        x = self.norm(self.again(torch.relu(self.hidden(x))))
        return self.out(self.drop(torch.relu(x)))
"""
MORE_NETWORKS = """\
import torch
from torch import nn

class Layered(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.inside = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])
        self.norms = nn.ModuleList([nn.LayerNorm(64), nn.LayerNorm(64)])
        self.out = nn.Linear(64, classes, bias=False)

    def forward(self, x):
        x = x.flatten(1)
        for layer, norm in zip(self.inside, self.norms):
            x = x + nn.functional.gelu(layer(norm(x)))
        return self.out(x)

class Sequence(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.convolution = nn.Conv1d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(128, classes)

    def forward(self, x):
        rows = x.reshape(len(x), 8, 8)
        return self.out(torch.relu(self.norm(self.convolution(rows))).flatten(1))

class Attention(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.place = nn.Parameter(torch.randn(8, 8) / 8)
        self.read = nn.Linear(8, 24)
        self.gain = nn.ParameterDict({"a": torch.ones(8), "b": torch.zeros(8)})
        self.out = nn.Linear(8, classes)

    def forward(self, x):
        rows = x.reshape(len(x), 8, 8) + self.place
        query, key, value = self.read(rows).chunk(3, dim=2)
        mixed = torch.softmax(query @ key.mT, dim=2) @ value
        return self.out((mixed * self.gain["a"] + self.gain["b"]).mean(1))

class Frozen(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(64, 96), nn.Tanh()).requires_grad_(False)
        self.norm = nn.BatchNorm1d(96, affine=False)
        self.head = nn.Linear(96, classes)

    def forward(self, x):
        return self.head(self.norm(self.base(x.flatten(1))))
"""
ALONE = """\
import sys
for name in ("coterie", "sim", "protocols", "actors"):
    sys.modules[name] = None

from pathlib import Path

import numpy as np
import torch
import network
from safetensors.torch import load_file, save_file

model = getattr(network, sys.argv[3])((64,), 10)
model.load_state_dict(load_file(sys.argv[1]))
model.eval()
samples = np.load(sys.argv[2])
with torch.no_grad():
    found = model(torch.from_numpy(samples["x"])).argmax(1)
print(repr(float((found == torch.from_numpy(samples["y"])).double().mean())))
"""


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    )


class Decoupled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.relu(self.backbone(x)))
        return scores


class DeepBackbone(nn.Module):
    """Five convolutions with batch norm, their mean over positions, and a head on the features' ReLU."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, stride in ((1, 16, 2), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)):
            layers += [nn.Conv2d(before, after, 3, stride, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(after), nn.ReLU()]
        self.backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Linear(64, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.backbone[:-1](x).flatten(1)
        scores: Tensor = self.head(torch.relu(self.backbone[-1](pooled)))
        return scores


class Residual(nn.Module):
    """ResNet9 with two channels and one group."""

    def __init__(self) -> None:
        super().__init__()

        def block(before: int, after: int, *pools: nn.Module) -> nn.Sequential:
            convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
            return nn.Sequential(convolution, nn.GroupNorm(1, after), nn.ReLU(), *pools)

        self.stem = nn.Sequential(block(1, 2), block(2, 4, nn.MaxPool2d(2)))
        self.residual_1 = nn.Sequential(block(4, 4), block(4, 4))
        self.middle = nn.Sequential(block(4, 8, nn.MaxPool2d(2)), block(8, 16, nn.MaxPool2d(2)))
        self.residual_2 = nn.Sequential(block(16, 16), block(16, 16))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.middle(x + self.residual_1(x))
        x = x + self.residual_2(x)
        scores: Tensor = self.head(x.amax(dim=(2, 3)))
        return scores


def grouped_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


OF_PICTURES = "data.name=pictures.py:pictures"
NAMED: dict[str, tuple[list[str], Callable[[], nn.Module]]] = {
    "logistic-regression": ([], lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))),
    "mlp": (
        ["model.hidden=[30, 20]"],
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 10)
        ),
    ),
    "cnn": (
        [OF_PICTURES, "model.channels=[4]", "model.hidden=[16]", "model.norm=batch"],
        convolutions,
    ),
    "cnn, group norm": (
        [OF_PICTURES, "model.channels=[4]", "model.hidden=[]", "model.norm=group", "model.groups=2"],
        grouped_convolutions,
    ),
    "resnet9": ([OF_PICTURES, "model.width=2", "model.groups=1"], Residual),
    "decoupled": (['model.backbones=["small-mlp"]'], Decoupled),
    "decoupled, deep-cnn": ([OF_PICTURES, 'model.backbones=["deep-cnn"]'], DeepBackbone),
}


def samples_of(directory: Path, number: int) -> tuple[Tensor, Tensor]:
    """Test samples of a client of a run."""
    test = build(load_scenario(directory / "scenario.toml"), device="cpu").engine.data.test
    x, y = test.of_each(np.array([number]), np.arange(test.counts[number]))
    return x[0], y[0]


def measured(directory: Path, client: str, time_s: float, name: str = "accuracy") -> float:
    rows = pl.read_parquet(directory / "metrics.parquet")
    value: float = rows.filter(actor=client, time=time_s, name=name)["value"].item()
    return value


@torch.no_grad()
def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((module.eval()(x).argmax(1) == y).double().mean())


@pytest.mark.long
@pytest.mark.parametrize("kind", NAMED)
def test_plain_torch_has_the_accuracy_of_the_run(tmp_path: Path, kind: str) -> None:
    settings, make = NAMED[kind]
    write(tmp_path, PICTURES, "pictures.py")
    directory = run(tmp_path, DIGITS, f"model.name={kind.partition(',')[0]}", *settings).directory
    assert directory is not None
    for number, at, time_s in ((0, [], 4.0), (3, ["--at", "2 s"], 2.0)):
        result = command("export", directory, "--client", number, *at, "--out", tmp_path / "files")
        assert result.exit_code == 0, result.output
        file = Path(result.stdout.strip())
        module = make()
        module.load_state_dict(load_file(file))
        expected = measured(directory, f"client-{number}", time_s)
        assert accuracy(module, *samples_of(directory, number)) == expected
        with safe_open(file, "pt") as opened:
            notes = opened.metadata()
        assert notes["scenario"] == "world" and notes["client"] == f"client-{number}"
        assert float(notes["time"]) == time_s and notes["model"] == "model"


def accuracy_alone(folder: Path, file: Path, name: str) -> float:
    """Accuracy of the user's own module with an exported file, in a process without coterie."""
    words = [sys.executable, folder / "alone.py", file, folder / "samples.npz", name]
    return float(subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout)


@pytest.mark.long
@pytest.mark.parametrize("name", ["Layered", "Sequence", "Attention", "Frozen"])
def test_own_modules_of_any_kind_are_loaded_where_coterie_is_not_installed(tmp_path: Path, name: str) -> None:
    write(tmp_path, MORE_NETWORKS, "network.py")
    write(tmp_path, ALONE, "alone.py")
    directory = run(tmp_path, DIGITS, f"model.name=network.py:{name}").directory
    assert directory is not None
    file = Path(command("export", directory, "--client", "2").stdout.strip())
    x, y = samples_of(directory, 2)
    np.savez(tmp_path / "samples.npz", x=x.numpy(), y=y.numpy())
    assert accuracy_alone(tmp_path, file, name) == measured(directory, "client-2", 4.0)


@pytest.mark.long
def test_an_own_module_is_loaded_where_coterie_is_not_installed(tmp_path: Path) -> None:
    write(tmp_path, NETWORK, "network.py")
    write(tmp_path, ALONE, "alone.py")
    directory = run(tmp_path, DIGITS, "model.name=network.py:Network").directory
    assert directory is not None
    result = command("export", directory, "--client", "client-2")
    assert result.exit_code == 0, result.output
    file = Path(result.stdout.strip())
    assert file == directory / "models" / "client-2-at-4.safetensors"
    refused = command("export", directory, "--out", file)
    assert refused.exit_code == 2 and f"{file}: is a file, not a folder" in refused.stderr
    x, y = samples_of(directory, 2)
    np.savez(tmp_path / "samples.npz", x=x.numpy(), y=y.numpy())
    assert accuracy_alone(tmp_path, file, "Network") == measured(directory, "client-2", 4.0)

    of_run = coterie.load(directory)
    module = of_run.model("client-2")
    assert type(module).__name__ == "Network" and type(module.norm) is nn.BatchNorm1d
    assert type(module.drop) is nn.Dropout and module.again is module.hidden
    assert not module.frozen.weight.requires_grad and module.hidden.weight.requires_grad
    assert accuracy(module, x, y) == measured(directory, "client-2", 4.0)
    state = of_run.state_dict(2)
    assert list(state) == list(module.state_dict()) and "shift" not in state
    np.testing.assert_allclose(of_run.predict(2, x), module(x).detach(), rtol=1e-5, atol=1e-6)


def test_adapters_come_with_their_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = languages.run(tmp_path).directory
    assert directory is not None
    monkeypatch.chdir(tmp_path)  # of the texts and the base
    of_run = coterie.load(directory)
    x, y = samples_of(directory, 1)
    module, state = of_run.model("ab-2"), of_run.state_dict("ab-2")
    base = load_file(tmp_path / "base.safetensors")
    assert all(torch.equal(state[name], values) for name, values in base.items())
    assert set(state) - set(base) == {"h.0.attn.c_attn.lora_a", "h.0.attn.c_attn.lora_b"}
    again = of_run.model(0)
    again.load_state_dict(state)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(again(x).movedim(-1, 1), y, reduction="none").mean(dim=1)
    assert float(loss.double().mean()) == pytest.approx(measured(directory, "ab-2", 3.0, "loss"), rel=1e-6)
    assert torch.equal(module(x), again(x))
    assert of_run.predict("ab-2", x.numpy()).shape == (*x.shape, 256)


def test_adapters_are_written_as_peft_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/peers loads such folders with peft."""
    directory = languages.run(
        tmp_path, "model.alpha=3", 'model.targets=["attn.c_attn", "mlp.c_proj"]'
    ).directory
    assert directory is not None
    monkeypatch.chdir(tmp_path)
    result = command("export", directory, "--format", "peft", "--client", "cd-1", "--at", "2 s")
    assert result.exit_code == 0, result.output
    folder = Path(result.stdout.strip())
    assert folder == directory / "models" / "cd-1-at-2"
    assert sorted(each.name for each in folder.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["fan_in_fan_out"]) == (2, 3, True)
    assert settings["target_modules"] == ["attn.c_attn", "mlp.c_proj"]
    assert settings["base_model_name_or_path"] == str(tmp_path / "base.safetensors")
    state = coterie.load(directory).state_dict("cd-1", at="2 s")
    written = load_file(folder / "adapter_model.safetensors")
    assert len(written) == 4
    for layer in settings["target_modules"]:
        for part in ("A", "B"):
            values = written[f"base_model.model.transformer.h.0.{layer}.lora_{part}.weight"]
            assert torch.equal(values.T, state[f"h.0.{layer}.lora_{part.lower()}"])


def test_models_without_adapters_are_not_written_for_peft(tmp_path: Path) -> None:
    directory = run(tmp_path, QUADRATIC, "run.duration=1 s", "run.evaluate_every=1 s").directory
    result = command("export", directory, "--format", "peft")
    assert result.exit_code == 2 and 'model.name = "point" has no adapters' in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("checkpoints", [(), (1.0,)])
@pytest.mark.parametrize("stated", [["run.duration=3 s"], ["run.iterations=3"]])
def test_models_at_any_time_equal_those_of_the_run(
    tmp_path: Path, stated: list[str], checkpoints: tuple[float, ...]
) -> None:
    kept: dict[float, dict[str, Tensor]] = {}

    class Keeping(coterie.RunHook):
        def evaluated(self, simulation: Any) -> None:
            lives = [each for each in simulation.clients if each.actor is not None]
            rows = simulation.engine.rows([each.params for each in lives])
            kept[simulation.loop.time()] = {
                each.name: row.clone() for each, row in zip(lives, rows, strict=True)
            }

    churn = 'churn=[{at="700 ms",event="crash",clients=[4]},{at="1200 ms",event="rejoin",clients=[4]}]'
    unset = ["run.duration"] if "run.duration" not in stated[0] else []
    scenario = load_scenario(write(tmp_path, DIGITS), [*stated, churn, "run.evaluate_every=1 s"], unset=unset)
    options = RunOptions(
        out=tmp_path / "runs",
        device="cpu",
        hooks=[Keeping()],
        checkpoints_s=checkpoints,
        checkpoint_at_end=False,
    )
    directory = run_scenario(scenario, options).directory
    assert directory is not None
    assert len(kept) > 3
    for time_s, models in kept.items():
        found = {each.client: each.values for each in trained_models(directory, time_s=time_s)}
        assert found.keys() == models.keys()
        assert all(torch.equal(found[name], values) for name, values in models.items())
    last = {each.client: each.values for each in trained_models(directory)}
    for time_s, name in ((11.599999999999996, "11.6"), (4.0, "4"), (40.0, "40"), (0.000001, "0.000001")):
        model = replace(next(iter(trained_models(directory))), time_s=time_s)
        assert model.save(tmp_path).name == f"{model.client}-at-{name}.safetensors"
    assert all(torch.equal(last[name], values) for name, values in kept[max(kept)].items())


@pytest.mark.long
def test_a_method_with_several_models_names_the_wanted_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        "from protocols import Client\n"
        "class Two(Client):\n"
        "    async def step(self):\n"
        "        update = await self.train()\n"
        "        self.params = self.params + update\n"
        "    def evaluated(self):\n"
        "        half = 0.5 * self.params\n"
        "        return {'whole': self.params, 'half': half, 'mixed': [(1.0, self.params), (2.0, half)]}\n",
        "two.py",
    )
    directory = run(tmp_path, DIGITS, "protocol.name=two.py:Two", "run.duration=2 s").directory
    assert directory is not None
    x, y = samples_of(directory, 1)
    of_run = coterie.load(directory)
    for name in ("whole", "half"):
        module = of_run.model(1, model=name)
        assert accuracy(module, x, y) == measured(directory, "client-1", 2.0, f"accuracy_of_{name}")
    assert torch.equal(of_run.state_dict(1)["1.bias"], of_run.state_dict(1, model="whole")["1.bias"])
    assert torch.equal(of_run.state_dict(1)["1.bias"], of_run.state_dict(1, model="mixed.0")["1.bias"])
    result = command("export", directory, "--client", "1", "--model", "half")
    assert result.stdout.strip().endswith("models/client-1-half-at-2.safetensors")
    with pytest.raises(coterie.UserError, match=r"it has whole, half, mixed\.0, mixed\.1"):
        of_run.model(1, model="mixed")


def test_wrong_clients_times_and_names_are_refused(tmp_path: Path) -> None:
    churn = 'churn=[{at="1 s",event="leave",clients=[4]}]'
    directory = run(tmp_path, QUADRATIC, churn, "run.duration=2 s", "run.evaluate_every=1 s").directory
    assert directory is not None
    for words, problem in (
        (["--client", "6"], "--client 6: must be from 0 to 5"),
        (["--client", "client-9"], "--client client-9: must be from 0 to 5, or a name, such as client-0"),
        (["--client", "-1"], "--client -1: must be from 0 to 5"),
        (["--client", "4"], "client-4 is not up at 2 s, so it has no model"),
        (["--at", "3 s"], "the run ended at 2 s, before the requested time, 3 s"),
        (["--model", "other"], "--model other: client-0 has no such model; it has model"),
    ):
        result = command("export", directory, *words)
        assert result.exit_code == 2 and problem in result.stderr, result.output
    assert len(command("export", directory).stdout.splitlines()) == 5
    assert command("export", directory, "--at", "0 s", "--client", "4").exit_code == 0


def test_forks_and_interrupted_and_killed_runs_have_models(tmp_path: Path) -> None:
    text = DIGITS.replace('evaluate_every = "2 s"', 'evaluate_every = "500 ms"')
    directory = run(tmp_path, text).directory
    assert directory is not None
    result = command("fork", directory, "--at", "2 s", "--set", "training.learning_rate=0.5", "--quiet")
    assert result.exit_code == 0, result.output
    fork = Path(result.stdout.splitlines()[-1].removeprefix("report: ")).parent
    whole, forked = [
        {each.client: each.values for each in trained_models(path)} for path in (directory, fork)
    ]
    assert whole.keys() == forked.keys()
    assert not any(torch.equal(whole[name], forked[name]) for name in whole)
    early = [list(trained_models(path, time_s=1.5)) for path in (directory, fork)]
    assert all(torch.equal(one.values, other.values) for one, other in zip(*early, strict=True))

    (tmp_path / "other").mkdir()
    ended = interrupted(tmp_path / "other", text, 2.0)
    [(time_s, models)] = [(each[0].time_s, each) for each in [list(trained_models(ended))]]
    assert 2.0 <= time_s <= 4.0 and len(models) == 6
    (ended / "summary.json").unlink()
    (ended / "checksums.json").unlink()
    killed = ended.rename(ended.with_name(f".{ended.name}.0123abcd"))
    path = killed.with_name(ended.name)
    assert [each.client for each in trained_models(path, time_s=1.5)] == [each.client for each in models]
    result = command("export", path)
    assert result.exit_code == 2 and "has no results yet; pass --out" in result.stderr
    assert "no such folder, and no killed run" in command("export", tmp_path / "none").stderr
    result = command("export", path, "--out", tmp_path)
    assert result.exit_code == 2 and 'such as --at "20 s"' in result.stderr
    result = command("explain", path, "--client", "0")
    assert result.exit_code == 2 and "the run was killed: name an earlier time (--at)" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("at", [[], ["--at", "1500 ms"]])
def test_models_that_differ_from_the_run_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: list[str]
) -> None:
    write(tmp_path, PICTURES, "pictures.py")
    settings = ["data.name=pictures.py:pictures", "run.duration=2 s", "run.evaluate_every=1 s"]
    directory = run(tmp_path, DIGITS, *settings).directory
    assert directory is not None
    (directory / "checkpoint.pt").unlink()
    assert command("export", directory, *at).exit_code == 0

    of_run = Architecture.initial
    monkeypatch.setattr(Architecture, "initial", lambda self, drawn: of_run(self, drawn) * 1.001)
    result = command("export", directory, *at)
    assert result.exit_code == 2 and "differ from those of the run" in result.stderr, result.output
    assert command("export", directory, *at, "--anyway").exit_code == 0


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_use_the_loaded_values(kind: type[nn.RNNBase]) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(3, 5, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            last: Tensor = self.layer(x)[0][:, -1]
            return last

    def drawn(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return Recurrent()

    with torch.random.fork_rng(devices=[]):
        architecture = OwnArchitecture(drawn, "recurrent", (4, 3))
        flat = architecture.initial(torch.Generator().manual_seed(3))
    x = torch.linspace(-1, 1, 24).reshape(2, 4, 3)
    with torch.no_grad():
        torch.testing.assert_close(plain_module(architecture, flat)(x), architecture.forward(flat, x))
