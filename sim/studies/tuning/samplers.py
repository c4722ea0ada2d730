"""Samplers of trials: points in the unit cube, one coordinate for each searched setting.

A sampler returns points in batches of a fixed size and receives their scores in order, so that the same
seed gives the same points for any number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from protocols.framework.search_space import OneOf, Range
from sim.kernel.random import key
from sim.studies.tuning.sampler_names import SamplerName

_BATCH = 8
Point = tuple[float, ...]


class Sampler(Protocol):
    """Source of points."""

    def ask(self, most: int) -> list[Point]:
        """Return the next batch: at least one and at most `most` points."""

    def tell(self, points: Sequence[Point], scores: Sequence[float]) -> None:
        """Receive the scores of the last batch; higher is better, -inf is a failure."""


class Sobol:
    """Scrambled Sobol points (scipy), which cover the cube more evenly than random points."""

    def __init__(self, dimensions: int, seed: int, name: str) -> None:
        self._dimensions, self._seed = dimensions, key(seed, "tuning", name)

    def ask(self, most: int) -> list[Point]:
        from scipy.stats import qmc

        points = qmc.Sobol(self._dimensions, rng=self._seed).random_base2(math.ceil(math.log2(most)))
        return [tuple(point) for point in points[:most].tolist()]

    def tell(self, points: Sequence[Point], scores: Sequence[float]) -> None:
        pass


class TPE:
    """Tree-structured Parzen estimator (Optuna), which learns from earlier scores."""

    def __init__(self, values: Sequence[Range | OneOf], seed: int, name: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=key(seed, "tuning", name) % 2**32, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._options = [len(each.options) if isinstance(each, OneOf) else None for each in values]
        self._distributions: dict[str, Any] = {
            str(index): optuna.distributions.FloatDistribution(0.0, 1.0)
            if options is None
            else optuna.distributions.CategoricalDistribution(range(options))
            for index, options in enumerate(self._options)
        }
        self._asked: list[Any] = []

    def ask(self, most: int) -> list[Point]:
        count = min(most, _BATCH)
        self._asked = [self._study.ask(self._distributions) for _ in range(count)]
        return [
            tuple(
                trial.params[str(index)]
                if options is None
                else (trial.params[str(index)] + 0.5) / options  # the middle of the option
                for index, options in enumerate(self._options)
            )
            for trial in self._asked
        ]

    def tell(self, points: Sequence[Point], scores: Sequence[float]) -> None:
        from optuna.trial import TrialState

        for trial, score in zip(self._asked, scores, strict=True):
            if math.isfinite(score):
                self._study.tell(trial, score)
            else:
                self._study.tell(trial, state=TrialState.FAIL)


def make_sampler(name: SamplerName, values: Sequence[Range | OneOf], seed: int, method: str) -> Sampler:
    """Return the sampler of a method. seed: run.seed of the scenario."""
    if name is SamplerName.sobol:
        return Sobol(len(values), seed, method)
    return TPE(values, seed, method)
