"""Random checkpoints of the package transformers, in folders."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from sim.learning.vision import import_torchvision

if importlib.util.find_spec("torchvision"):
    import_torchvision()  # the import of transformers would fail beside a CPU build of torch
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make peers")

CONTEXT, VOCABULARY = 12, 23
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_positions": CONTEXT,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 6,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
ROPE = {"rope_theta": 10_000.0, "rope_type": "default"}
LONG = {
    "rope_theta": 500.0,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 0.5,
    "high_freq_factor": 1.5,
    "original_max_position_embeddings": 9,
}


def model(kind: str = "Llama", seed: int = 0, **keys: Any) -> Any:
    """A model with random weights, away from those that hide mistakes: norms differ from 1, biases from 0."""
    sizes = GPT2 if kind == "GPT2" else SIZES
    config = getattr(transformers, f"{kind}Config")(**sizes | keys)
    made = getattr(transformers, "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(config)
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn), alpha=0.3)
    return made.eval()


def saved(folder: Path, kind: str = "Llama", *, shard: str = "1GB", **keys: Any) -> Any:
    """Write a random model into a folder, and return it."""
    made = model(kind, **keys)
    made.save_pretrained(folder, max_shard_size=shard)
    return made


def tokens(count: int, length: int, seed: int = 1) -> torch.Tensor:
    """Random token ids."""
    return torch.randint(VOCABULARY, (count, length), generator=torch.Generator().manual_seed(seed))
