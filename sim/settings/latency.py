"""Latency between the clients: drawn for each message, or decided by who talks to whom."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from protocols.settings import Duration, PositiveDuration, Settings, Within
from sim.settings.distributions import (
    ConstantTime,
    LogNormalTime,
    NormalTime,
    ParetoTime,
    UniformTime,
)
from sim.settings.shared import SigmaOfLog, constant
from sim.world.cities import CITIES

_PLACE = f"a latitude and a longitude in degrees, such as [52.5, 13.4], or one of {', '.join(CITIES)}"


def _place(value: Any) -> Any:
    if isinstance(value, str) and value in CITIES:
        return value
    if (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(type(part) in (int, float) for part in value)
    ):
        latitude, longitude = value
        if -90 <= latitude <= 90 and -180 <= longitude <= 180:
            return (float(latitude), float(longitude))
    raise ValueError(f"must be {_PLACE}")


Place = Annotated[
    str | tuple[float, float],
    BeforeValidator(_place),
    WithJsonSchema(
        {
            "x-allowed": _PLACE,
            "anyOf": [
                {"enum": list(CITIES)},
                {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            ],
        }
    ),
]
"""The name of a city, or latitude and longitude in degrees."""


class MatrixLatency(Settings):
    """Every pair has its own latency, from a file: one way, from the row's client to the column's."""

    kind: Literal["matrix"]
    file: str
    """A square matrix, as .npy or as .csv without a head, beside the scenario file or by its full path.
    Row i is client i; the last rows are the servers, if there are any. It may be larger than needed."""
    unit: Literal["s", "ms", "us"]
    """What its numbers are."""
    jitter: SigmaOfLog = 0.0
    """Each message's latency is the pair's times a lognormal factor with this sigma and median 1."""


class PositionLatency(Settings):
    """Clients are places on the globe: the great circle at two thirds of the speed of light, plus a floor."""

    kind: Literal["positions"]
    floor: Duration
    """Added to every latency: the last mile and the routers on the way."""
    places: tuple[Place, ...] | None = None
    """One for each client; without it, each client lives in a large city, drawn by population."""
    server_place: Place | None = None
    """Where the servers are; without it and without `places` they are drawn like the clients."""
    stretch: Annotated[float, Field(ge=1), Within(1, 1000)] = 1.0
    """How many times longer the fibre is than the great circle."""
    jitter: SigmaOfLog = 0.0
    """Each message's latency is the pair's times a lognormal factor with this sigma and median 1."""


class TraceLatency(Settings):
    """Measured round-trip times between real machines, halved; each client is one of them, drawn by the seed.

    No machine is taken twice before all are taken. Two clients on one machine are as near as the nearest two
    machines. (Zhu et al., IEEE/ACM Transactions on Networking 25, 2017.)
    """

    kind: Literal["trace"]
    source: Literal["planetlab", "seattle"]
    """490 machines at universities, or 99 phones and laptops, slower and burstier."""
    slice: PositiveDuration | None = None
    """Go through the trace's slices (6 of planetlab, 688 of seattle), each for so long, and then again from
    the first; without it every pair has its median over time."""
    jitter: SigmaOfLog = 0.0
    """Each message's latency is the pair's times a lognormal factor with this sigma and median 1."""


Latency = Annotated[
    Annotated[
        ConstantTime
        | UniformTime
        | NormalTime
        | LogNormalTime
        | ParetoTime
        | MatrixLatency
        | PositionLatency
        | TraceLatency,
        Field(discriminator="kind"),
    ],
    constant(Duration),
]
