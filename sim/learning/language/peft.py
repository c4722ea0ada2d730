"""Adapters as files of the package `peft`: adapter_config.json and adapter_model.safetensors in a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors.torch import save
from torch import Tensor, nn

from sim.learning.language.base import temporary_path_beside
from sim.learning.models.modules.adapters import Adapter, Decoder
from sim.learning.models.modules.transformer import AdaptedAffine


def save_adapters(module: nn.Module, folder: Path, base: str, notes: Mapping[str, str]) -> None:
    """Write the adapters of a module into a folder, which is created. Raises OSError.

    base: where peft finds the base. notes: metadata of the tensors.
    """
    assert isinstance(module, Decoder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "adapter_model.safetensors": save(_tensors(module), dict(notes)),
        "adapter_config.json": json.dumps(_settings(module, base), indent=2).encode(),
    }
    for name, content in contents.items():
        with temporary_path_beside(folder / name) as whole:
            whole.write_bytes(content)
            os.replace(whole, folder / name)


def _adapters(module: nn.Module) -> Iterator[tuple[str, Adapter]]:
    for name, part in module.named_modules():
        if isinstance(part, Adapter):
            yield name, part


def _tensors(module: Decoder) -> dict[str, Tensor]:
    """Return the matrices [rank, inputs] and [outputs, rank] of all adapters, by peft's names."""
    found: dict[str, Tensor] = {}
    for name, adapter in _adapters(module):
        path = f"base_model.model.{module.prefix}{name}"
        found[f"{path}.lora_A.weight"] = adapter.lora_a.detach().T.contiguous()
        found[f"{path}.lora_B.weight"] = adapter.lora_b.detach().T.contiguous()
    return found


def _settings(module: Decoder, base: str) -> dict[str, object]:
    """Return the contents of adapter_config.json; keys without a value here have peft's defaults."""
    targets = dict.fromkeys(name for block in module.blocks for name, _ in _adapters(block))
    adapter = next(part for _, part in _adapters(module))
    rank = adapter.lora_a.shape[1]
    alpha = adapter.scale * rank
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(targets),
        "fan_in_fan_out": isinstance(adapter, AdaptedAffine),
        "inference_mode": True,
    }
