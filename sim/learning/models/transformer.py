"""Transformers that predict the next token: one that trains whole, and adapters on a base that does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from actors.settings.base import SettingError
from actors.settings.quantities import Count, Within
from sim.errors import UserError
from sim.files.data_folder import DataFolder
from sim.files.named_files import DataFile
from sim.learning.data.dataset import DataSection
from sim.learning.models.model import ModelSection

if TYPE_CHECKING:
    from torch import nn

    from sim.learning.architecture import Architecture
    from sim.learning.data.dataset import Dataset
    from sim.learning.language.base import Base

_Target = Literal["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]


class Transformer(ModelSection):
    """A transformer of GPT-2's architecture, of which all trains."""

    tasks = ("language",)

    name: Literal["transformer"]
    width: Annotated[Count, Within(1, 16_384)] = 64
    """Numbers in the vector of a token."""
    depth: Annotated[Count, Within(1, 1_000)] = 2
    """Blocks of attention and a feed-forward part."""
    heads: Count = 4
    """Heads of each attention."""

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        if self.width % self.heads:
            yield SettingError("model.heads", self.heads, f"must divide model.width, {self.width}")

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """For windows of so many tokens, of so many different ones."""
        from sim.learning.language.base import TransformerShape

        shape = TransformerShape(classes, input_shape[0], self.width, self.depth, self.heads, 4 * self.width)
        return shape.made()


class Lora(ModelSection):
    """Adapters of low rank on a pretrained transformer, which all clients share and nobody trains."""

    tasks = ("language",)

    name: Literal["lora"]
    base: DataFile
    """The pretrained transformer: a file that `coterie pretrain` wrote, or a folder of Hugging Face with
    config.json and model.safetensors, of GPT-2's architecture. Its path is relative to the current folder,
    the scenario's, or the data folder."""
    rank: Annotated[Count, Within(1, 10_000)] = 4
    """Rank of each adapter."""
    alpha: Annotated[PositiveFloat, Within(1e-6, 1e6)] = 32.0
    """An adapter adds alpha/rank times its product."""
    targets: Annotated[tuple[_Target, ...], Field(min_length=1)] = ("attn.c_attn",)
    """The layers of each block that have one."""

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        if len(set(self.targets)) < len(self.targets):
            yield SettingError("model.targets", self.targets, "must name each layer once")

    def load(self, dataset: Dataset, folder: DataFolder) -> Base:
        """The base, which must suit the data. UserError."""
        from sim.learning.language.base import load_base

        try:
            file = folder.file("model.base", self.base)
        except UserError as error:
            raise UserError(f"{error.problem}; `coterie pretrain` makes english.safetensors") from None
        base = load_base(file)
        shape, about = base.shape, f'model.base = "{self.base}"'
        if base.tokenizer not in (None, dataset.tokenizer):
            raise UserError(
                f"{about}: was trained on other tokens ({base.tokenizer}) than data.tokenizer makes "
                f"({dataset.tokenizer}); must be the same"
            )
        if dataset.outputs > shape.vocabulary:
            problem = f"knows {shape.vocabulary:,} tokens, and data.tokenizer makes {dataset.outputs:,}"
            raise UserError(f"{about}: {problem}; must know as many")
        if dataset.input_shape[0] > shape.context:
            problem = f"looks at {shape.context:,} tokens at most, as its positions are numbered"
            raise UserError(f"data.context = {dataset.input_shape[0]:,}: {about} {problem}; must be fewer")
        return base

    def module(self, input_shape: tuple[int, ...], classes: int, base: Base | None = None) -> nn.Module:
        """The base with its adapters."""
        from sim.learning.models.modules.transformer import adapt

        assert base is not None
        return adapt(base.shape.made(), self.targets, self.rank, self.alpha)

    def architecture(
        self, input_shape: tuple[int, ...], classes: int, base: Base | None = None, **options: Any
    ) -> Architecture:
        """On the base that `load` read."""
        import torch

        from sim.learning.architecture import Architecture

        assert base is not None
        with torch.device("meta"):
            module = self.module(input_shape, classes, base)
        return Architecture(module, self.key(input_shape, classes), input_shape, base.weights)
