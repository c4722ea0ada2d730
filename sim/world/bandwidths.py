"""Each actor's bandwidths: one for all, drawn for each, or those of a measured phone. Bits per second."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protocols.framework.settings import Bandwidth, BandwidthOrUnlimited, Settings
from sim.files.data_folder import trace_file
from sim.kernel.random import RandomStream
from sim.settings.shared import constant
from sim.world.distributions import Constant, Distribution, distributions
from sim.world.participants import Participants

_BPS = {"kbit/s": 1e3, "kB/s": 8e3}


class ConstantBandwidth(Constant[Any]):
    """The same bandwidth for every client."""

    value: BandwidthOrUnlimited
    """The bandwidth."""


class PhoneBandwidth(Settings):
    """Mean measured bandwidth of a real phone, drawn for each client with replacement.

    Uplink and downlink of a client are those of the same phone. (19 phones, of FLASH: Yang et al., WWW 2021.)
    """

    kind: Literal["trace"]
    source: Literal["phones"]
    """The trace: `device-traces/phone_bandwidth.csv` in the data folder."""
    unit: Literal["kbit/s", "kB/s"] = "kbit/s"
    """What the trace's numbers mean, which its source leaves open; the default is this simulator's choice."""


Way = Literal["uplink", "downlink"]

if TYPE_CHECKING:
    ClientBandwidth = Distribution | PhoneBandwidth
else:
    ClientBandwidth = Annotated[
        distributions("Bandwidth", Bandwidth, Bandwidth, ConstantBandwidth, PhoneBandwidth),
        constant(BandwidthOrUnlimited),
    ]


def bandwidth_of_each(
    way: Way, settings: ClientBandwidth, participants: Participants
) -> Callable[[str], float | None]:
    """One of an actor's two bandwidths, by its name; None for unlimited. UserError."""
    if isinstance(settings, Distribution):
        return lambda name: settings.sample(RandomStream(participants.seed, way, name))
    phones = phone_bandwidths(f"network.{way}", participants.data_dir)

    def phone_bps(name: str) -> float:
        # The stream is the same for both ways, so that an actor has both of one phone.
        up, down = phones[int(RandomStream(participants.seed, "phone", name).uniform() * len(phones))]
        return (up if way == "uplink" else down) * _BPS[settings.unit]

    return phone_bps


def phone_bandwidths(key: str, data_dir: Path | None) -> list[tuple[float, float]]:
    """Mean up- and downlink of each phone, in the trace's own unit."""
    file = trace_file(key, data_dir, "device-traces", "phone_bandwidth.csv")
    rows = file.table("up_mean", "down_mean")
    return [(row.number("up_mean", 1, 1e9), row.number("down_mean", 1, 1e9)) for row in rows]
