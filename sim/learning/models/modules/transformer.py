"""GPT-2's architecture, of any size, with the names of its checkpoints.

Attention is written as products, because torch's fused attention would run for one client at a time under
vmap.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from sim.learning.models.modules.adapters import Adapter, Decoder

_INITIAL_STD = 0.02  # GPT-2's


class Affine(nn.Module):
    """x W + b, with a weight W [inputs, outputs]: transposed, as in GPT-2's checkpoints."""

    def __init__(self, inputs: int, outputs: int, std: float = _INITIAL_STD) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Initialize as GPT-2: a normal weight, no bias."""
        parameters["weight"].normal_(0.0, self.std, generator=generator)
        parameters["bias"].zero_()

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias

    def adapted(self, rank: int, alpha: float) -> "AdaptedAffine":
        """Return a layer of this size with an adapter, without values."""
        return AdaptedAffine(self, rank, alpha)


class AdaptedAffine(Adapter, Affine):
    """Affine layer with an adapter."""

    def __init__(self, base: Affine, rank: int, alpha: float) -> None:
        inputs, outputs = base.weight.shape
        super().__init__(inputs, outputs)
        self.extend(inputs, outputs, rank, alpha)


class Embeddings(nn.Module):
    """A vector for each token id, [numbers, width]."""

    def __init__(self, numbers: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(numbers, width))

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Initialize with normal values, as GPT-2."""
        parameters["weight"].normal_(0.0, _INITIAL_STD, generator=generator)


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = Affine(width, 3 * width)
        self.c_proj = Affine(width, width, _INITIAL_STD / math.sqrt(2 * depth))

    def forward(self, x: Tensor) -> Tensor:
        """Return attended vectors: [B, T, width] -> [B, T, width]."""
        batch, length, width = x.shape
        parts = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # [B, heads, T, width / heads] each
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        attended = scores.masked_fill(later, -math.inf).softmax(dim=-1) @ value
        return self.c_proj(attended.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    """Two layers; the inner layer is four times as wide by default."""

    def __init__(self, width: int, inner: int, depth: int) -> None:
        super().__init__()
        self.c_fc = Affine(width, inner)
        self.c_proj = Affine(inner, width, _INITIAL_STD / math.sqrt(2 * depth))

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class TransformerBlock(nn.Module):
    """Attention and a feed-forward part, each after a norm and with a shortcut."""

    def __init__(self, width: int, heads: int, depth: int, inner: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, depth)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width, inner, depth)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class TransformerModule(Decoder):
    """Decoder of GPT-2's architecture. The embedding of tokens is tied: it also computes the logits."""

    prefix = "transformer."

    def __init__(self, vocabulary: int, context: int, width: int, depth: int, heads: int, inner: int) -> None:
        super().__init__()
        self.wte = Embeddings(vocabulary, width)
        self.wpe = Embeddings(context, width)
        self.h = nn.ModuleList(
            TransformerBlock(width, heads, depth, inner or 4 * width) for _ in range(depth)
        )
        self.ln_f = nn.LayerNorm(width)

    @property
    def blocks(self) -> Iterable[nn.Module]:
        return self.h

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.long()  # samples in a vector are float32
        hidden = functional.embedding(tokens, self.wte.weight) + self.wpe.weight[: x.shape[-1]]
        for block in self.h:
            hidden = block(hidden)
        return self.ln_f(hidden) @ self.wte.weight.T
