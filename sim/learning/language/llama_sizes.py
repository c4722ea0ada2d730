"""Sizes and constants of transformers of Llama's architecture."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RotaryScaling:
    """Slower rotations for a longer context than in the training, as in Llama 3.1.

    Pairs of numbers that turn fewer than `low` times in `context` tokens turn `factor` times slower, those
    that turn more than `high` times are unchanged, and those in between are interpolated.
    """

    factor: float
    low: float
    high: float
    context: int


@dataclass(frozen=True)
class LlamaSizes:
    """Sizes and constants of a transformer of Llama's architecture.

    Each of the `groups` keys and values serves `heads` / `groups` queries, with vectors of `head_width`
    numbers. biases: biases of queries, keys and values. tied: the embedding also computes the logits. theta,
    scaling: constants of the rotary positions.
    """

    vocabulary: int
    context: int
    width: int
    depth: int
    heads: int
    groups: int
    head_width: int
    inner: int
    epsilon: float
    theta: float
    scaling: RotaryScaling | None
    biases: bool
    tied: bool
