"""Loss of transmissions on one connection: independent, or in bursts.

A `LossModel` describes the loss of a kind of connection. Its method `on` makes the process of one connection,
with separate random streams. Reliable links ask for the number of repetitions of a message, datagram links
for its loss. Both take one number of `draws` for each message, so the loss of a message does not depend on
others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import model_validator

from actors.settings.base import SettingError, Settings
from actors.settings.quantities import PositiveDuration, ShareAboveZero, ShareBelowOne
from sim.kernel.random import RandomStream

if TYPE_CHECKING:
    from sim.world.participants import Participants


class LossProcess(ABC):
    """Losses on one connection. Call the methods in the order of time."""

    __slots__ = ("draws",)

    def __init__(self, draws: RandomStream) -> None:
        self.draws = draws  # one number for each message, independent of the time

    @abstractmethod
    def lost(self, time_s: float) -> bool:
        """Return True if a transmission at this time is lost."""

    @abstractmethod
    def repetitions(self, time_s: float, every_s: float) -> int:
        """Return how often in a row a message from `time_s` is lost if repeated every `every_s` seconds."""


class PairLosses(Protocol):
    """Loss of connections of one kind, for known participants."""

    @property
    def rate(self) -> float:
        """Share of the transmissions that are lost in the long run."""

    def on(self, seed: int, pair: tuple[str, str]) -> LossProcess | None:
        """Return the loss process of this pair's connection. None if no transmission is ever lost."""


class LossModel(Settings):
    """Loss of connections of one kind."""

    @property
    @abstractmethod
    def cycle(self) -> tuple[str, float] | None:
        """Key, and mean length in seconds, of the cycles that this kind draws; None if it draws none.

        The reader of a scenario rejects cycles that are too short for the length of the run.
        """

    @abstractmethod
    def build(self, key: str, participants: Participants) -> PairLosses:
        """Return the losses between these participants. key: its key in the scenario. Raises UserError."""


class LossModelForAllPairs(LossModel):
    """Kind of loss that does not depend on the participants."""

    @property
    @abstractmethod
    def rate(self) -> float:
        """Share of the transmissions that are lost in the long run."""

    @abstractmethod
    def on(self, seed: int, pair: tuple[str, str]) -> LossProcess | None:
        """Return the loss process of this pair's connection. None if no transmission is ever lost."""

    def build(self, key: str, participants: Participants) -> PairLosses:
        return self


class IndependentLoss(LossModelForAllPairs):
    """Each transmission is lost with the same probability, independently of the others."""

    kind: Literal["independent"]
    probability: ShareBelowOne
    """Probability of a loss."""

    @property
    def rate(self) -> float:
        return self.probability

    @property
    def cycle(self) -> None:
        return None

    def on(self, seed: int, pair: tuple[str, str]) -> LossProcess | None:
        return _Independent(self.probability, RandomStream(seed, "loss", *pair)) if self.probability else None


class _Independent(LossProcess):
    __slots__ = ("_probability",)

    def __init__(self, probability: float, draws: RandomStream) -> None:
        super().__init__(draws)
        self._probability = probability

    def lost(self, time_s: float) -> bool:
        return self.draws.uniform() < self._probability

    def repetitions(self, time_s: float, every_s: float) -> int:
        # The number of losses in a row is geometric. By inversion; 1 - u is uniform in (0, 1].
        return int(math.log(1 - self.draws.uniform()) / math.log(self._probability))


# Gilbert, "Capacity of a burst-noise channel", 1960; Elliott, "Estimates of error rates for codes on
# burst-noise channels", 1963 (Bell System Technical Journal 39 and 42). Their chain steps with every bit;
# this one runs in continuous time. A chain that steps with messages would stay bad for hours on a connection
# with one message a minute, and one more message would shift all later bursts. Here bursts depend on the seed
# and the pair only.
class BurstyLoss(LossModelForAllPairs):
    """Gilbert-Elliott: a connection alternates between good and bad, for exponentially distributed times.

    The share (good * loss_good + bad * loss_bad) / (good + bad) is lost in the long run.
    """

    kind: Literal["gilbert-elliott"]
    good: PositiveDuration
    """Mean length of a good period."""
    bad: PositiveDuration
    """Mean length of a bad period."""
    loss_good: ShareBelowOne = 0.0
    """Probability that a transmission in a good period is lost."""
    loss_bad: ShareAboveZero = 1.0
    """Probability that a transmission in a bad period is lost."""

    @model_validator(mode="after")
    def _bad_is_worse(self) -> BurstyLoss:
        if self.loss_bad <= self.loss_good:
            raise SettingError("loss_bad", self.loss_bad, f"must be more than loss_good ({self.loss_good:g})")
        return self

    @property
    def rate(self) -> float:
        lost_s = self.good * self.loss_good + self.bad * self.loss_bad
        return lost_s / (self.good + self.bad)

    @property
    def cycle(self) -> tuple[str, float]:
        return "good", self.good + self.bad

    def on(self, seed: int, pair: tuple[str, str]) -> LossProcess | None:
        return _Bursty(self, RandomStream(seed, "loss", *pair), RandomStream(seed, "loss spells", *pair))


class _Bursty(LossProcess):
    """Alternating good and bad periods. They are drawn as far ahead as needed, and dropped when they end."""

    __slots__ = ("_bad", "_ends_s", "_losses", "_means_s", "_spells")

    def __init__(self, model: BurstyLoss, draws: RandomStream, spells: RandomStream) -> None:
        super().__init__(draws)
        self._means_s = (model.good, model.bad)
        self._losses = (model.loss_good, model.loss_bad)
        self._spells = spells
        # The chain starts in equilibrium. The remainder of the first period has the distribution of a whole
        # period, since exponential lengths have no memory.
        self._bad = spells.uniform() < model.bad / (model.good + model.bad)
        self._ends_s = [
            self._means_s[self._bad] * spells.exponential()
        ]  # of the period of state `_bad` and those after it

    def lost(self, time_s: float) -> bool:
        self._forget_before(time_s)
        return self.draws.uniform() < self._loss_at(time_s)

    def repetitions(self, time_s: float, every_s: float) -> int:
        # By inversion, with one number for all repetitions: the probability of k losses in a row is the
        # product of the k probabilities, and 1 - u is uniform in (0, 1].
        self._forget_before(time_s)
        left = 1 - self.draws.uniform()
        count, chance = 0, self._loss_at(time_s)
        while chance >= left:
            count += 1
            chance *= self._loss_at(time_s + count * every_s)
        return count

    def _loss_at(self, time_s: float) -> float:
        while self._ends_s[-1] <= time_s:
            last_is_bad = self._bad ^ (len(self._ends_s) % 2 == 0)
            self._ends_s.append(
                self._ends_s[-1] + self._means_s[not last_is_bad] * self._spells.exponential()
            )
        return self._losses[self._bad ^ (bisect_right(self._ends_s, time_s) % 2 == 1)]

    def _forget_before(self, time_s: float) -> None:
        self._loss_at(time_s)  # draws the period of that time, which stays
        over = bisect_right(self._ends_s, time_s)
        del self._ends_s[:over]
        self._bad ^= over % 2 == 1


NO_LOSS = IndependentLoss(kind="independent", probability=0.0)
