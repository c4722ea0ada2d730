"""Low-rank adapters on layers of a frozen transformer (Hu et al. 2022)."""

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn


class Decoder(nn.Module):
    """Transformer that predicts the next token: token ids [B, T] -> logits [B, T, vocabulary].

    `prefix` precedes the names of its parameters in the names that the package transformers uses.
    """

    prefix: ClassVar[str] = ""

    @property
    def blocks(self) -> Iterable[nn.Module]:
        """Blocks, in order; their layers that adapters can extend have a method `adapted(rank, alpha)`."""
        raise NotImplementedError


class Adapter(nn.Module):
    """Mixin of a layer [..., inputs] -> [..., outputs]: adds alpha/rank x A B to the layer's output.

    A [inputs, rank] and B [rank, outputs] are trained. A is drawn and B is 0 at the start, so that the model
    initially equals the base.
    """

    def extend(self, inputs: int, outputs: int, rank: int, alpha: float) -> None:
        """Freeze the layer, and add the matrices of the adapter."""
        self.requires_grad_(False)
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.empty(inputs, rank))
        self.lora_b = nn.Parameter(torch.empty(rank, outputs))

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Initialize A as a linear layer, B as 0."""
        bound = 1 / math.sqrt(len(parameters["lora_a"]))
        parameters["lora_a"].uniform_(-bound, bound, generator=generator)
        parameters["lora_b"].zero_()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)
        return output + (x @ self.lora_a) @ self.lora_b * self.scale


def adapt(transformer: Decoder, targets: Sequence[str], rank: int, alpha: float) -> Decoder:
    """Add adapters to these layers of every block, in place, and freeze all other parameters."""
    transformer.requires_grad_(False)
    for block in transformer.blocks:
        for target in targets:
            holder, _, name = target.rpartition(".")
            part = block.get_submodule(holder)
            setattr(part, name, getattr(part, name).adapted(rank, alpha))
    return transformer
