"""Large cities: the positions of clients if the scenario sets none."""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from sim.kernel.random import RandomStream


class City(NamedTuple):
    """Latitude and longitude in degrees, and the population of the metropolitan area in millions, rounded."""

    latitude: float
    longitude: float
    millions: float


# Populations: United Nations, World Urbanization Prospects 2018, rounded; positions: the city centers.
CITIES = {
    "Tokyo": City(35.68, 139.69, 37),
    "Delhi": City(28.61, 77.21, 29),
    "Shanghai": City(31.23, 121.47, 26),
    "Sao Paulo": City(-23.55, -46.63, 22),
    "Mexico City": City(19.43, -99.13, 22),
    "Cairo": City(30.04, 31.24, 20),
    "Mumbai": City(19.08, 72.88, 20),
    "Beijing": City(39.90, 116.41, 20),
    "New York": City(40.71, -74.01, 19),
    "Buenos Aires": City(-34.60, -58.38, 15),
    "Istanbul": City(41.01, 28.98, 15),
    "Lagos": City(6.52, 3.38, 13),
    "Los Angeles": City(34.05, -118.24, 12),
    "Moscow": City(55.76, 37.62, 12),
    "Paris": City(48.86, 2.35, 11),
    "Jakarta": City(-6.21, 106.85, 11),
    "Seoul": City(37.57, 126.98, 10),
    "London": City(51.51, -0.13, 9),
    "Chicago": City(41.88, -87.63, 9),
    "Johannesburg": City(-26.20, 28.05, 6),
    "Singapore": City(1.35, 103.82, 6),
    "Sydney": City(-33.87, 151.21, 5),
    "Frankfurt": City(50.11, 8.68, 2),
}

_NAMES = tuple(CITIES)
_SUMS = tuple(accumulate(city.millions for city in CITIES.values()))


def draw_city(draws: RandomStream) -> str:
    """Draw a city, with a probability proportional to its population. Takes one random number."""
    return _NAMES[bisect_right(_SUMS, draws.uniform() * _SUMS[-1])]
