"""Pretrained transformers, and their shapes: one class for each architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from sim.learning.language.llama_sizes import LlamaSizes

if TYPE_CHECKING:
    from torch import Tensor

    from sim.learning.models.modules.llama import LlamaModule
    from sim.learning.models.modules.transformer import TransformerModule

_GPT2_LAYERS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
_LLAMA_LAYERS = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)


@dataclass(frozen=True)
class TransformerShape:
    """Sizes of a transformer of GPT-2's architecture; `inner` is the width of its feed-forward layers."""

    family: ClassVar[str] = "GPT-2"
    layers: ClassVar[tuple[str, ...]] = _GPT2_LAYERS
    """Layers of a block that adapters can extend."""
    adapted: ClassVar[tuple[str, ...]] = ("attn.c_attn",)
    """Layers that adapters extend by default."""

    vocabulary: int
    context: int
    width: int
    depth: int
    heads: int
    inner: int

    def made(self) -> TransformerModule:
        """Return the module, on torch's default device."""
        from sim.learning.models.modules.transformer import TransformerModule

        return TransformerModule(**asdict(self))


@dataclass(frozen=True)
class LlamaShape(LlamaSizes):
    """Sizes of a transformer of Llama's architecture."""

    family: ClassVar[str] = "Llama"
    layers: ClassVar[tuple[str, ...]] = _LLAMA_LAYERS
    adapted: ClassVar[tuple[str, ...]] = ("self_attn.q_proj", "self_attn.v_proj")

    def made(self) -> LlamaModule:
        """Return the module, on torch's default device."""
        from sim.learning.models.modules.llama import LlamaModule

        return LlamaModule(self)


Shape = TransformerShape | LlamaShape


@dataclass(frozen=True)
class Base:
    """Pretrained transformer. tokenizer: identity of the tokenizer of its training; None if unknown."""

    shape: Shape
    tokenizer: str | None
    weights: Mapping[str, Tensor]
