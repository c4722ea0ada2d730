"""Latency by positions on the globe. Times are in seconds, distances in meters, angles in degrees."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, WithJsonSchema

from actors.settings.quantities import Duration, SigmaOfLog, Within
from sim.errors import UserError
from sim.kernel.random import RandomStream
from sim.world.latency.cities import CITIES, draw_city
from sim.world.latency.nodes import LatencyByNode, NodeLatency
from sim.world.participants import Participants

EARTH_RADIUS_M = 6_371_008.8  # mean radius, IUGG
SPEED_OF_LIGHT_M_PER_S = 299_792_458.0
FIBRE_M_PER_S = SPEED_OF_LIGHT_M_PER_S * 2 / 3  # the refractive index of glass fiber is about 1.5

Degrees = tuple[float, float]  # latitude (north is positive), longitude (east is positive)


_POSITION = f"a latitude and a longitude in degrees, such as [52.5, 13.4], or one of {', '.join(CITIES)}"


def _position(value: Any) -> Any:
    match value:
        case str() if value in CITIES:
            return value
        case (int() | float() as north, int() | float() as east) if abs(north) <= 90 and abs(east) <= 180:
            return (float(north), float(east))
    raise ValueError(f"must be {_POSITION}")


Position = Annotated[
    str | tuple[float, float],
    BeforeValidator(_position),
    WithJsonSchema(
        {
            "x-allowed": _POSITION,
            "anyOf": [
                {"enum": list(CITIES)},
                {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            ],
        }
    ),
]
"""The name of a city, or latitude and longitude in degrees."""


class PositionLatency(LatencyByNode):
    """Latency by positions on the globe: along great circles at 2/3 of the speed of light, plus a minimum."""

    kind: Literal["positions"]
    floor: Duration
    """Constant that is added to every latency, for the last mile and the routers on the path."""
    places: tuple[Position, ...] | None = None
    """Positions of the clients, one for each. By default each client is in a large city, drawn by
    population."""
    server_place: Position | None = None
    """Position of the servers. Without `places`, it is drawn like the clients' positions."""
    stretch: Annotated[float, Field(ge=1), Within(1, 1000)] = 1.0
    """Ratio of the length of the fiber to the length of the great circle."""
    jitter: SigmaOfLog = 0.0
    """Sigma of a lognormal factor with median 1, drawn for each message and multiplied with the pair's
    latency."""

    def build(self, key: str, participants: Participants) -> NodeLatency:
        """Return the model, with all actors at the stated positions, or each in a random city."""
        if self.places is not None and self.server_place is None and participants.servers:
            raise UserError(
                f"{key}.server_place: is missing; it is required because the positions of the clients are set"
            )
        stated = dict(zip(participants.clients, self.places or (), strict=self.places is not None))
        if self.server_place is not None:
            stated |= dict.fromkeys(participants.servers, self.server_place)
        positions: dict[str, Degrees] = {}
        for name in participants.names:
            drawn = RandomStream(participants.seed, "place", name)
            position = stated[name] if name in stated else draw_city(drawn)
            positions[name] = CITIES[position][:2] if isinstance(position, str) else position
        numbers = {position: number for number, position in enumerate(dict.fromkeys(positions.values()))}
        return NodeLatency(
            fibre_seconds(list(numbers), self.floor, self.stretch),
            {name: numbers[position] for name, position in positions.items()},
            jitter=self.jitter,
            positions=positions,
        )


def great_circle_m(one: Degrees, other: Degrees) -> float:
    """Return the distance along the surface of a spherical Earth, by the haversine formula."""
    latitude, longitude = map(math.radians, one)
    other_latitude, other_longitude = map(math.radians, other)
    haversine = (
        math.sin((other_latitude - latitude) / 2) ** 2
        + math.cos(latitude) * math.cos(other_latitude) * math.sin((other_longitude - longitude) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(haversine)))


def fibre_seconds(positions: Sequence[Degrees], floor_s: float, stretch: float) -> NDArray[np.float64]:
    """Return one-way latencies between positions, (1, n, n) for n positions, at the speed of light in fiber.

    The fiber is `stretch` times as long as the great circle; `floor_s` is added for the last mile and the
    routers on the path.
    """
    seconds = [
        [floor_s + stretch * great_circle_m(one, other) / FIBRE_M_PER_S for other in positions]
        for one in positions
    ]
    return np.array([seconds])
