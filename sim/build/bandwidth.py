"""Each actor's bandwidths: one for all, or drawn for each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.build.actors import Actors
from sim.build.distributions import distribution
from sim.build.traces import phone_bandwidths
from sim.kernel.random import Draws
from sim.settings.distributions import ConstantBandwidth, PhoneBandwidth
from sim.settings.network import Network

_BPS = {"kbit/s": 1e3, "kB/s": 8e3}
_PLACES = {"uplink": 0, "downlink": 1}  # in what the trace says of a phone


def bandwidths(
    settings: Network, actors: Actors, data_dir: Path | None
) -> dict[str, tuple[float | None, float | None]]:
    """Up- and downlink of each actor (bits per second, None for unlimited). UserError."""
    uplink_bps, downlink_bps = (
        _of_each(way, getattr(settings, way), actors.seed, data_dir) for way in ("uplink", "downlink")
    )
    return {name: (uplink_bps(name), downlink_bps(name)) for name in actors.names}


def _of_each(way: str, settings: Any, seed: int, data_dir: Path | None) -> Callable[[str], float | None]:
    """One of an actor's two bandwidths, by its name."""
    match settings:
        case ConstantBandwidth(value=value):
            return lambda name: value
        case PhoneBandwidth(unit=unit):
            phones = phone_bandwidths(f"network.{way}", data_dir)

            def phone_bps(name: str) -> float:
                # The stream is the same for both ways, so that an actor has both of one phone.
                phone = phones[int(Draws(seed, "phone", name).uniform() * len(phones))]
                return phone[_PLACES[way]] * _BPS[unit]

            return phone_bps
    drawn = distribution(settings)
    return lambda name: drawn.sample(Draws(seed, way, name))
