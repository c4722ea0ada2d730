"""The clients' devices: the cost of computing, and slow times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import log10, prod
from typing import Annotated, Any

from pydantic import Field, model_validator

from actors.settings.base import SettingError, Settings, at_least_one, exactly_one
from actors.settings.quantities import (
    FACTOR_MAX,
    FACTOR_MIN,
    ClientList,
    Compute,
    Factor,
    PositiveDuration,
    Probability,
    Size,
)
from sim.files.data_folder import DataFolder
from sim.kernel.random import RandomStream
from sim.plugins.point import PluginPoint
from sim.scenario.sections.energy import DevicePower, Region
from sim.world.devices.device import CostModel
from sim.world.devices.slow_times import (
    MeasuredSlowTimes,
    OwnSlowTimes,
    PeriodicSlowTimes,
    ScheduledSlowdown,
    SlowTimes,
    TransientStragglers,
)
from sim.world.devices.slowness import Slowness
from sim.world.devices.speeds import Speed, StepTime
from sim.world.plugins import QuantityPlugin

_TRIED = 3  # clients
_DIGITS_MAX = 100  # of the product of slow times that overlap


class DeviceClass(Settings):
    """A kind of device that some clients have; omitted keys have the values of all clients."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the class in messages."""
    share: Probability | None = None
    """Probability that a client has a device of this class; each client draws independently."""
    clients: ClientList | None = None
    """The clients that have a device of this class, instead of `share`."""
    step_time: StepTime | None = None
    """Time of one training step, if `[devices]` sets `step_time`."""
    speed: Speed | None = None
    """Speed, if `[devices]` sets `speed`."""
    slowdown: Factor = 1.0
    """Factor on all computing times."""
    memory: Size | None = None
    """Memory for the model."""
    power: DevicePower | None = None
    """Electric power."""
    region: Region | None = None
    """Region in the files of `[energy]`."""

    @model_validator(mode="after")
    def _one_way(self) -> DeviceClass:
        exactly_one(self, "share", "clients")
        at_least_one(self, "slowdown", "step_time", "speed", "memory", "power", "region")
        return self


class DeviceOverride(Settings):
    """Exceptions to the distribution for the devices of some clients."""

    clients: ClientList
    """The clients."""
    slowdown: Factor | None = None
    """Factor on all computing times of these clients; 5 is five times slower."""
    step_time: PositiveDuration | None = None
    """Time of one training step on these devices."""
    speed: Compute | None = None
    """Speed of these devices."""
    power: DevicePower | None = None
    """Electric power of these devices."""
    region: Region | None = None
    """Region of these devices in the files of `[energy]`."""

    @model_validator(mode="after")
    def _states_a_key(self) -> DeviceOverride:
        at_least_one(self, "slowdown", "step_time", "speed", "power", "region")
        return self


class Devices(Settings):
    """The clients' devices. Set exactly one of `step_time` and `speed`."""

    step_time: StepTime | None = None
    """Time of one training step: a duration, or a table with a distribution over clients."""
    speed: Speed | None = None
    """Speed of the device; a job then takes its floating-point operations divided by the speed."""
    memory: Size | None = None
    """Memory of each device for the model: parameters, gradient, optimizer state and a batch must fit."""
    power: DevicePower | None = None
    """Electric power of each device while it is up. Without this key, energy is unknown."""
    region: Region | None = None
    """Region of the devices in the files of `[energy]`."""
    classes: tuple[DeviceClass, ...] = Field((), alias="class")
    """Kinds of devices that some clients have."""
    override: tuple[DeviceOverride, ...] = ()
    """Exceptions for the devices of some clients."""
    slowdown: tuple[ScheduledSlowdown, ...] = ()
    """Slow times at given times."""
    transient: TransientStragglers | None = None
    """Slow times at random times."""
    periodic: PeriodicSlowTimes | None = None
    """Slow times that repeat with a period."""
    measured: MeasuredSlowTimes | None = None
    """Slow times from measurements."""
    slow_times: tuple[Annotated[OwnSlowTimes, PluginPoint(OwnSlowTimes)], ...] = ()
    """Slow times from your own functions."""

    @model_validator(mode="after")
    def _one_cost(self) -> Devices:
        exactly_one(self, "step_time", "speed")
        stated, other = ("step_time", "speed") if self.speed is None else ("speed", "step_time")
        problem = f"[devices] sets '{stated}'; set '{stated}' here instead"
        for key, entries in (("override", self.override), ("class", self.classes)):
            for index, entry in enumerate(entries):
                if getattr(entry, other) is not None:
                    raise SettingError(f"{key}.{index}.{other}", None, problem)
        listed: set[int] = set()
        for index, kind in enumerate(self.classes):
            if twice := listed.intersection(kind.clients or ()):
                problem = f"client {min(twice)} is already in an earlier class"
                raise SettingError(f"class.{index}.clients", kind.clients, problem)
            listed.update(kind.clients or ())
        if (total := sum(kind.share or 0.0 for kind in self.classes)) > 1 + 1e-9:
            raise SettingError("class", None, f"the shares add up to {total:g}: must be at most 1")
        self._require_bounded()
        return self

    def _require_bounded(self) -> None:
        """Raise SettingError if a product of a client's factors, or of simultaneous ones, is out of range."""
        for client, overrides in self.overrides.items():
            factor = prod(override.slowdown or 1.0 for override in overrides)
            if not FACTOR_MIN <= factor <= FACTOR_MAX:
                allowed = f"must be from {FACTOR_MIN:g} to {FACTOR_MAX:,}"
                problem = f"the factors of client {client} multiply to {factor:g}; their product {allowed}"
                raise SettingError("override", None, problem)
        turns = [(each.start, log10(each.factor), number) for number, each in enumerate(self.slowdown)]
        turns += [(each.end, -log10(each.factor), number) for number, each in enumerate(self.slowdown)]
        digits = 0.0
        for _, change, number in sorted(turns):
            digits += change
            if abs(digits) > _DIGITS_MAX:
                allowed = f"must be from 1e-{_DIGITS_MAX} to 1e{_DIGITS_MAX}"
                problem = f"the product of the factors of simultaneous slow times {allowed}"
                raise SettingError(f"slowdown.{number}.factor", self.slowdown[number].factor, problem)

    @cached_property
    def overrides(self) -> dict[int, list[DeviceOverride]]:
        """Overrides by client, for clients that have any."""
        found: dict[int, list[DeviceOverride]] = {}
        for override in self.override:
            for client in dict.fromkeys(override.clients):
                found.setdefault(client, []).append(override)
        return found

    def all_slow_times(self) -> Iterator[tuple[SlowTimes, tuple[int, ...]]]:
        """Yield all slow times, each with its index as a tuple; the tuple is empty outside of a list."""
        yield from ((slow, (number,)) for number, slow in enumerate(self.slowdown))
        yield from ((slow, ()) for slow in (self.periodic, self.measured, self.transient) if slow is not None)
        yield from ((slow, (number,)) for number, slow in enumerate(self.slow_times))

    def build(self, seed: int, folder: DataFolder, clients: int) -> DevicesOfClients:
        """Return the devices of `clients` clients. Raises UserError."""
        devices = DevicesOfClients(self, seed, folder, clients)
        for number, own in enumerate(self.slow_times):  # the user's functions, for a few clients
            for client in (own.clients if own.clients is not None else range(clients))[:_TRIED]:
                own.try_out(seed, client, clients, number)
        return devices


class DevicesOfClients:
    """The device of each client, drawn from the client's random numbers only."""

    def __init__(self, settings: Devices, seed: int, folder: DataFolder, clients: int) -> None:
        self._settings = settings
        self._seed = seed
        self._folder = folder
        self._clients = clients
        self._samplers: dict[int, Callable[[RandomStream], float]] = {}  # by the identity of the settings

    def slowness(self, client: int) -> Slowness:
        """Return the slowness of a client's device over time."""
        kind = self._class(client)
        factor = kind.slowdown if kind is not None else 1.0
        for override in self._settings.overrides.get(client, ()):
            factor *= override.slowdown or 1.0
        seed, clients = self._seed, self._clients
        pieces = [
            slow.pieces(seed, client, clients, *number)
            for slow, number in self._settings.all_slow_times()
            if slow.concerns(seed, client, *number)
        ]
        return Slowness(factor, *pieces)

    def cost_model(self, client: int) -> CostModel:
        """Return the cost of a client's computing: from its last override, or drawn for its class or all."""
        key = "step_time" if self._settings.step_time is not None else "speed"
        drawn = self._draw(key, client)
        stated = [getattr(each, key) for each in self._settings.overrides.get(client, ())]
        value = [drawn, *[number for number in stated if number is not None]][-1]
        return CostModel(**{"step_time_s" if key == "step_time" else "flops_per_s": value})

    def relative_speed(self, client: int) -> float:
        """Return a client's relative speed, without a unit; permanent slowdowns count."""
        cost = self.cost_model(client)
        speed = 1.0 / cost.step_time_s if cost.step_time_s is not None else cost.flops_per_s
        assert speed is not None  # one of the two is set
        return speed / self.slowness(client).factor

    def memory(self, client: int) -> tuple[int | None, str]:
        """Return the bytes of a client's device, None for no limit, and the name of its class, if any."""
        kind = self._class(client)
        limit = kind.memory if kind is not None and kind.memory is not None else self._settings.memory
        return limit, kind.name if kind is not None else ""

    def power(self, client: int) -> tuple[float, float] | None:
        """Return a client's power in watts, busy and idle: stated, or drawn; None if unknown."""
        found: DevicePower | None = self._stated("power", client)
        return None if found is None else found.watts(self._seed, client)

    def server_power(self, stated: DevicePower | None, name: str) -> tuple[float, float] | None:
        """Return the power of a server, as for a client."""
        return None if stated is None else stated.watts(self._seed, name)

    def region(self, client: int) -> str | None:
        """Return a client's region; None if unknown."""
        region: str | None = self._stated("region", client)
        return region

    def _stated(self, key: str, client: int) -> Any:
        """Return the value of a key: from the last override, or else the class, or else `[devices]`."""
        entries = (self._settings, self._class(client), *self._settings.overrides.get(client, ()))
        stated = [getattr(each, key) for each in entries if each is not None]
        return next((value for value in reversed(stated) if value is not None), None)

    def _class(self, client: int) -> DeviceClass | None:
        for kind in self._settings.classes:
            if kind.clients is not None and client in kind.clients:
                return kind
        if not self._settings.classes:
            return None
        left = RandomStream(self._seed, "device class", client).uniform()
        for kind in self._settings.classes:
            left -= kind.share or 0.0
            if left < 0:
                return kind
        return None

    def _draw(self, key: str, client: int) -> float:
        """Draw a client's step time or speed, as for its class, or as for all clients."""
        settings = getattr(self._class(client), key, None) or getattr(self._settings, key)
        if isinstance(settings, QuantityPlugin):
            return settings.of(client, self._clients, self._seed, key)
        if id(settings) not in self._samplers:
            self._samplers[id(settings)] = settings.sampler(f"devices.{key}", self._folder)
        return self._samplers[id(settings)](RandomStream(self._seed, "device", client))
