"""The clients' devices: what computing costs, and when they are slow."""

from typing import Annotated

from pydantic import Field, model_validator

from protocols.settings import Compute, Duration, PositiveDuration, SettingError, Settings
from sim.settings.distributions import SpeedDistribution, TimeDistribution
from sim.settings.shared import ClientList, Factor, exactly_one


class DeviceOverride(Settings):
    """Some clients' devices differ from the distribution."""

    clients: ClientList
    """The clients."""
    slowdown: Factor | None = None
    """Factor on all their computing times; 5 is five times slower."""
    step_time: PositiveDuration | None = None
    """Their time per training step."""
    speed: Compute | None = None
    """Their speed."""

    @model_validator(mode="after")
    def _says_something(self) -> "DeviceOverride":
        if self.slowdown is None and self.step_time is None and self.speed is None:
            raise SettingError("slowdown", None, "state 'slowdown', 'step_time' or 'speed'")
        if self.step_time is not None and self.speed is not None:
            raise SettingError("speed", self.speed, "state 'step_time' or 'speed', not both")
        return self


class ScheduledSlowdown(Settings):
    """Some clients' devices are slower for a time."""

    clients: ClientList | None = None
    """The clients."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the clients, drawn at random, instead of `clients`."""
    factor: Factor
    """Factor on their computing times."""
    start: Duration
    """Begin."""
    end: PositiveDuration
    """End."""

    @model_validator(mode="after")
    def _consistent(self) -> "ScheduledSlowdown":
        exactly_one(self, "clients", "share")
        if self.end <= self.start:
            raise SettingError("end", self.end, f"must be after start ({self.start:g} s)")
        return self


class TransientStragglers(Settings):
    """Slow spells that come to every client at random, independently of the others."""

    every: PositiveDuration
    """Mean time between two spells of a client (Poisson process)."""
    length: PositiveDuration
    """Mean length of a spell (exponential)."""
    factor: Factor
    """Factor on the computing times during a spell."""


class Devices(Settings):
    """The clients' devices: `step_time` or `speed` must be stated, exactly one of them."""

    step_time: TimeDistribution | None = None
    """Time of one training step: a duration, or a table with a distribution over clients."""
    speed: SpeedDistribution | None = None
    """Speed of the device; a job then costs its floating-point operations divided by it."""
    override: tuple[DeviceOverride, ...] = ()
    """Clients whose devices differ."""
    slowdown: tuple[ScheduledSlowdown, ...] = ()
    """Slow times at known moments."""
    transient: TransientStragglers | None = None
    """Slow times at random moments."""

    @model_validator(mode="after")
    def _one_cost(self) -> "Devices":
        exactly_one(self, "step_time", "speed")
        stated, other = ("step_time", "speed") if self.speed is None else ("speed", "step_time")
        for index, override in enumerate(self.override):
            if (value := getattr(override, other)) is not None:
                problem = f"these devices are described by '{stated}', so state that"
                raise SettingError(f"override.{index}.{other}", value, problem)
        return self
