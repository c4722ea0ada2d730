"""The base class of models: a section of the scenario that makes a module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from actors.settings.base import SettingError, Settings
from sim.learning.data import DataSection

if TYPE_CHECKING:
    from torch import nn

    from sim.learning.architecture import Architecture


class ModelSection(Settings):
    """The section `[model]` for one model: its keys, the data that fit, and its module."""

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")
    """The task of the data sets that fit."""
    smallest_image: ClassVar[int | None] = None
    """Height and width that images need at least; None for a model that takes samples of any shape."""

    initialisation: Literal["shared", "independent"] = "shared"
    """Whether all clients start from the same parameters or each from its own."""
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """Its own keys."""
        return self.model_dump(exclude={"name", "initialisation"})

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        """Why data of the model's task do not fit, by key (`model...`)."""
        yield from ()

    @abstractmethod
    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module for samples of this shape. It may be made on the meta device, for an `Architecture`."""

    def architecture(self, input_shape: tuple[int, ...], classes: int) -> Architecture:
        """The model as a function of one vector. UserError if samples of this shape do not fit."""
        options = self.options
        return self._as_architecture(lambda: self.module(input_shape, classes), options, input_shape, classes)

    def _as_architecture(
        self,
        module: Callable[[], nn.Module],
        options: dict[str, Any],
        input_shape: tuple[int, ...],
        classes: int,
    ) -> Architecture:
        """The module as a function of one vector. Architectures with equal `options` are equal."""
        import torch

        from sim.learning.architecture import Architecture

        with torch.device("meta"):
            return Architecture(module(), self._key(options, input_shape, classes), input_shape)

    def _key(self, options: dict[str, Any], input_shape: tuple[Any, ...], classes: int) -> str:
        """A key that is equal for equal architectures."""
        settings = [
            f"{option}={value if isinstance(value, str | int | float) else list(value)}"
            for option, value in options.items()
        ]
        return f"{self.name}({', '.join(settings)}) {input_shape} -> {classes}"
