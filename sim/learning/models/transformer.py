"""Transformers that predict the next token: trained completely, or as adapters on a frozen base."""

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
    from sim.learning.language.shapes import Base

_Target = Literal[
    "attn.c_attn",
    "attn.c_proj",
    "mlp.c_fc",
    "mlp.c_proj",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
]


class Transformer(ModelSection):
    """Transformer of GPT-2's architecture; all its parameters are trained."""

    tasks = ("language",)

    name: Literal["transformer"]
    width: Annotated[Count, Within(1, 16_384)] = 64
    """Length of the vector of a token."""
    depth: Annotated[Count, Within(1, 1_000)] = 2
    """Number of blocks, each with attention and a feed-forward part."""
    heads: Count = 4
    """Number of heads of each attention."""

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        if self.width % self.heads:
            yield SettingError("model.heads", self.heads, f"must divide model.width, {self.width}")

    def module(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the module for windows of `input_shape[0]` tokens, from a vocabulary of `classes` tokens."""
        from sim.learning.language.shapes import TransformerShape

        shape = TransformerShape(classes, input_shape[0], self.width, self.depth, self.heads, 4 * self.width)
        return shape.made()


class Lora(ModelSection):
    """Adapters of low rank on a pretrained transformer, which all clients share and which is not trained."""

    tasks = ("language",)

    name: Literal["lora"]
    base: DataFile
    """Pretrained transformer: a file that `coterie pretrain` wrote, or a Hugging Face folder with config.json
    and model.safetensors, of the architecture of GPT-2, Llama, Mistral or Qwen2. The path is relative to the
    current folder, the scenario's folder, or the data folder."""
    rank: Annotated[Count, Within(1, 10_000)] = 4
    """Rank of each adapter."""
    alpha: Annotated[PositiveFloat, Within(1e-6, 1e6)] = 32.0
    """Scale of adapters: an adapter adds alpha/rank times its product."""
    targets: Annotated[tuple[_Target, ...], Field(min_length=1)] | None = None
    """Layers of each block that get an adapter; by default "attn.c_attn" for GPT-2, and "self_attn.q_proj"
    and "self_attn.v_proj" for Llama, Mistral and Qwen2."""

    def misfits(self, data: DataSection) -> Iterator[SettingError]:
        if self.targets is not None and len(set(self.targets)) < len(self.targets):
            yield SettingError("model.targets", self.targets, "must list each layer once")

    def load(self, dataset: Dataset, folder: DataFolder) -> Base:
        """Return the base, which must fit the data. Raises UserError."""
        from sim.learning.language.base import load_base

        try:
            file = folder.file("model.base", self.base)
        except UserError as error:
            advice = "to create a base, run `coterie pretrain` (default file: english.safetensors)"
            raise UserError(f"{error.problem}; {advice}") from None
        base = load_base(file)
        shape, about = base.shape, f'model.base = "{self.base}"'
        if base.tokenizer not in (None, dataset.tokenizer):
            raise UserError(
                f"{about} was trained with the tokenizer {base.tokenizer}, but data.tokenizer is "
                f"{dataset.tokenizer}; use the same tokenizer"
            )
        if dataset.outputs > shape.vocabulary:
            problem = f"knows {shape.vocabulary:,} tokens, but data.tokenizer has {dataset.outputs:,}"
            raise UserError(f"{about} {problem}; use a base with a larger vocabulary")
        if dataset.input_shape[0] > shape.context:
            problem = f"has positions for at most {shape.context:,} tokens"
            raise UserError(f"data.context = {dataset.input_shape[0]:,}: {about} {problem}; use fewer tokens")
        if unknown := [target for target in self.targets or () if target not in shape.layers]:
            problem = f"has {shape.family}'s architecture, without this layer"
            raise UserError(
                f'model.targets = "{unknown[0]}": {about} {problem}; choose from {", ".join(shape.layers)}'
            )
        return base

    def module(
        self, input_shape: tuple[int, ...], classes: int, base: Base | None = None, merged: bool = False
    ) -> nn.Module:
        """Return the base with its adapters. merged: each adapter also has a matrix of merged products."""
        from sim.learning.models.modules.adapters import adapt

        assert base is not None
        return adapt(base.shape.made(), self.targets or base.shape.adapted, self.rank, self.alpha, merged)

    def architecture(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        base: Base | None = None,
        merged: bool = False,
        **options: Any,
    ) -> Architecture:
        """Return the architecture on the base that `load` returned.

        merged: each adapter also has a matrix of merged products.
        """
        import torch

        from sim.learning.architecture import Architecture

        assert base is not None
        with torch.device("meta"):
            module = self.module(input_shape, classes, base, merged)
        key = self.model_copy(update={"targets": self.targets or base.shape.adapted}).key(
            input_shape, classes, **({"merged": True} if merged else {})
        )
        return Architecture(module, key, input_shape, base.weights)
