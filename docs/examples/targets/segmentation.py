"""Segmentation: targets are masks, the loss is the binary cross-entropy, the measure is the overlap."""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from protocols.decentralized.gossip import Gossip

SIDE = 8


def digits(rng, noise: float = 0.3):
    """Return noisy digits [N, 1, 8, 8], and the masks of their ink as targets [N, 64]."""
    pixels = load_digits().images.astype(np.float32) / 16
    noisy = pixels + noise * rng.normal(size=pixels.shape)
    return noisy[:, None], (pixels > 0.5).reshape(-1, SIDE**2).astype(np.float32)


class Segmenter(nn.Sequential):
    """A logit for each pixel, [B, 64]: targets are flattened, so the outputs are, too."""

    def __init__(self, input_shape, classes, channels: int = 8):
        first = nn.Conv2d(1, channels, 3, padding=1)
        super().__init__(first, nn.ReLU(), nn.Conv2d(channels, 1, 3, padding=1), nn.Flatten())


@dataclass(frozen=True)
class PixelLoss:
    views: int = 1

    def each(self, model, parameters, x, y):
        logits = model.forward(parameters, x)
        return functional.binary_cross_entropy_with_logits(logits, y, reduction="none").mean(dim=1)

    def __call__(self, model, parameters, x, y):
        return self.each(model, parameters, x, y).mean()


class SegmentingGossip(Gossip):
    @classmethod
    def objective(cls, settings):
        return PixelLoss()


def iou(outputs, targets, threshold: float = 0.0):
    """Return the overlap of predicted and true masks: intersection over union, the mean over samples."""
    predicted, true = outputs > threshold, targets > 0.5
    union = (predicted | true).sum(axis=1)
    return ((predicted & true).sum(axis=1) / np.maximum(union, 1)).mean()
