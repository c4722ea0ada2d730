"""Distributions of quantities: durations (seconds), speeds (FLOP/s), bandwidths (bit/s).

A distribution holds its parameters. Random numbers come from the caller's `RandomStream`, so each link and
each client uses a separate stream. A kind is written once for all quantities; `distributions` makes the kinds
of one quantity, with its units.
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
"""Quantity."""
P = TypeVar("P", bound=float)
"""Quantity, above 0."""
L = TypeVar("L", bound=float)
"""Quantity, as the largest of all values."""

_standard_normal = NormalDist()


class RandomQuantity(Settings):
    """Quantity that is drawn for each client, or for each use."""

    @abstractmethod
    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        """Return the function that draws values. Measured kinds read their trace here. Raises UserError.

        key: the scenario's key of this quantity, for errors.
        """


class Distribution(RandomQuantity):
    """Distribution on [0, infinity), described by a few parameters."""

    @abstractmethod
    def sample(self, draws: RandomStream) -> float:
        """Return one value, in SI units; takes at most one number from `draws`."""

    def sampler(self, key: str, folder: DataFolder) -> Callable[[RandomStream], float]:
        return self.sample


class Constant(Distribution, Generic[L]):
    """Constant value."""

    kind: Literal["constant"] = "constant"
    value: L
    """Value of every draw."""

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
    """Normal, truncated below at `low`."""

    kind: Literal["normal"]
    mean: Q
    """Mean before the truncation."""
    sigma: P
    """Standard deviation before the truncation, in the same unit."""
    low: Q
    """Smallest value; the distribution is truncated here."""

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
        if u == 0:  # at the bound, Q(low) may be 1 and the quantile infinite
            return self.low
        share_above = 0.5 * math.erfc((self.low - self.mean) / self.sigma / math.sqrt(2))
        z = -_standard_normal.inv_cdf(share_above * (1 - u))
        return max(float(self.low), self.mean + self.sigma * z)  # rounding must not undercut the bound


class LogNormal(Distribution, Generic[P]):
    """Lognormal: most values near the median, with a long tail of large values."""

    kind: Literal["lognormal"]
    median: P
    """Half of the values are below the median."""
    sigma: SigmaOfLog
    """Standard deviation of the logarithm. With 0.5, one value in six is more than 1.65 times the median."""

    def sample(self, draws: RandomStream) -> float:
        return self.median * math.exp(self.sigma * draws.normal())


class Pareto(Distribution, Generic[P]):
    """Pareto: most values near the minimum, and a few extremely large ones."""

    kind: Literal["pareto"]
    minimum: P
    """Smallest value, and the most likely one."""
    shape: Annotated[float, Field(ge=0.1), Within(0.1, 1000)]
    """Shape of the tail: the share (minimum / x)^shape lies above x. If it is 1 or less, the mean is
    infinite."""

    def sample(self, draws: RandomStream) -> float:
        return self.minimum * (1 - draws.uniform()) ** (-1 / self.shape)


KINDS: tuple[Any, ...] = (Constant, Uniform, Normal, LogNormal, Pareto)
"""Kinds of every quantity."""


def distributions(quantity: str, value: Any, positive: Any, *others: Any, largest: Any = None) -> Any:
    """Return the union of all kinds of one quantity, discriminated by `kind`.

    value, positive, largest: annotations of its values, of its positive values, and of its largest value.
    others: more kinds. A kind that is derived from a general kind replaces the general one.
    """
    annotations = {Q: value, P: positive, L: value if largest is None else largest}

    def named(kind: Any) -> Any:
        parameters = [annotations[each] for each in kind.__pydantic_generic_metadata__["parameters"]]
        name = f"{kind.__name__}{quantity}"
        base = kind[tuple(parameters)]
        made = type(base)(name, (base,), {"__doc__": kind.__doc__, "__module__": __name__})
        globals()[name] = made  # pickle looks here
        return made

    def of_kind(kind: Any) -> Any:
        return next((other for other in others if issubclass(other, kind)), None) or named(kind)

    kinds = [of_kind(kind) for kind in KINDS]
    kinds += [other for other in others if other not in kinds]
    return Annotated[Union[*kinds], Field(discriminator="kind")]


class NormalTime(Normal[Duration, PositiveDuration]):
    """Normal, truncated below at `low`, by default at 0."""

    low: Duration = default("0 s")
    """Smallest value; the distribution is truncated here."""
