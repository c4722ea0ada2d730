"""Energy constants of each client and server, as stated in a scenario; None for unknown constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from actors.settings.units import ENERGY
from sim.errors import UserError
from sim.scenario.scenario import Scenario
from sim.scenario.sections.energy import BytesEnergy, Rate, RateTable
from sim.scenario.sections.server import ServerSection

Hours = tuple[float, ...]
"""Values of each hour of the run; after the last one, they repeat."""
Watts = tuple[float, float] | None
"""Power of a device, busy and idle; None if unknown."""
Clients = Mapping[str, tuple[Watts, str | None]]
"""Power and region of each client; None if unknown."""
PER_BYTE = "network.energy_per_byte"


@dataclass(frozen=True)
class ActorConstants:
    """Constants of a client or a server; None if unknown.

    busy_w, idle_w: power in watts. sent_j, received_j: joules per byte. price, carbon: money, and grams of
    CO2, per kilowatt-hour, with the overhead of a data center.
    """

    busy_w: float | None
    idle_w: float | None
    sent_j: float | None
    received_j: float | None
    price: Hours | None
    carbon: Hours | None


@dataclass(frozen=True)
class EnergyConstants:
    """Constants of all clients and servers.

    unknown: keys that are not set, without which results are unknown. budget_j: energy of each client.
    """

    actors: Mapping[str, ActorConstants]
    servers: tuple[str, ...]
    currency: str
    unknown: tuple[str, ...]
    budget_j: float | None

    @property
    def is_hourly(self) -> bool:
        """True if any price or carbon intensity changes over time."""
        rates = [rate for each in self.actors.values() for rate in (each.price, each.carbon)]
        return any(rate is not None and len(rate) > 1 for rate in rates)

    @property
    def is_power_known(self) -> bool:
        """True if the power of every client and server is known."""
        return all(each.busy_w is not None for each in self.actors.values())


def energy_constants(
    scenario: Scenario, clients: Clients, servers: Mapping[str, Watts]
) -> EnergyConstants | None:
    """Return the constants of a scenario; None if it states none. Raises UserError."""
    budget = scenario.run.budget
    budget_j = None if budget is None else budget.energy
    if budget_j is not None:
        _require_for_budget(scenario, budget_j, clients)
    devices, server, energy = scenario.devices, scenario.server or ServerSection(), scenario.energy
    powers = [devices.power, *[each.power for each in devices.classes]]
    powers += [each.power for each in devices.override]
    stated = (scenario.network.energy_per_byte, server.power, server.energy_per_byte, energy)
    if all(each is None for each in (*stated, *powers)):
        return None
    rates = _Rates(scenario)
    actors = {}
    for name, (watts, region) in clients.items():
        busy_w, idle_w = watts or (None, None)
        actors[name] = ActorConstants(
            busy_w,
            idle_w,
            *_per_byte(scenario.network.energy_per_byte),
            rates.of("price", region, "devices.region"),
            rates.of("carbon", region, "devices.region"),
        )
    for name, watts in servers.items():
        busy_w, idle_w = watts or (None, None)
        actors[name] = ActorConstants(
            busy_w,
            idle_w,
            *_per_byte(server.energy_per_byte or scenario.network.energy_per_byte),
            rates.of("price", server.region, "server.region", server.pue),
            rates.of("carbon", server.region, "server.region", server.pue),
        )
    unknown = dict.fromkeys([*_missing_constants(actors, tuple(servers)), *rates.unknown])
    if servers and server.pue is None:
        unknown["server.pue"] = None
    return EnergyConstants(
        actors, tuple(servers), energy.currency if energy else "", tuple(unknown), budget_j
    )


def _per_byte(stated: BytesEnergy | None) -> tuple[float | None, float | None]:
    return (None, None) if stated is None else (stated.sent, stated.received)


def _missing_constants(actors: Mapping[str, ActorConstants], servers: tuple[str, ...]) -> Iterator[str]:
    """Return the keys of power and of energy per byte that some client or server lacks."""
    for name, each in actors.items():
        if each.busy_w is None:
            yield "server.power" if name in servers else "devices.power"
        if each.sent_j is None:
            yield PER_BYTE


class _Rates:
    """Prices and carbon intensities by region. unknown: keys that are needed and not set."""

    def __init__(self, scenario: Scenario) -> None:
        self._section = scenario.energy
        self.unknown: dict[str, None] = {}

    def of(self, key: str, region: str | None, region_key: str, pue: float | None = 1.0) -> Hours | None:
        """Return a region's values by hour, times the overhead `pue`; None if unknown. Raises UserError."""
        rate: Rate | None = None if self._section is None else getattr(self._section, key)
        if rate is None:
            self.unknown[f"energy.{key}"] = None
            return None
        found: Hours
        if not isinstance(rate, RateTable):
            found = (rate,)
        elif region in (by_region := rate.by_region):  # also reads the file if the region is unknown
            found = by_region[region]
        elif region is None:
            self.unknown[region_key] = None
            return None
        else:
            known = ", ".join(by_region)
            raise UserError(f"{region_key} = {region!r}: energy.{key} has no such region, only {known}")
        return None if pue is None else tuple([pue * each for each in found])


def _require_for_budget(scenario: Scenario, budget_j: float, clients: Clients) -> None:
    """Raise UserError if a budget of energy needs a constant that is not stated, or may never be used up."""
    about = f'run.budget.energy = "{ENERGY.format(budget_j)}"'
    powers = [watts for watts, _ in clients.values()]
    if None in powers:
        raise UserError(f"{about}: the power of some clients is unknown; set devices.power")
    if scenario.network.energy_per_byte is None:
        zero = 'network.energy_per_byte = "0 J/B"'
        raise UserError(f"{about}: also set network.energy_per_byte ({zero} leaves out messages)")
    has_other_end = scenario.run.duration is not None or scenario.run.iterations is not None
    if not has_other_end and not all(watts and all(watts) for watts in powers):
        raise UserError(
            f"{about}: a client with a power of 0 W might never exhaust this budget; also set run.duration"
        )
