"""Benefit of more trials: the expected best of k trials, and the spread of repeated tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_GROUPS = 4


def expected_best_of(scores: Sequence[float], values: Sequence[float], k: int) -> float:
    """Return the expected value of the trial that has the best score among k random ones of all n trials.

    scores: higher is better, -inf is a failure. values: a quantity of each trial, such as the score; nan for
    failed trials. Returns nan if all of k random trials can be failed ones.

    The trial of rank r (from 0) is the best of a random subset of k with probability C(n-1-r, k-1) / C(n, k).
    """
    n = len(scores)
    order = sorted(range(n), key=lambda index: (-scores[index], index))
    weights = [math.comb(n - 1 - rank, k - 1) / math.comb(n, k) for rank in range(n)]
    parts = [weight * values[index] for weight, index in zip(weights, order, strict=True) if weight > 0]
    return math.fsum(parts)


def numbers_of_trials(trials: int) -> list[int]:
    """Return 1, 2, 4, ... up to the number of trials."""
    return [2**power for power in range(trials.bit_length()) if 2**power <= trials]


def smaller_search_spread(scores: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation of the values of the trials that four smaller searches select.

    Each smaller search has every fourth trial: 0, 4, 8, ..., then 1, 5, 9, ... Both numbers are nan with
    fewer than eight trials, and if all trials of a smaller search failed.
    """
    if len(scores) < 2 * _GROUPS:
        return math.nan, math.nan
    chosen = []
    for group in range(_GROUPS):
        best = max(range(group, len(scores), _GROUPS), key=lambda index: scores[index])
        chosen.append(values[best] if math.isfinite(scores[best]) else math.nan)
    return float(np.mean(chosen)), float(np.std(chosen, ddof=1))
