"""Checkpoints of language models in folders, with configuration, index, tensors or files spoiled."""

import json
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from sim.learning.language.configurations import CONFIGURATIONS, LlamaConfiguration
from tests.fuzz import spoil
from tests.fuzz.values import near, odd_key, odd_value

FOLDER = "base"
_CONFIG: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8,
    "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
}
_KINDS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "mistral": {"sliding_window": None, "head_dim": 4},
    "qwen2": {"use_sliding_window": False},
}
_ROTATIONS = ("default", "llama3", "linear", "dynamic", "yarn", "longrope", 3)


def checkpoint(rng: Random, changes: int) -> list[str]:
    """Write a checkpoint in one file or in two parts, with so many places spoiled, and return the changes."""
    kind = rng.choice(list(_KINDS))
    config = json.loads(json.dumps(_CONFIG)) | _KINDS[kind] | {"model_type": kind}
    weights = _weights(config, rng)
    in_parts = rng.random() < 0.5
    names = sorted(weights)
    parts = [names[::2], names[1::2]] if in_parts else [names]
    files = {
        f"model-{number}-of-2.safetensors" if in_parts else "model.safetensors": part
        for number, part in enumerate(parts, 1)
    }
    index: dict[str, Any] = {
        "metadata": {},
        "weight_map": {name: file for file, part in files.items() for name in part},
    }
    places = rng.choices(("config", "config", "rotations", "tensors", "index", "bytes"), k=changes)
    words = [_spoilt(config, rng) for _ in range(places.count("config"))]
    for _ in range(places.count("rotations")):
        key = rng.choice(("rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor"))
        value = rng.choice((rng.choice(_ROTATIONS), odd_value(rng), 8.0))
        config[rng.choice(("rope_parameters", "rope_scaling"))] = {key: value}
        words.append(f"config: {key} = {spoil.shown(value)}")
    words += [_spoilt_tensors(weights, rng) for _ in range(places.count("tensors"))]
    words += [f"index: {spoil.damaged_table(index, rng)}" for _ in range(places.count("index"))]
    contents = {
        file: save({name: weights[name] for name in part if name in weights}) for file, part in files.items()
    }
    contents["config.json"] = json.dumps(config, default=str).encode(errors="replace")
    if in_parts:
        contents["model.safetensors.index.json"] = json.dumps(index, default=str).encode(errors="replace")
    for _ in range(places.count("bytes")):
        name = rng.choice(list(contents))
        contents[name], how = spoil.damaged_bytes(contents[name], rng)
        words.append(f"{name}: {how}")
    Path(FOLDER).mkdir()
    for name, content in contents.items():
        (Path(FOLDER) / name).write_bytes(content)
    return words


def _weights(config: dict[str, Any], rng: Random) -> dict[str, Tensor]:
    drawn = torch.Generator().manual_seed(rng.randrange(2**32))
    module = CONFIGURATIONS[config["model_type"]].model_validate(config).shape().made()
    return {name: torch.randn(each.shape, generator=drawn) for name, each in module.named_parameters()}


def _spoilt(config: dict[str, Any], rng: Random) -> str:
    """Change a setting, also one that is not in the configuration."""
    if rng.random() < 0.3:
        return f"config: {spoil.damaged_table(config, rng)}"
    key = rng.choice(("model_type", "sliding_window", "layer_types", *LlamaConfiguration.model_fields))
    config[key] = value = rng.choice((odd_value(rng), near(config.get(key, 1), rng), 10**6, 10**9, True))
    return f"config: {key} = {spoil.shown(value)}"


def _spoilt_tensors(weights: dict[str, Tensor], rng: Random) -> str:
    name = rng.choice(list(weights))
    match rng.choice(("gone", "name", "shape", "number", "type")):
        case "gone" if len(weights) > 2:
            del weights[name]
        case "name":
            weights[f"model.layers.{rng.choice((0, 1, 10**6, -1))}.{odd_key(rng)}"] = weights[name].clone()
        case "shape":
            weights[name] = torch.zeros([rng.choice((0, 1, 3, each)) for each in weights[name].shape])
        case "type":
            weights[name] = weights[name].to(rng.choice((torch.int32, torch.bool, torch.bfloat16)))
        case _:
            weights[name].view(-1)[:1] = rng.choice((float("nan"), float("inf"), 1e38))
    return f"tensors: {name}"
