"""Low-rank adapters on layers of a frozen transformer (Hu et al. 2022)."""

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn


class Decoder(nn.Module):
    """Transformer that predicts the next token: token ids [B, T] -> logits [B, T, vocabulary].

    `prefix` precedes the names of its parameters in the names that the package `transformers` uses.
    """

    prefix: ClassVar[str] = ""

    @property
    def blocks(self) -> Iterable[nn.Module]:
        """Blocks, in order; their layers that adapters can extend have a method `adapted(rank, alpha)`."""
        raise NotImplementedError


class Adapter(nn.Module):
    """Mixin of a layer [..., inputs] -> [..., outputs]: adds alpha/rank x A B to the layer's output.

    A [inputs, rank] and B [rank, outputs] are trained. A is drawn and B is 0 at the start, so that the model
    initially equals the base. Some methods also add a matrix of products, `merged`, which is not trained.
    """

    merged: nn.Parameter | None
    untrained: tuple[str, ...] = ()

    def extend(self, inputs: int, outputs: int, rank: int, alpha: float) -> None:
        """Freeze the layer, and add the matrices of the adapter."""
        self.requires_grad_(False)
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.empty(inputs, rank))
        self.lora_b = nn.Parameter(torch.empty(rank, outputs))
        self.register_parameter("merged", None)

    def hold_merged(self) -> None:
        """Add the matrix of merged products [inputs, outputs]."""
        self.merged = nn.Parameter(torch.empty(len(self.lora_a), self.lora_b.shape[1]))
        self.untrained = ("merged",)

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Initialize A as a linear layer, and the other matrices as 0."""
        bound = 1 / math.sqrt(len(parameters["lora_a"]))
        parameters["lora_a"].uniform_(-bound, bound, generator=generator)
        parameters["lora_b"].zero_()
        if "merged" in parameters:
            parameters["merged"].zero_()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)
        output = output + (x @ self.lora_a) @ self.lora_b * self.scale
        return output if self.merged is None else output + x @ self.merged


def adapt(
    transformer: Decoder, targets: Sequence[str], rank: int, alpha: float, merged: bool = False
) -> Decoder:
    """Add adapters to these layers of every block, in place, and freeze all other parameters.

    merged: add matrices of merged products.
    """
    transformer.requires_grad_(False)
    for block in transformer.blocks:
        for target in targets:
            holder, _, name = target.rpartition(".")
            part = block.get_submodule(holder)
            adapter = getattr(part, name).adapted(rank, alpha)
            if merged:
                adapter.hold_merged()
            setattr(part, name, adapter)
    return transformer
