"""Distributions of quantities: durations (seconds), speeds (FLOP/s), bandwidths (bit/s).

A distribution is what a scenario states of it; the randomness comes from the caller's `RandomStream`, so
that each link and each client draws from its own. Each kind is written once, for any quantity;
`distributions` names the kinds for one quantity, whose units its values then carry.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from statistics import NormalDist
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, Union

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, default
from actors.settings.quantities import Duration, PositiveDuration, SigmaOfLog, Within
from sim.files.data_folder import DataFolder
from sim.kernel.random import RandomStream

Q = TypeVar("Q", bound=float)
"""A quantity."""
P = TypeVar("P", bound=float)
"""The quantity, above 0."""
L = TypeVar("L", bound=float)
"""The quantity where it is the largest of all values."""

_standard_normal = NormalDist()


class RandomQuantity(Settings):
    """A quantity that differs from client to client, or from one time to the next."""

    @property
    @abstractmethod
    def typical(self) -> float:
        """A value that is neither rare nor far from the others, in SI units."""

    @abstractmethod
    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        """What draws its values; those that are measured read their trace for it. UserError.

        `key` is where this stands in the scenario.
        """


class Distribution(RandomQuantity):
    """A distribution on [0, infinity), described by a few parameters."""

    @abstractmethod
    def sample(self, draws: RandomStream) -> float:
        """One value, in SI units; takes at most one number from `draws`."""

    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        return self.sample


class Constant(Distribution, Generic[L]):
    """The same value always."""

    kind: Literal["constant"] = "constant"
    value: L
    """The value."""

    def sample(self, draws: RandomStream) -> float:
        return self.value

    @property
    def typical(self) -> float:
        return self.value


class Uniform(Distribution, Generic[Q, L]):
    """Every value between two bounds equally likely."""

    kind: Literal["uniform"]
    low: Q
    """Smallest value."""
    high: L
    """Largest value."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            written = self.model_dump(mode="json")
            raise SettingError("high", written["high"], f"must be at least low ({written['low']})")
        return self

    def sample(self, draws: RandomStream) -> float:
        return self.low + (self.high - self.low) * draws.uniform()

    @property
    def typical(self) -> float:
        return self.high


class Normal(Distribution, Generic[Q, P]):
    """Normally distributed, cut off below; where 0 would mean for ever, the bound must be stated."""

    kind: Literal["normal"]
    mean: Q
    """Mean before the truncation."""
    sigma: P
    """Standard deviation before the truncation, in the same unit."""
    low: Q
    """Smallest value: the distribution is cut off here."""

    @model_validator(mode="after")
    def _leaves_something(self) -> Self:
        if self.low > self.mean + 30 * self.sigma:
            written = self.model_dump(mode="json")
            raise SettingError("low", written["low"], "must be at most 30 sigma above the mean")
        return self

    def sample(self, draws: RandomStream) -> float:
        # By inversion of the truncated upper tail, Q(z) = Q(low) (1 - u), which stays exact where low lies
        # far above the mean and 1 - Q would be 1.
        u = draws.uniform()
        if u == 0:  # the bound itself, where Q(low) may be 1 and the quantile infinite
            return self.low
        share_above = 0.5 * math.erfc((self.low - self.mean) / self.sigma / math.sqrt(2))
        z = -_standard_normal.inv_cdf(share_above * (1 - u))
        return max(float(self.low), self.mean + self.sigma * z)  # rounding must not undercut the bound

    @property
    def typical(self) -> float:
        return self.mean


class LogNormal(Distribution, Generic[P]):
    """Logarithm normally distributed: most near the median, a long tail of large ones."""

    kind: Literal["lognormal"]
    median: P
    """Half of the values are below it."""
    sigma: SigmaOfLog
    """Standard deviation of the logarithm; 0.5 makes one value in six more than 1.65 times the median."""

    def sample(self, draws: RandomStream) -> float:
        return self.median * math.exp(self.sigma * draws.normal())

    @property
    def typical(self) -> float:
        return self.median


class Pareto(Distribution, Generic[P]):
    """Heavy-tailed: most near the minimum, a few extremely large."""

    kind: Literal["pareto"]
    minimum: P
    """Smallest value, and the likeliest."""
    shape: Annotated[float, Field(ge=0.1), Within(0.1, 1000)]
    """The share (minimum / x)^shape lies above x; from 1 downwards the mean is infinite."""

    def sample(self, draws: RandomStream) -> float:
        return self.minimum * (1 - draws.uniform()) ** (-1 / self.shape)

    @property
    def typical(self) -> float:
        return self.minimum


KINDS: tuple[Any, ...] = (Constant, Uniform, Normal, LogNormal, Pareto)
"""The kinds that every quantity may have."""


def distributions(quantity: str, value: Any, positive: Any, *others: Any, largest: Any = None) -> Any:
    """The kinds of distributions of one quantity, called after it, and others; to be told apart by `kind`.

    value, positive, largest: the annotations of its values, of those above 0, and of the largest of all. One
    of `others` that is derived from a kind takes that one's place.
    """
    annotations = {Q: value, P: positive, L: value if largest is None else largest}

    def named(kind: Any) -> Any:
        parameters = [annotations[each] for each in kind.__pydantic_generic_metadata__["parameters"]]
        name = f"{kind.__name__}{quantity}"
        # Neither has fields but the kind's. Pydantic looks for their documentation for half a second, else.
        kind.model_config["use_attribute_docstrings"] = False
        base = kind[tuple(parameters)]
        made = type(base)(name, (base,), {"__doc__": kind.__doc__, "__module__": __name__})
        for each in (kind, base):  # others may be derived from these
            each.model_config["use_attribute_docstrings"] = True
        globals()[name] = made  # where pickle looks for it
        return made

    def of_kind(kind: Any) -> Any:
        return next((other for other in others if issubclass(other, kind)), None) or named(kind)

    kinds = [of_kind(kind) for kind in KINDS]
    kinds += [other for other in others if other not in kinds]
    return Annotated[Union[*kinds], Field(discriminator="kind")]


class NormalTime(Normal[Duration, PositiveDuration]):
    """Normally distributed, cut off below."""

    low: Duration = default("0 s")
    """Smallest value: the distribution is cut off here."""
