"""A frozen random network with low-rank adapters, which FlexLoRA and FLoRA can average.

[model]
name = "low_rank.py:LowRank"
rank = 2
"""

import torch
from torch import nn
from torch.nn import functional


class Adapted(nn.Module):
    """Frozen layer with an adapter: x W + scale x A B, and merged products for methods that need them."""

    untrained = ("merged",)

    def __init__(self, inputs: int, outputs: int, rank: int, alpha: float, draws: torch.Generator):
        super().__init__()
        weight = torch.randn(inputs, outputs, generator=draws) / inputs**0.5
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.randn(inputs, rank, generator=draws) / inputs**0.5)
        self.lora_b = nn.Parameter(torch.zeros(rank, outputs))
        self.merged = nn.Parameter(torch.zeros(inputs, outputs))

    def forward(self, x):
        return x @ (self.weight + self.merged) + x @ self.lora_a @ self.lora_b * self.scale


class LowRank(nn.Module):
    def __init__(self, input_shape, classes: int, hidden: int = 16, rank: int = 2, alpha: float = 4.0):
        super().__init__()
        # Each layer has its own generator, so that the frozen weights are the same for all ranks.
        first, second = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
        pixels = torch.Size(input_shape).numel()
        self.first = Adapted(pixels, hidden, rank, alpha, first)
        self.second = Adapted(hidden, classes, rank, alpha, second)

    def forward(self, x):
        return self.second(functional.relu(self.first(x.flatten(1))))
