"""Bandwidths of actors in bits per second: constant, drawn for each actor, measured, or varying over time."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_never

from actors.settings.base import Settings
from actors.settings.quantities import Bandwidth, BandwidthOrUnlimited
from actors.settings.tables import allow_plain_quantity
from sim.files.data_folder import DataFolder
from sim.files.rows import read_rows
from sim.kernel.random import RandomStream
from sim.plugins.point import PluginPoint
from sim.world.changing_bandwidths import (
    ChangingBandwidth,
    ChangingBandwidthFromMahimahi,
    ChangingBandwidthFromTable,
)
from sim.world.distributions import Constant, Distribution, distributions
from sim.world.network_model import Schedule
from sim.world.participants import Participants
from sim.world.plugins import QuantityPlugin, actor_ids

_BPS = {"kbit/s": 1e3, "kB/s": 8e3}


class ConstantBandwidth(Constant[Any]):
    """The same bandwidth for every client."""

    value: BandwidthOrUnlimited
    """The bandwidth."""


class PhoneBandwidth(Settings):
    """Mean measured bandwidth of a real phone, drawn for each client with replacement.

    Uplink and downlink of a client belong to the same phone. (19 phones, from FLASH: Yang et al., WWW 2021.)
    """

    kind: Literal["trace"]
    source: Literal["phones"]
    """Trace file: `device-traces/phone_bandwidth.csv` in the data folder, with the columns `up_mean` and
    `down_mean`."""
    unit: Literal["kbit/s", "kB/s"] = "kbit/s"
    """Unit of the trace. The source does not state the unit; the default is an assumption."""


class OwnBandwidth(QuantityPlugin):
    """Your own function returns each client's bandwidth in bits per second; None: unlimited.

    It may have any of these parameters: `rng` (a numpy generator for this client, with the same random
    numbers for uplink and downlink), `client` (the client's number, or the name of a server) and `clients`
    (the number of clients).
    """

    least, most, unit = 1.0, 1e15, "bits per second, or None,"

    def checked(self, value: Any, about: Callable[[], str]) -> float:
        return math.inf if value is None else super().checked(value, about)


Way = Literal["uplink", "downlink"]

if TYPE_CHECKING:
    ClientBandwidth = Distribution | PhoneBandwidth | ChangingBandwidth | OwnBandwidth
else:
    ClientBandwidth = Annotated[
        distributions(
            "Bandwidth",
            Bandwidth,
            Bandwidth,
            ConstantBandwidth,
            PhoneBandwidth,
            ChangingBandwidthFromTable,
            ChangingBandwidthFromMahimahi,
        ),
        PluginPoint(OwnBandwidth),
        allow_plain_quantity(BandwidthOrUnlimited),
    ]


def first_bandwidth_function(
    way: Way, settings: ClientBandwidth, participants: Participants
) -> Callable[[str], float | None]:
    """Return the function from an actor's name to its first bandwidth (None: unlimited). Raises UserError."""
    if isinstance(settings, ChangingBandwidth):
        return lambda name: next(settings.pieces(participants.seed, name))[1]
    if isinstance(settings, Constant):
        return lambda name: settings.value
    if isinstance(settings, Distribution):
        return lambda name: settings.sample(RandomStream(participants.seed, way, name))
    if isinstance(settings, OwnBandwidth):
        numbers = actor_ids(participants)

        def own_bps(name: str) -> float | None:
            # Both directions use the same random numbers, so a fast uplink can go with a fast downlink.
            bps = settings.of(numbers[name], len(participants.clients), participants.seed, "bandwidth")
            return None if bps == math.inf else bps

        return own_bps
    if not isinstance(settings, PhoneBandwidth):
        assert_never(settings)
    phones = phone_bandwidths(f"network.{way}", participants.data_folder)

    def phone_bps(name: str) -> float:
        # One stream for both directions, so that both bandwidths of an actor come from one phone.
        up, down = phones[int(RandomStream(participants.seed, "phone", name).uniform() * len(phones))]
        return (up if way == "uplink" else down) * _BPS[settings.unit]

    return phone_bps


def bandwidth_schedule(settings: ClientBandwidth, name: str, seed: int) -> Schedule | None:
    """Return the bandwidths of an actor over time; None if they do not change."""
    return partial(settings.pieces, seed, name) if isinstance(settings, ChangingBandwidth) else None


def phone_bandwidths(key: str, folder: DataFolder) -> list[tuple[float, float]]:
    """Return the mean uplink and downlink of each phone, in the unit of the trace."""
    file = folder.trace(key, "device-traces", "phone_bandwidth.csv")
    rows = read_rows(file, "up_mean", "down_mean")
    return [(row.number("up_mean", 1, 1e9), row.number("down_mean", 1, 1e9)) for row in rows]
