"""The clients' devices: what computing costs, and when they are slow."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocols.settings import Compute, Duration, PositiveDuration, SettingError, Settings, Size
from sim.settings.distributions import (
    ConstantSpeed,
    ConstantTime,
    LogNormalSpeed,
    LogNormalTime,
    NormalSpeed,
    NormalTime,
    ParetoSpeed,
    ParetoTime,
    UniformSpeed,
    UniformTime,
)
from sim.settings.shared import ClientList, Factor, at_most_one, constant, exactly_one

Probability = Annotated[float, Field(gt=0, le=1)]


class MeasuredTime(Settings):
    """Times as far apart as those of real phones: the AI Benchmark ranking of early 2020."""

    kind: Literal["trace"]
    source: Literal["ai-benchmark"] = "ai-benchmark"
    """The trace."""
    median: PositiveDuration
    """Time of the median phone; the others' are inverse to their scores."""


class MeasuredSpeed(Settings):
    """Speeds as far apart as those of real phones: the AI Benchmark ranking of early 2020."""

    kind: Literal["trace"]
    source: Literal["ai-benchmark"] = "ai-benchmark"
    """The trace."""
    median: Compute
    """Speed of the median phone; the others' are in proportion to their scores."""


class ConstantStepTime(ConstantTime):
    """The same time always."""

    value: PositiveDuration
    """The time."""


class UniformStepTime(UniformTime):
    """Every time between two bounds equally likely."""

    high: PositiveDuration
    """Largest value."""


# No work takes no time: where a latency may be 0 always, a step may not.
StepTime = Annotated[
    Annotated[
        ConstantStepTime | UniformStepTime | NormalTime | LogNormalTime | ParetoTime | MeasuredTime,
        Field(discriminator="kind"),
    ],
    constant(PositiveDuration),
]
Speed = Annotated[
    Annotated[
        ConstantSpeed | UniformSpeed | NormalSpeed | LogNormalSpeed | ParetoSpeed | MeasuredSpeed,
        Field(discriminator="kind"),
    ],
    constant(Compute),
]


class DeviceClass(Settings):
    """A kind of device that some clients have; what it does not state is as for all others."""

    name: Annotated[str, Field(min_length=1)]
    """What it is called in messages."""
    share: Probability | None = None
    """Probability that a client has one; each client draws for itself."""
    clients: ClientList | None = None
    """The clients that have one, instead of `share`."""
    step_time: StepTime | None = None
    """Time of one training step, where devices are described by it."""
    speed: Speed | None = None
    """Speed, where devices are described by it."""
    slowdown: Factor = 1.0
    """Factor on all computing times."""
    memory: Size | None = None
    """Memory for the model."""

    @model_validator(mode="after")
    def _one_way(self) -> "DeviceClass":
        exactly_one(self, "share", "clients")
        return self


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
    share: Probability | None = None
    """Probability that a client's is, instead of `clients`; each client draws for itself."""
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
    """Slow spells that come to each client at random, independently of the others."""

    clients: ClientList | None = None
    """The clients that have them; by default all."""
    share: Probability | None = None
    """Probability that a client has them, instead of `clients`; each client draws for itself."""
    every: PositiveDuration
    """Mean time between two spells of a client (Poisson process)."""
    length: PositiveDuration
    """Mean length of a spell (exponential)."""
    factor: Factor
    """Factor on the computing times during a spell."""

    @model_validator(mode="after")
    def _one_way(self) -> "TransientStragglers":
        at_most_one(self, "clients", "share")
        return self


class PeriodicSlowTimes(Settings):
    """Devices are slow for a part of each period: phones that train well only while charging."""

    clients: ClientList | None = None
    """The clients whose devices are; by default all."""
    share_of_clients: Probability | None = None
    """Probability that a client's is, instead of `clients`; each client draws for itself."""
    period: PositiveDuration
    """Length of a period."""
    share: Annotated[float, Field(gt=0, lt=1)]
    """Share of the period that is slow: its last part."""
    factor: Factor
    """Factor on the computing times during it."""
    phase: Literal["random"] | Duration = "random"
    """How far into a period the run begins; drawn for each client, or the same for all."""

    @model_validator(mode="after")
    def _consistent(self) -> "PeriodicSlowTimes":
        at_most_one(self, "clients", "share_of_clients")
        if self.phase != "random" and self.phase >= self.period:
            problem = f"must be less than the period ({self.period:g} s)"
            raise SettingError("phase", self.phase, problem)
        return self


class MeasuredSlowTimes(Settings):
    """Devices are slowed down as a trace says, again and again."""

    clients: ClientList | None = None
    """The clients whose devices are; by default all."""
    share: Probability | None = None
    """Probability that a client's is, instead of `clients`; each client draws for itself."""
    file: Annotated[str, Field(min_length=1)]
    """CSV file with the columns time_s, from 0 on, and factor, which holds from then on. The last row ends
    the cycle, its factor does not count. Relative to the current folder or else to the scenario's."""
    offset: Literal["random"] | Duration = "random"
    """How far into the trace the run begins; drawn for each client, or the same for all."""

    @model_validator(mode="after")
    def _one_way(self) -> "MeasuredSlowTimes":
        at_most_one(self, "clients", "share")
        return self


class Devices(Settings):
    """The clients' devices: `step_time` or `speed` must be stated, exactly one of them."""

    step_time: StepTime | None = None
    """Time of one training step: a duration, or a table with a distribution over clients."""
    speed: Speed | None = None
    """Speed of the device; a job then costs its floating-point operations divided by it."""
    memory: Size | None = None
    """Memory of each device for the model: parameters, gradient, optimizer state and a batch must fit."""
    classes: tuple[DeviceClass, ...] = Field((), alias="class")
    """Kinds of devices that some clients have."""
    override: tuple[DeviceOverride, ...] = ()
    """Clients whose devices differ."""
    slowdown: tuple[ScheduledSlowdown, ...] = ()
    """Slow times at known moments."""
    transient: TransientStragglers | None = None
    """Slow times at random moments."""
    periodic: PeriodicSlowTimes | None = None
    """Slow times that come again."""
    measured: MeasuredSlowTimes | None = None
    """Slow times as measured."""

    @model_validator(mode="after")
    def _one_cost(self) -> "Devices":
        exactly_one(self, "step_time", "speed")
        stated, other = ("step_time", "speed") if self.speed is None else ("speed", "step_time")
        for index, override in enumerate(self.override):
            if (value := getattr(override, other)) is not None:
                problem = f"these devices are described by '{stated}', so state that"
                raise SettingError(f"override.{index}.{other}", value, problem)
        for index, kind in enumerate(self.classes):
            if getattr(kind, other) is not None:
                problem = f"these devices are described by '{stated}', so state that"
                raise SettingError(f"class.{index}.{other}", None, problem)
        listed: set[int] = set()
        for index, kind in enumerate(self.classes):
            if twice := listed.intersection(kind.clients or ()):
                problem = f"client {min(twice)} is in an earlier class already"
                raise SettingError(f"class.{index}.clients", kind.clients, problem)
            listed.update(kind.clients or ())
        if (total := sum(kind.share or 0.0 for kind in self.classes)) > 1 + 1e-9:
            raise SettingError("class", None, f"the shares add up to {total:g}: must be at most 1")
        return self
