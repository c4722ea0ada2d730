"""Data sets, partitions and models made as the sections of a scenario make them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from sim.files.data_folder import DataFolder
from sim.learning.architecture import Architecture
from sim.learning.data.dataset import Dataset
from sim.learning.data.images import ImageArrays, ImageData
from sim.learning.data.kinds import DATASETS
from sim.learning.data.synthetic import QuadraticData
from sim.learning.models.decoupled import Decoupled
from sim.learning.models.kinds import MODELS
from sim.learning.models.model import ModelSection
from sim.learning.partitions.dealing import Labels
from sim.learning.partitions.kinds import PARTITIONS
from sim.learning.partitions.partition import Partition

OF_NUMBERS = tuple(name for name, kind in MODELS.items() if "language" not in kind.tasks)
"""Models of anything but texts, for which is tests/learning/test_language.py."""


def partition(kind: str) -> Callable[..., Partition]:
    """The function (labels, clients, seed, **keys) -> partition of a kind."""

    def deal(labels: Labels, clients: int, seed: int, **keys: Any) -> Partition:
        return PARTITIONS[kind].model_validate({"kind": kind, **keys}).deal(labels, clients, seed)

    return deal


def image_data(name: str) -> ImageData:
    found = DATASETS[name].model_validate({"name": name, "partition": "iid"})
    assert isinstance(found, ImageData)
    return found


def read_images(name: str, data_dir: Path | None, *, download: bool = True) -> ImageArrays:
    return image_data(name).read(DataFolder(data_dir, download))


def load_images(name: str, data_dir: Path | None = None) -> Dataset:
    return image_data(name).load(1, 0, DataFolder(data_dir, download=True))


def digits() -> Dataset:
    section = DATASETS["digits"].model_validate({"name": "digits", "partition": "iid"})
    return section.load(1, 0, DataFolder())


def quadratic(*, clients: int, seed: int, **keys: Any) -> tuple[Dataset, Partition]:
    section = QuadraticData(name="quadratic", **keys)
    data = section.load(clients, seed, DataFolder())
    return data, section.share_out(data, clients, seed)[0]


def model(name: str, keys: dict[str, Any]) -> tuple[ModelSection, dict[str, Any]]:
    """The section, and what else decides the module: of a decoupled model its backbone and parts."""
    if name != "decoupled":
        return MODELS[name].model_validate({"name": name, **keys}), {}
    chosen = {"backbone": "small-mlp", "parts": ()} | {
        key: keys[key] for key in ("backbone", "parts") if key in keys
    }
    rest = {key: value for key, value in keys.items() if key not in chosen}
    return Decoupled(name="decoupled", backbones=(str(chosen["backbone"]),), **rest), chosen


def architecture(name: str, keys: dict[str, Any], input_shape: tuple[int, ...], classes: int) -> Architecture:
    section, chosen = model(name, keys)
    return section.architecture(input_shape, classes, **chosen)


def module(name: str, keys: dict[str, Any], input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """With PyTorch's own initialization."""
    section, chosen = model(name, keys)
    return section.module(input_shape, classes, **chosen)
