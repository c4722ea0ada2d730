"""Bases of Llama's architecture: what is computed, what is counted, and which folders are refused.

`llama` is a random Llama of two layers with grouped queries, in four parts, as save_pretrained of the package
transformers (5.24) wrote it, and `logits.npy` what that package computes of it for the tokens of `TOKENS`.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.learning.architecture import Architecture
from sim.learning.data.dataset import Dataset
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.language.base import load_base
from sim.learning.language.checkpoints import checkpoint_files
from sim.learning.language.shapes import LlamaShape
from sim.learning.models.transformer import Lora
from sim.learning.objectives import next_token
from tests.learning.engines import generator
from tests.learning.test_language import TOKENS, file_of, models

LLAMA = Path(__file__).parent / "llama"
SHAPE = LlamaShape(
    vocabulary=19,
    context=7,
    width=8,
    depth=2,
    heads=4,
    groups=2,
    head_width=4,
    inner=12,
    epsilon=1e-6,
    theta=10_000.0,
    scaling=None,
    biases=False,
    tied=False,
)
RANK, ALPHA = 2, 6.0


def adapted(*targets: str) -> Architecture:
    keys = {"targets": targets} if targets else {}
    section = Lora.model_validate({"name": "lora", "base": str(LLAMA), "rank": RANK, "alpha": ALPHA} | keys)
    return section.architecture((SHAPE.context,), SHAPE.vocabulary, load_base(file_of(LLAMA)))


def test_llama_of_hugging_face_is_computed_as_by_its_package() -> None:
    base = load_base(file_of(LLAMA))
    assert (base.shape, base.tokenizer) == (SHAPE, None)
    module = base.shape.made()
    module.load_state_dict(dict(base.weights))
    expected = np.load(LLAMA / "logits.npy")
    np.testing.assert_allclose(module(TOKENS).detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(module(TOKENS.float()).detach(), module(TOKENS).detach())
    shorter = module(TOKENS[:, :3]).detach().numpy()  # no token depends on a later one
    np.testing.assert_allclose(shorter, expected[:, :3], rtol=1e-5, atol=1e-5)


def test_a_base_is_read_from_all_its_files() -> None:
    names = [path.name for path in checkpoint_files(LLAMA)]
    parts = [f"model-0000{part}-of-00004.safetensors" for part in (1, 2, 3, 4)]
    assert names == ["config.json", "model.safetensors.index.json", *parts]


@pytest.mark.parametrize("targets", [(), SHAPE.layers])
def test_adapters_add_their_product_to_the_base(targets: tuple[str, ...]) -> None:
    architecture = adapted(*targets)
    layers = targets or ("self_attn.q_proj", "self_attn.v_proj")
    sizes = {"q": 8 + 16, "k": 8 + 8, "v": 8 + 8, "o": 16 + 8, "gate": 8 + 12, "up": 8 + 12, "down": 12 + 8}
    numbers = sum(sizes[layer.partition(".")[2].removesuffix("_proj")] for layer in layers)
    assert architecture.numel == SHAPE.depth * RANK * numbers
    base = load_base(file_of(LLAMA))
    assert architecture.constant_bytes == 4 * sum(each.numel() for each in base.weights.values())
    assert f"targets={list(layers)}" in architecture.key
    plain = base.shape.made()
    plain.load_state_dict(dict(base.weights))
    start = architecture.initial(generator())
    torch.testing.assert_close(architecture.forward(start, TOKENS), plain(TOKENS))
    moved = models(architecture, 1)[0]
    parts = architecture.unflatten(moved)
    with torch.no_grad():
        for number in range(SHAPE.depth):
            for layer in layers:
                name = f"model.layers.{number}.{layer}"
                product = parts[f"{name}.lora_a"] @ parts[f"{name}.lora_b"]
                plain.get_parameter(f"{name}.weight").add_(product.T, alpha=ALPHA / RANK)
    torch.testing.assert_close(architecture.forward(moved, TOKENS), plain(TOKENS), rtol=1e-4, atol=1e-5)


def test_all_at_once_and_one_by_one_agree() -> None:
    architecture = adapted(*SHAPE.layers)
    flat = models(architecture)
    windows = torch.randint(SHAPE.vocabulary, (3, 5, SHAPE.context + 1), generator=generator(2))
    x, y = windows[..., :-1], windows[..., 1:]
    at_once, in_turn = (ModelKernel(architecture, next_token, way) for way in ("vmap", "loop"))
    first, second = (kernel.gradients(flat, x, y) for kernel in (at_once, in_turn))
    assert float(first.abs().max()) > 1e-3
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(at_once.losses(flat, x, y), in_turn.losses(flat, x, y), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(at_once.outputs(flat, x), in_turn.outputs(flat, x), rtol=1e-4, atol=1e-5)


def test_operations_of_a_window_are_counted() -> None:
    """2 for each number of a weight and token, and twice for scores and mixed values of each query."""
    architecture, length = adapted("self_attn.q_proj"), SHAPE.context
    weights = 2 * (8 * (16 + 8 + 8) + 16 * 8 + 3 * 8 * 12) + 8 * 19
    adapters = 2 * RANK * (8 + 16)
    attention = 2 * 2 * SHAPE.heads * SHAPE.head_width * length * length
    counted = 2 * length * (weights + adapters) + 2 * attention
    assert architecture.forward_flops_per_sample == counted
    assert counted < architecture.training_flops_per_sample < 3 * counted
    assert architecture.uncounted == () and architecture.training_bytes_per_sample > 0


# --- what is refused ----------------------------------------------------------------------------------------


def changed(**config: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))

    return change


def placed(place: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        index["weight_map"]["lm_head.weight"] = place
        path.write_text(json.dumps(index))

    return change


def without(part: str) -> Callable[[Path], None]:
    return lambda folder: (folder / part).unlink()


def without_head(folder: Path) -> None:
    path = folder / "model-00004-of-00004.safetensors"
    tensors = {name: each for name, each in load_file(path).items() if name != "lm_head.weight"}
    save_file(tensors, path)


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "another architecture": (
        changed(model_type="gemma"),
        "model_type is 'gemma'; must be one of 'gpt2'",
    ),
    "no architecture": (changed(model_type=None), "model_type is none; must be one of"),
    "a size missing": (changed(num_hidden_layers=None), "num_hidden_layers = None"),
    "another activation": (
        changed(hidden_act="gelu"),
        "hidden_act = 'gelu': coterie does not support this setting of Llama; must be 'silu'",
    ),
    "a bias": (changed(attention_bias=True), "attention_bias = True: coterie does not support"),
    "scaled rotations": (
        changed(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}),
        "rope_parameters.rope_type = 'yarn': coterie does not support this setting of Llama",
    ),
    "older scaled rotations": (
        changed(rope_parameters=None, rope_scaling={"type": "linear", "factor": 2.0}),
        "rope_scaling.type = 'linear': coterie .*; must be 'default' or 'llama3'",
    ),
    "rotations that do not fit": (
        changed(rope_parameters={"rope_type": "llama3", "low_freq_factor": 4.0}),
        "low_freq_factor = 4: must be less than high_freq_factor, 4",
    ),
    "groups that do not fit": (
        changed(num_key_value_heads=3),
        "num_key_value_heads = 3: must divide num_attention_heads, 4",
    ),
    "an odd width": (changed(head_dim=3), "head_dim = 3: must be even"),
    "heads that do not fit": (
        changed(head_dim=None, num_attention_heads=3, num_key_value_heads=3),
        "num_attention_heads = 3: must divide hidden_size, 8",
    ),
    "other sizes": (
        changed(intermediate_size=13),
        r"gate_proj.weight: has shape \(12, 8\); must be \(13, 8\)",
    ),
    "fewer blocks": (changed(num_hidden_layers=1), "which is not in Llama's architecture"),
    "more blocks": (changed(num_hidden_layers=3), "has no model.layers.2"),
    "a huge number of blocks": (
        changed(num_hidden_layers=9_999_999),
        "contains only 21 tensors; must contain 9,999,999 blocks",
    ),
    "a sliding window": (
        changed(model_type="mistral", sliding_window=4096),
        "sliding_window = 4096: coterie does not support this setting of Mistral; must be None",
    ),
    "no biases": (changed(model_type="qwen2"), "has no model.layers.0.self_attn.q_proj.bias"),
    "a part missing": (
        without("model-00002-of-00004.safetensors"),
        "of-00004.safetensors: no such file",
    ),
    "no index": (without("model.safetensors.index.json"), "has no model.safetensors: save_pretrained"),
    "a part elsewhere": (
        placed("../other.safetensors"),
        "must be the name of a .safetensors file in this",
    ),
    "no part": (placed(3), "'lm_head.weight' is in 3; must be the name of a .safetensors file"),
    "the wrong part": (
        placed("model-00001-of-00004.safetensors"),
        "contains lm_head.weight, which model.safetensors.index.json does not place in this file",
    ),
    "no head": (without_head, "has no lm_head.weight"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_base_is_refused(what: str, tmp_path: Path) -> None:
    change, problem = REFUSED[what]
    folder = tmp_path / "llama"
    shutil.copytree(LLAMA, folder)
    change(folder)
    with pytest.raises(UserError, match=problem) as refused:
        load_base(file_of(folder))
    assert str(refused.value).startswith(f"model.base: {folder}")


@pytest.mark.parametrize(
    ("base", "target", "family"),
    [(LLAMA, "attn.c_attn", "Llama"), (LLAMA.parent / "gpt2", "self_attn.q_proj", "GPT-2")],
)
def test_layers_of_another_architecture_are_refused(base: Path, target: str, family: str) -> None:
    x = np.zeros((2, SHAPE.context), dtype=np.int64)
    section = Lora.model_validate({"name": "lora", "base": str(base), "targets": [target]})
    with pytest.raises(UserError, match=f'model.targets = "{target}": .*has {family}.s architecture'):
        section.load(Dataset(x, x, x, x, SHAPE.vocabulary), DataFolder())
