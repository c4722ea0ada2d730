"""Adapters beside those of the package peft: ten steps of training, and files that it reads."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

import coterie
from sim.files.input_file import InputFile
from sim.learning.engine import Optimizer
from sim.learning.language.base import load_base
from sim.learning.language.peft import save_adapters
from sim.learning.models.plain import plain_module
from sim.learning.models.transformer import Lora
from sim.learning.objectives import next_token
from tests.learning.engines import Jobs, drawn, new_engine, only_tests, own_samples, torch_optimizer
from tests.peers.checkpoints import CONTEXT, VOCABULARY, saved, tokens, transformers
from tests.resume.test_resume import coterie as command
from tests.resume.test_trained_models import samples_of
from tests.simulation import test_language_models as languages

peft = pytest.importorskip("peft", reason="peft is not installed: make peers")

EXAMPLE = Path(__file__).parents[2] / "docs/examples/models/adapters.py"
STEPS, BATCH_SIZE, RATE = 10, 3, 0.05
LAYERS: dict[str, list[list[str]]] = {
    "GPT2": [["attn.c_attn"], ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]],
    "Llama": [
        ["self_attn.q_proj", "self_attn.v_proj"],
        ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"],
        ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
    ],
    "Qwen2": [["self_attn.k_proj", "self_attn.v_proj"]],
}
CASES = [(kind, targets) for kind, choices in LAYERS.items() for targets in choices]
# With an epsilon above usual gradients: AdamW would otherwise turn rounding into steps of full size.
OPTIMIZERS = [Optimizer("sgd"), Optimizer("sgd", momentum=0.9), Optimizer("adamw", epsilon=0.1)]


def of_peft(base: Path, folder: Path) -> Any:
    """The base with the adapters in the folder, trainable."""
    whole = transformers.AutoModelForCausalLM.from_pretrained(base)
    return peft.PeftModel.from_pretrained(whole, folder, is_trainable=True).eval()


def loss_of(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x).logits.movedim(-1, 1), y)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "momentum", "adamw"])
@pytest.mark.parametrize(("kind", "targets"), CASES)
def test_training_is_that_of_peft(
    tmp_path: Path, kind: str, targets: list[str], optimizer: Optimizer
) -> None:
    saved(tmp_path / "base", kind)
    keys = {"name": "lora", "base": "base", "rank": 3, "alpha": 7.5, "targets": targets}
    base = load_base(InputFile("model.base", tmp_path / "base"))
    architecture = Lora.model_validate(keys).architecture((CONTEXT,), VOCABULARY, base)
    windows = tokens(8, CONTEXT + 1)
    samples = windows[:, :-1], windows[:, 1:]
    data = only_tests(*samples, [np.arange(8)])
    engine = new_engine(data, device="cpu")
    jobs = Jobs(engine, architecture, optimizer, BATCH_SIZE, next_token)
    start = jobs.initial(1)

    def written(vector: Any, name: str) -> Path:
        module = plain_module(architecture, engine.rows([vector])[0])
        save_adapters(module, tmp_path / name, str(tmp_path / "base"), {})
        return tmp_path / name

    other = of_peft(tmp_path / "base", written(start, "start"))
    trained = [each for each in other.parameters() if each.requires_grad]
    assert sum(each.numel() for each in trained) == architecture.numel
    steps = torch_optimizer(optimizer, RATE)(trained)
    x, y = own_samples(data, 0)
    vector, state = start, None
    for done, chosen in enumerate(drawn(engine, 0, 0, STEPS, BATCH_SIZE)):
        steps.zero_grad()
        loss_of(other, x[chosen], y[chosen]).backward()
        steps.step()
        vector, state = jobs.train(0, vector, done=done, state=state, learning_rate=RATE)
        ours = load_file(written(vector, "ours") / "adapter_model.safetensors")
        theirs = peft.get_peft_model_state_dict(other)
        assert ours.keys() == theirs.keys()
        for name, values in ours.items():
            torch.testing.assert_close(values, theirs[name], rtol=1e-5, atol=1e-5)
    first, last = engine.rows([start, vector])
    assert float((last - first).abs().max()) > 1e-2


@pytest.mark.parametrize(("kind", "targets"), CASES)
def test_peft_reads_the_adapters_of_a_run(
    tmp_path: Path, kind: str, targets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "base", kind, vocab_size=256)
    settings = ["model.base=base", f"model.targets={json.dumps(targets)}", "model.alpha=5"]
    directory = languages.run(tmp_path, *settings).directory
    assert directory is not None
    monkeypatch.chdir(tmp_path)
    clients = ["--client", "ab-2", "--client", "ef-1"]
    result = command("export", directory, "--format", "peft", *clients)
    assert result.exit_code == 0, result.output
    folders = [Path(line) for line in result.stdout.splitlines()]
    assert [each.name for each in folders] == ["ab-2-at-3", "ef-1-at-3"]
    measured = pl.read_parquet(directory / "metrics.parquet").filter(time=3.0, name="loss")
    for folder, number in zip(folders, (1, 4), strict=True):
        config = peft.PeftConfig.from_pretrained(folder)
        model = of_peft(Path(config.base_model_name_or_path), folder)
        x, y = samples_of(directory, number)
        client = folder.name.removesuffix("-at-3")
        with torch.no_grad():
            loss = float(loss_of(model, x, y))
        assert loss == pytest.approx(measured.filter(actor=client)["value"].item(), rel=1e-6)


def test_the_example_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "base", vocab_size=256)
    directory = languages.run(tmp_path, "model.base=base", "run.duration=1 s").directory
    assert directory is not None
    monkeypatch.chdir(tmp_path)
    result = command("export", directory, "--format", "peft", "--client", "ab-1")
    monkeypatch.setattr("sys.argv", ["adapters.py", str(tmp_path / "base"), result.stdout.strip()])
    runpy.run_path(str(EXAMPLE))
    scores = coterie.load(directory).model("ab-1")(torch.tensor([[1, 2, 3]]))
    assert capsys.readouterr().out.strip().endswith(str(scores.argmax(dim=-1)))


def test_peft_reads_adapters_on_a_base_of_coterie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = languages.run(tmp_path, "run.duration=1 s").directory
    assert directory is not None
    monkeypatch.chdir(tmp_path)
    result = command("export", directory, "--format", "peft", "--client", "ab-1")
    assert result.exit_code == 0, result.output
    shape = languages.SHAPE
    sizes = {
        "n_positions": shape.context,
        "n_embd": shape.width,
        "n_layer": shape.depth,
        "n_inner": shape.inner,
    }
    config = transformers.GPT2Config(vocab_size=256, n_head=shape.heads, **sizes)
    whole = transformers.GPT2LMHeadModel(config)
    tensors = {f"transformer.{name}": each for name, each in load_file("base.safetensors").items()}
    found = whole.load_state_dict(tensors, strict=False)
    assert (found.missing_keys, found.unexpected_keys) == (["lm_head.weight"], [])
    model = peft.PeftModel.from_pretrained(whole, Path(result.stdout.strip())).eval()
    x, y = samples_of(directory, 0)
    measured = pl.read_parquet(directory / "metrics.parquet").filter(time=1.0, name="loss", actor="ab-1")
    with torch.no_grad():
        assert float(loss_of(model, x, y)) == pytest.approx(measured["value"].item(), rel=1e-6)
