"""Language models: bases, texts, and the settings of `coterie pretrain`."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import tomli_w
import torch
from safetensors.torch import save

from sim.learning.language.pretraining import Pretraining
from sim.learning.language.shapes import TransformerShape
from tests.fuzz import grammar, spoil
from tests.fuzz.case import Commands
from tests.fuzz.checkpoints import FOLDER, checkpoint
from tests.fuzz.values import near, odd_key, odd_value

_SHAPE = TransformerShape(vocabulary=256, context=8, width=8, depth=1, heads=2, inner=16)
_SETTINGS: dict[str, Any] = {
    "out": "made.safetensors",
    "corpus": ["ab.txt"],
    "tokenizer": "bytes",
    "context": 8,
    "width": 8,
    "depth": 1,
    "heads": 2,
    "steps": 3,
    "batch_size": 2,
    "learning_rate": 0.01,
    "seed": 1,
}
_COSTLY = ("context", "width", "depth", "steps", "batch_size")  # whose largest values take hours
_SCENARIO: dict[str, Any] = {
    "run": {"iterations": 2, "evaluate_every": "1 iterations"},
    "clients": {"count": 4},
    "data": {
        "name": "text",
        "texts": [{"language": "ab", "file": "ab.txt"}, {"language": "cd", "file": "cd.txt"}],
        "context": 8,
        "windows": 6,
        "test_windows": 4,
    },
    "model": {"name": "lora", "base": "base.safetensors", "rank": 2},
    "training": {"learning_rate": 0.1, "batch_size": 4},
    "protocol": {"name": "gossip"},
    "network": {"latency": "20 ms", "uplink": "unlimited", "downlink": "unlimited"},
    "devices": {"step_time": "100 ms"},
}


def _written_base(scenario: dict[str, Any], rng: Random, changes: int) -> tuple[list[str], list[str]]:
    """Write a base, in a file or a folder, with so many places spoiled. Returns changes and files."""
    if rng.random() < 0.5:
        words = checkpoint(rng, changes)
        scenario["model"]["base"] = FOLDER
        return words, [f"{FOLDER}/{path.name}" for path in sorted(Path(FOLDER).iterdir())]
    content, words = _weights(_SHAPE, rng, changes)
    Path("base.safetensors").write_bytes(content)
    return words, ["base.safetensors"]


def _weights(shape: TransformerShape, rng: Random, changes: int) -> tuple[bytes, list[str]]:
    """The tensors of a transformer in a file, of which tensors, notes or bytes are spoiled."""
    drawn = torch.Generator().manual_seed(rng.randrange(2**32))
    weights = {
        name: torch.randn(each.shape, generator=drawn) for name, each in shape.made().named_parameters()
    }
    notes: dict[str, Any] = {"heads": 2, "tokenizer": "bytes", "settings": {}}
    words: list[str] = []
    of_bytes = 0
    for _ in range(changes):
        name = rng.choice(list(weights))
        match rng.choice(("bytes", "gone", "name", "shape", "number", "type", "notes", "notes")):
            case "gone":
                del weights[name]
            case "name":
                weights[f"h.{rng.choice((0, 1, 7, 10**6, -1))}.{odd_key(rng)}"] = weights.pop(name)
            case "shape":
                shape = [rng.choice((0, 1, 3, each)) for each in weights[name].shape]
                weights[name] = torch.zeros(shape if rng.random() < 0.5 else [*shape, 2])
            case "number":
                weights[name].view(-1)[:1] = rng.choice((float("nan"), float("inf"), 1e38))
            case "type":
                weights[name] = weights[name].to(rng.choice((torch.int32, torch.bool, torch.float64)))
            case "notes":
                words.append(spoil.damaged_table(notes, rng))
                continue
            case _:
                of_bytes += 1
                continue
        words.append(f"base: {name}")
    content = save(weights, {"coterie": json.dumps(notes, default=str)})
    for _ in range(of_bytes):
        content, how = spoil.damaged_bytes(content, rng)
        words.append(f"base: {how}")
    return content, words


def language_models(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Adapters on a base, with base, texts, files or scenario spoiled; or the settings of a base."""
    scenario, settings = json.loads(json.dumps(_SCENARIO)), dict(_SETTINGS)
    texts = {"ab.txt": b"abba " * 60, "cd.txt": "cd\u00e9\n".encode() * 60}
    places = rng.choices(("base", "text", "file", "scenario", "settings"), k=changes)
    words, bases = _written_base(scenario, rng, places.count("base"))
    for _ in range(places.count("text")):
        name = rng.choice(list(texts))
        texts[name], how = spoil.damaged_bytes(texts[name], rng)
        words.append(f"{name}: {how}")
    for name, text in texts.items():
        Path(name).write_bytes(text)
    words += [
        spoil.replace_file(Path(rng.choice([*bases, *texts])), rng) for _ in range(places.count("file"))
    ]
    change = (grammar.change, spoil.damaged_table)
    words += [rng.choice(change)(scenario, rng) for _ in range(places.count("scenario"))]
    Path("scenario.toml").write_text(tomli_w.dumps(scenario), encoding="utf-8", errors="replace")
    for _ in range(places.count("settings")):
        words.append(_spoilt(settings, rng))
    Path("base.toml").write_text(tomli_w.dumps(settings), encoding="utf-8", errors="replace")
    if places and places[0] == "settings":
        return words, [["pretrain", "base.toml", "--quiet"]]
    return words, [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]


def starts(rng: Random, changes: int) -> tuple[list[str], Commands]:
    """Models that start from a file, with the file or the scenario's `[model]` spoiled."""
    scenario = json.loads(json.dumps(_SCENARIO))
    scenario["model"] = {
        "name": "transformer",
        "width": 8,
        "depth": 1,
        "heads": 2,
        "start": "start.safetensors",
    }
    places = rng.choices(("tensors", "tensors", "file", "model"), k=changes)
    content, words = _weights(replace(_SHAPE, inner=32), rng, places.count("tensors"))
    for name, text in {
        "ab.txt": b"abba " * 60,
        "cd.txt": b"cddc " * 60,
        "start.safetensors": content,
    }.items():
        Path(name).write_bytes(text)
    words += [spoil.replace_file(Path("start.safetensors"), rng) for _ in range(places.count("file"))]
    for _ in range(places.count("model")):
        key = rng.choice(("start", "start", "initialisation", "name", "width"))
        odd = (odd_value(rng), "", ".", "nowhere", "ab.txt", "/dev/null", "independent", "mlp", 4)
        scenario["model"][key] = value = rng.choice(odd)
        words.append(f"model.{key} = {spoil.shown(value)}")
    Path("scenario.toml").write_text(tomli_w.dumps(scenario), encoding="utf-8", errors="replace")
    return words, [["check", "scenario.toml"], ["run", "scenario.toml", "--quiet"]]


def _spoilt(settings: dict[str, Any], rng: Random) -> str:
    key = rng.choice(list(Pretraining.model_fields))
    value = rng.choice((odd_value(rng), near(settings.get(key, 1), rng)))
    if key in _COSTLY and isinstance(value, int) and value > 64:
        value = -value
    if rng.random() < 0.1:
        key = odd_key(rng)
    settings[key] = value
    return f"{key} = {spoil.shown(value)}"
