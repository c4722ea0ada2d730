"""Llama's architecture, of any size, with the names of its checkpoints.

Attention is written as products, because torch's fused attention would run for one client at a time under
vmap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from sim.learning.language.llama_sizes import LlamaSizes
from sim.learning.models.modules.adapters import Adapter, Decoder
from sim.learning.models.modules.transformer import Embeddings

_INITIAL_STD = 0.02  # Llama's


class Projection(nn.Module):
    """Linear layer with a weight [outputs, inputs], and without a bias by default."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Initialize as Llama: a normal weight, no bias."""
        parameters["weight"].normal_(0.0, _INITIAL_STD, generator=generator)
        if "bias" in parameters:
            parameters["bias"].zero_()

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def adapted(self, rank: int, alpha: float) -> AdaptedProjection:
        """Return a layer of this size with an adapter, without values."""
        return AdaptedProjection(self, rank, alpha)


class AdaptedProjection(Adapter, Projection):
    """Projection with an adapter."""

    def __init__(self, base: Projection, rank: int, alpha: float) -> None:
        outputs, inputs = base.weight.shape
        super().__init__(inputs, outputs, bias=base.bias is not None)
        self.extend(inputs, outputs, rank, alpha)


class RootMeanSquareNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon), times a weight for each number."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.empty(width))

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Initialize with 1."""
        parameters["weight"].fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon))


def rotations(sizes: LlamaSizes, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the angle of each pair of numbers at each position, [T, head_width]."""
    pairs = torch.arange(0, sizes.head_width, 2, dtype=torch.float32, device=device)
    speed = 1.0 / sizes.theta ** (pairs / sizes.head_width)  # radians per token
    if (scaling := sizes.scaling) is not None:
        turns = scaling.context / (2 * math.pi / speed)
        share = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)
        speed = (1 - share) * speed / scaling.factor + share * speed
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), speed)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate the pairs of numbers of vectors [..., T, head_width]; a pair is i and i + head_width / 2."""
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


class GroupedAttention(nn.Module):
    """Causal self-attention with rotary positions, and several queries for each key and value."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        queries, keys = sizes.heads * sizes.head_width, sizes.groups * sizes.head_width
        self.q_proj = Projection(sizes.width, queries, bias=sizes.biases)
        self.k_proj = Projection(sizes.width, keys, bias=sizes.biases)
        self.v_proj = Projection(sizes.width, keys, bias=sizes.biases)
        self.o_proj = Projection(queries, sizes.width)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Return attended vectors: [B, T, width] -> [B, T, width]."""
        (batch, length, _), groups, width = x.shape, self.sizes.groups, self.sizes.head_width
        each = self.sizes.heads // groups
        query = self.q_proj(x).view(batch, length, groups, each, width).permute(0, 2, 3, 1, 4)
        key = self.k_proj(x).view(batch, length, groups, width).transpose(1, 2)
        value = self.v_proj(x).view(batch, length, groups, width).transpose(1, 2)
        # Queries of a group share its key: they are rows of one product, [B, groups, each x T, T].
        query = rotated(query, cosines, sines).reshape(batch, groups, each * length, width)
        scores = query @ rotated(key, cosines, sines).transpose(-2, -1) / math.sqrt(width)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1).repeat(each, 1)
        attended = scores.masked_fill(later, -math.inf).softmax(dim=-1) @ value
        attended = attended.view(batch, groups, each, length, width).permute(0, 3, 1, 2, 4)
        return self.o_proj(attended.reshape(batch, length, groups * each * width))


class GatedFeedForward(nn.Module):
    """Feed-forward part with a gate: down(silu(gate(x)) up(x))."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.gate_proj = Projection(sizes.width, sizes.inner)
        self.up_proj = Projection(sizes.width, sizes.inner)
        self.down_proj = Projection(sizes.inner, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    """Attention and a feed-forward part, each after a norm and with a shortcut."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.self_attn = GroupedAttention(sizes)
        self.mlp = GatedFeedForward(sizes)
        self.input_layernorm = RootMeanSquareNorm(sizes.width, sizes.epsilon)
        self.post_attention_layernorm = RootMeanSquareNorm(sizes.width, sizes.epsilon)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaBody(nn.Module):
    """Token ids [B, T] -> vectors [B, T, width]."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed_tokens = Embeddings(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(LlamaBlock(sizes) for _ in range(sizes.depth))
        self.norm = RootMeanSquareNorm(sizes.width, sizes.epsilon)

    def forward(self, tokens: Tensor) -> Tensor:
        cosines, sines = rotations(self.sizes, tokens.shape[-1], tokens.device)
        hidden = functional.embedding(tokens, self.embed_tokens.weight)
        for block in self.layers:
            hidden = block(hidden, cosines, sines)
        normed: Tensor = self.norm(hidden)
        return normed


class LlamaModule(Decoder):
    """Decoder of Llama's architecture; without `lm_head`, the embedding also computes the logits."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.model = LlamaBody(sizes)
        self.lm_head = None if sizes.tied else Projection(sizes.width, sizes.vocabulary)

    @property
    def blocks(self) -> Iterable[nn.Module]:
        return self.model.layers

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.model(x.long())  # samples in a vector are float32
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return functional.linear(hidden, head.weight)
