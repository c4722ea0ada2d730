"""Energy: electric power of devices, energy of messages, price and carbon intensity of electricity."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, NonNegativeFloat, TypeAdapter, model_validator

from actors.settings.base import SettingError, Settings, at_least_one
from actors.settings.quantities import EnergyPerByte, PositivePower, Power, Within
from actors.settings.tables import Shorthand, allow_plain_quantity
from sim.files.input_file import InputFile
from sim.files.named_files import BesideFile
from sim.files.rows import read_rows
from sim.kernel.random import RandomStream
from sim.world.distributions import Distribution, distributions

if TYPE_CHECKING:
    Watts = Distribution
else:
    Watts = Annotated[distributions("Power", Power, PositivePower), allow_plain_quantity(Power)]

Region = Annotated[str, Field(min_length=1)]
PowerUsageEffectiveness = Annotated[float, Within(1, 10)]
_PER_KWH_MAX = 1e6
_HOURS_MAX = 8784


class DevicePower(Settings):
    """Electric power of a device: quantities, or tables with a distribution over clients."""

    busy: Watts
    """Power while the device computes."""
    idle: Watts
    """Power while the device is up and does not compute. A device that is down draws no power."""

    def watts(self, seed: int, who: int | str) -> tuple[float, float]:
        """Return the busy and the idle power of one device; distributions are drawn for each device."""
        busy, idle = (RandomStream(seed, f"{key} power", who) for key in ("busy", "idle"))
        return self.busy.sample(busy), self.idle.sample(idle)


class BytesEnergy(Settings):
    """Energy per byte at both ends of a message."""

    sent: EnergyPerByte
    """Energy at the sender, for each byte of a sent message."""
    received: EnergyPerByte
    """Energy at the receiver, for each byte of a delivered message."""


def _for_both_ends(value: Any) -> Any:
    return value if isinstance(value, dict | Settings) else {"sent": value, "received": value}


if TYPE_CHECKING:
    EnergyOfBytes = BytesEnergy
else:
    EnergyOfBytes = Annotated[
        BytesEnergy, Shorthand(_for_both_ends, TypeAdapter(EnergyPerByte).json_schema())
    ]


class RateTable(Settings):
    """Table of values per kilowatt-hour, by region and hour.

    CSV or .parquet file with the columns `region`, `hour` and `per_kwh`. Hours count from 0, the start of the
    run; after the last hour of a region, its rows repeat.
    """

    file: Annotated[BesideFile, Field(min_length=1)]
    """The path is relative to the current folder or, if it does not exist there, to the folder of the
    scenario."""

    @cached_property
    def by_region(self) -> dict[str, tuple[float, ...]]:
        """Values of each hour, by region. Raises UserError."""
        source = InputFile("file of energy.price or energy.carbon", Path(self.file))
        found: dict[str, dict[int, float]] = {}
        for row in read_rows(source, "region", "hour", "per_kwh"):
            hour = row.number("hour", 0, _HOURS_MAX - 1)
            hours = found.setdefault(row.values["region"], {})
            if hour != int(hour) or hour in hours:
                raise row.refusal(f"hour = {hour:g}: must be a whole number, once for each region")
            hours[int(hour)] = row.number("per_kwh", 0, _PER_KWH_MAX)
        for region, hours in found.items():
            if missing := sorted(set(range(max(hours) + 1)) - set(hours)):
                raise source.refusal(f"has no row of hour {missing[0]} for region {region}")
        return {region: tuple([hours[hour] for hour in sorted(hours)]) for region, hours in found.items()}


Rate = Annotated[NonNegativeFloat, Within(0, _PER_KWH_MAX)] | RateTable


class EnergySection(Settings):
    """Price and carbon intensity of electricity. Results for which a key is missing are unknown."""

    price: Rate | None = None
    """Price of a kilowatt-hour, or a table with a file of prices by region and hour."""
    currency: str = ""
    """Currency of `price`, for results."""
    carbon: Rate | None = None
    """Carbon intensity: grams of CO2 equivalent per kilowatt-hour, or a table with a file by region and
    hour."""

    @model_validator(mode="after")
    def _something(self) -> EnergySection:
        at_least_one(self, "price", "carbon")
        if self.currency and self.price is None:
            raise SettingError("currency", self.currency, "has no effect without 'price'")
        return self
