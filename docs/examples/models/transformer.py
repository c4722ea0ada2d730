"""A small transformer for images of one channel, with the rows as tokens.

[model]
name = "transformer.py:Transformer"
width = 32
"""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int, width: int = 16, dropout: float = 0.1):
        super().__init__()
        pixels = torch.Size(input_shape).numel()
        self.side = round(pixels**0.5)
        self.embed = nn.Linear(self.side, width)
        self.places = nn.Parameter(torch.randn(self.side, width) / 10)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=dropout, batch_first=True)
        self.layer.self_attn.dropout = 0.0  # torch's dropout inside attention is not reproducible
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        tokens = self.embed(x.reshape(-1, self.side, self.side)) + self.places
        return self.head(self.layer(tokens).mean(dim=1))
