"""Language models beside those of the package transformers: logits of random checkpoints in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sim.files.input_file import InputFile
from sim.learning.language.base import load_base
from tests.peers.checkpoints import CONTEXT, LONG, ROPE, saved, tokens, transformers

KINDS: dict[str, dict[str, Any]] = {
    "gpt-2": {"kind": "GPT2"},
    "gpt-2 in parts": {"kind": "GPT2", "shard": "6KB"},
    "grouped queries": {},
    "a key for each query": {"num_key_value_heads": 6},
    "one key for all queries": {"num_key_value_heads": 1},
    "one head": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "faster rotations": {"rope_parameters": ROPE | {"rope_theta": 50.0}},
    "llama 3's rotations": {"rope_parameters": LONG},
    "wide heads": {"head_dim": 10},
    "a large epsilon": {"rms_norm_eps": 0.3},
    "in parts": {"shard": "3KB"},
    "mistral": {"kind": "Mistral", "sliding_window": None},
    "qwen2": {"kind": "Qwen2", "tie_word_embeddings": True},
}


def computed(folder: Path, x: torch.Tensor) -> torch.Tensor:
    base = load_base(InputFile("model.base", folder))
    module = base.shape.made()
    module.load_state_dict(dict(base.weights))
    return module(x).detach()


@pytest.mark.parametrize("name", KINDS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    whole = saved(tmp_path, **KINDS[name])
    parts = len(list(tmp_path.glob("*.safetensors")))
    assert (parts > 1) == ("in parts" in name)
    for length in range(1, CONTEXT + 1):
        for count in (1, 3):
            x = tokens(count, length)
            with torch.no_grad():
                expected = whole(x).logits
            assert expected.abs().max() > 1
            torch.testing.assert_close(computed(tmp_path, x), expected, rtol=1e-5, atol=1e-5)


def test_settings_as_older_versions_write_them(tmp_path: Path) -> None:
    """`rope_theta` outside, and `rope_scaling` with `type`."""
    whole = saved(tmp_path, rope_parameters=LONG)
    config = json.loads((tmp_path / "config.json").read_text())
    scaling = dict(config.pop("rope_parameters"))
    config["rope_theta"] = scaling.pop("rope_theta")
    x = tokens(2, CONTEXT)
    for key in ("rope_type", "type"):
        config["rope_scaling"] = {key if each == "rope_type" else each: scaling[each] for each in scaling}
        (tmp_path / "config.json").write_text(json.dumps(config))
        torch.testing.assert_close(computed(tmp_path, x), whole(x).logits.detach(), rtol=1e-5, atol=1e-5)


def test_half_precision_is_read_as_float32(tmp_path: Path) -> None:
    saved(tmp_path).to(torch.bfloat16).save_pretrained(tmp_path)
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    x = tokens(2, CONTEXT)
    torch.testing.assert_close(computed(tmp_path, x), whole(x).logits.detach(), rtol=1e-5, atol=1e-5)
