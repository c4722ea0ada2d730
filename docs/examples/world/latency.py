"""Latency by region: low inside a region, high between regions, and higher between them in the rush hour.

network.latency = { kind = "latency.py:by_region", regions = 3, across = "120 ms" }
"""

from coterie import Duration


def by_region(
    rng,
    sender,
    receiver,
    time,
    regions: int = 2,
    inside: Duration = "10 ms",
    across: Duration = "80 ms",
    rush_hour: Duration = "1 min",
    sigma: float = 0.3,
):
    if sender % regions == receiver % regions:
        median = inside
    else:
        median = across * (3 if time % (2 * rush_hour) < rush_hour else 1)
    return median * rng.lognormal(0.0, sigma)
