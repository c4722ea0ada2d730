"""The models: a class each, with its keys in the section `[model]`, what it fits, and its module.

To add one: a file with its class, and the class in `Model`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from actors.settings.base import SettingError
from actors.settings.tables import tagged
from sim.learning.data import DATASETS, DataSection
from sim.learning.models.cnn import Cnn
from sim.learning.models.decoupled import Decoupled
from sim.learning.models.inputs import one_of, require_images
from sim.learning.models.logistic_regression import LogisticRegression
from sim.learning.models.mlp import Mlp
from sim.learning.models.model import ModelSection
from sim.learning.models.point import Point
from sim.learning.models.resnet9 import ResNet9

Model = Annotated[LogisticRegression | Mlp | Cnn | ResNet9 | Decoupled | Point, Field(discriminator="name")]

MODELS: Mapping[str, type[ModelSection]] = tagged(Model)
"""The class of each model, by name."""


def model_misfits(model: ModelSection, data: DataSection) -> Iterator[SettingError]:
    """Why a model does not fit the data, if it does not."""
    if data.task in model.tasks:
        yield from model.misfits(data)
        return
    fitting = [name for name, kind in MODELS.items() if data.task in kind.tasks]
    problem = f'must be "{fitting[0]}" for data.name = "{data.name}"'
    if len(data.tasks) > 1:  # one of them was chosen by a key
        problem = f'is not for data.task = "{data.task}"; must be one of {", ".join(fitting)}'
    elif len(fitting) > 1:
        meant = " or ".join(
            f'"{name}"' for name, kind in DATASETS.items() if set(kind.tasks) & {*model.tasks}
        )
        problem = f'only for data.name = {meant}, this is "{data.name}"; must be one of {", ".join(fitting)}'
    yield SettingError("model.name", model.name, problem)


def require_fit(model: ModelSection, input_shape: tuple[int, ...]) -> None:
    """UserError for a model of images where the samples are none, or too small."""
    if model.smallest_image is not None:
        others = [
            name for name, kind in MODELS.items() if kind.tasks == model.tasks and not kind.smallest_image
        ]
        instead = f"model.name = {one_of(others)}"
        require_images(f'model.name = "{model.name}"', input_shape, model.smallest_image, instead)


__all__ = ["MODELS", "Decoupled", "Model", "ModelSection", "model_misfits", "require_fit"]
