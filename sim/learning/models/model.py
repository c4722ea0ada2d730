"""Base class of models: a section of the scenario that makes a module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from actors.settings.base import SettingError, Settings
from sim.errors import UserError
from sim.files.named_files import DataFile
from sim.learning.data.dataset import DataSection
from sim.learning.data.kinds import IMAGE_DATASETS

if TYPE_CHECKING:
    from torch import nn

    from sim.learning.architecture import Architecture


class ModelSection(Settings):
    """Section `[model]` for one model: its keys, the data that it accepts, and its module."""

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")
    """Tasks of the data sets that it accepts."""
    smallest_image: ClassVar[int | None] = None
    """Smallest height and width of images; None for a model that takes samples of any shape."""

    initialisation: Literal["shared", "independent"] = "shared"
    """Initial parameters: equal for all clients (shared), or separate for each client (independent)."""
    start: DataFile | None = None
    """File of `coterie export` with the values of all clients' models at the start; `initialisation` must be
    "shared". By default, initial values are drawn. The path is relative to the current folder, the scenario's
    folder, or the data folder."""
    name: str

    @model_validator(mode="after")
    def _has_one_start(self) -> Self:
        if self.start is not None and self.initialisation != "shared":
            problem = 'all clients start with the values of model.start; must be "shared"'
            raise SettingError("initialisation", self.initialisation, problem)
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Values of the keys that only this kind of model has."""
        return self.model_dump(exclude={"name", "initialisation", "start"})

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        """Yield the reasons why data of the model's task do not fit, by key (`model...`)."""
        yield from ()

    @abstractmethod
    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the module for samples of this shape. For an `Architecture` it may be on the meta device."""

    def architecture(self, input_shape: tuple[int, ...], classes: int, **options: Any) -> Architecture:
        """Return the model as a function of one vector; `options` go to `module`. Raises UserError."""
        import torch

        from sim.learning.architecture import Architecture

        if self.smallest_image is not None:
            key, instead = f'model.name = "{self.name}"', 'model.name = "mlp"'
            require_images(key, input_shape, self.smallest_image, instead)
        with torch.device("meta"):
            module = self.module(input_shape, classes, **options)
        return Architecture(module, self.key(input_shape, classes, **options), input_shape)

    def key(self, input_shape: tuple[Any, ...], classes: int, **options: Any) -> str:
        """Return a text that is equal for equal architectures of a run."""
        settings = [
            f"{option}={list(value) if isinstance(value, tuple | set | frozenset) else value}"
            for option, value in (self.options | options).items()
        ]
        return f"{self.name}({', '.join(settings)}) {input_shape} -> {classes}"


def require_images(model: str, input_shape: tuple[int, ...], smallest: int, instead: str) -> None:
    """Raise UserError unless samples are images [C, H, W] with sides of at least `smallest` pixels.

    `model` is the setting that needs images, `instead` a setting without images.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise UserError(
            f"{model} needs images (channels, height, width) of at least {smallest}x{smallest} pixels, but "
            f"the data's inputs have shape {input_shape}; use data.name = {' or '.join(IMAGE_DATASETS)}, or "
            f"{instead}"
        )
