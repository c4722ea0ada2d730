"""Kinds of models. To add a kind, write a file with its class, and add the class to `Model`."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from actors.settings.base import SettingError
from actors.settings.tables import tagged
from sim.learning.data.dataset import DataSection
from sim.learning.models.cnn import Cnn
from sim.learning.models.decoupled import Decoupled
from sim.learning.models.mlp import LogisticRegression, Mlp
from sim.learning.models.model import ModelSection
from sim.learning.models.point import Point
from sim.learning.models.resnet9 import ResNet9
from sim.learning.models.transformer import Lora, Transformer

Model = Annotated[
    LogisticRegression | Mlp | Cnn | ResNet9 | Decoupled | Transformer | Lora | Point,
    Field(discriminator="name"),
]

MODELS: Mapping[str, type[ModelSection]] = tagged(Model)
"""Class of each model, by name."""


def model_misfits(model: ModelSection, data: DataSection) -> Iterator[SettingError]:
    """Yield the reasons why a model does not fit the data."""
    if data.task in model.tasks:
        yield from model.misfits(data)
        return
    fitting = ", ".join([name for name, kind in MODELS.items() if data.task in kind.tasks])
    meant = f'data.name = "{data.name}"' if len(data.tasks) == 1 else f'data.task = "{data.task}"'
    yield SettingError("model.name", model.name, f"does not support {meant}; must be one of {fitting}")
