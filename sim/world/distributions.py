"""Distributions of quantities: durations (seconds), speeds (FLOP/s), bandwidths (bit/s).

A distribution holds its parameters. Random numbers come from the caller's `RandomStream`, so each link and
client draws from its own. A kind is written once for all quantities; `distributions` makes the kinds of one
quantity, with its units.
"""

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
    """A quantity that is drawn for each client, or for each use."""

    @abstractmethod
    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        """The function that draws values. Measured kinds read their trace here. UserError.

        key: the scenario's key of this quantity, for errors.
        """


class Distribution(RandomQuantity):
    """A distribution on [0, infinity), described by a few parameters."""

    @abstractmethod
    def sample(self, draws: RandomStream) -> float:
        """One value, in SI units; takes at most one number from `draws`."""

    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        return self.sample


class Constant(Distribution, Generic[L]):
    """Always the same value."""

    kind: Literal["constant"] = "constant"
    value: L
    """The value."""

    def sample(self, draws: RandomStream) -> float:
        return self.value


class Uniform(Distribution, Generic[Q, L]):
    """Uniform between two bounds."""

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


class Normal(Distribution, Generic[Q, P]):
    """Normal, truncated below. The bound must be stated where 0 is no possible value."""

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
        # By inversion of the truncated upper tail, Q(z) = Q(low) (1 - u), which stays exact if low lies
        # far above the mean and 1 - Q would be 1.
        u = draws.uniform()
        if u == 0:  # the bound itself, where Q(low) may be 1 and the quantile infinite
            return self.low
        share_above = 0.5 * math.erfc((self.low - self.mean) / self.sigma / math.sqrt(2))
        z = -_standard_normal.inv_cdf(share_above * (1 - u))
        return max(float(self.low), self.mean + self.sigma * z)  # rounding must not undercut the bound


class LogNormal(Distribution, Generic[P]):
    """Lognormal: most values near the median, a long tail of large ones."""

    kind: Literal["lognormal"]
    median: P
    """Half of the values are below it."""
    sigma: SigmaOfLog
    """Standard deviation of the logarithm; 0.5 makes one value in six more than 1.65 times the median."""

    def sample(self, draws: RandomStream) -> float:
        return self.median * math.exp(self.sigma * draws.normal())


class Pareto(Distribution, Generic[P]):
    """Pareto: most values near the minimum, a few extremely large."""

    kind: Literal["pareto"]
    minimum: P
    """Smallest value, and the most likely one."""
    shape: Annotated[float, Field(ge=0.1), Within(0.1, 1000)]
    """The share (minimum / x)^shape lies above x. For 1 or less the mean is infinite."""

    def sample(self, draws: RandomStream) -> float:
        return self.minimum * (1 - draws.uniform()) ** (-1 / self.shape)


KINDS: tuple[Any, ...] = (Constant, Uniform, Normal, LogNormal, Pareto)
"""The kinds that every quantity may have."""


def distributions(quantity: str, value: Any, positive: Any, *others: Any, largest: Any = None) -> Any:
    """The union of all kinds of one quantity, discriminated by `kind`.

    value, positive, largest: the annotations of its values, of those above 0, and of its largest value.
    others: more kinds. One that is derived from a general kind replaces it.
    """
    annotations = {Q: value, P: positive, L: value if largest is None else largest}

    def named(kind: Any) -> Any:
        parameters = [annotations[each] for each in kind.__pydantic_generic_metadata__["parameters"]]
        name = f"{kind.__name__}{quantity}"
        base = kind[tuple(parameters)]
        made = type(base)(name, (base,), {"__doc__": kind.__doc__, "__module__": __name__})
        globals()[name] = made  # where pickle looks for it
        return made

    def of_kind(kind: Any) -> Any:
        return next((other for other in others if issubclass(other, kind)), None) or named(kind)

    kinds = [of_kind(kind) for kind in KINDS]
    kinds += [other for other in others if other not in kinds]
    return Annotated[Union[*kinds], Field(discriminator="kind")]


class NormalTime(Normal[Duration, PositiveDuration]):
    """Normal, truncated below."""

    low: Duration = default("0 s")
    """Smallest value: the distribution is cut off here."""
