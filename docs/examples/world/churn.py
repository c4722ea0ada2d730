"""Churn by region: clients join and leave independently, and an outage takes a whole region down.

[[churn_process]]
kind = "churn.py:with_outages"
up = "5 min"
state = "keep"
"""

from coterie import Duration


def with_outages(
    rng,
    shared_rng,
    client,
    until,
    regions: int = 3,
    up: Duration = "10 min",
    away: Duration = "1 min",
    outages: int = 2,
    outage: Duration = "2 min",
):
    begins = shared_rng.uniform(0.0, until, size=(outages, regions))[:, client % regions]
    time = 0.0
    while time < until:
        end = time + rng.exponential(up)
        hit = [begin for begin in begins if time < begin < end]
        if hit:
            end = min(hit)
        yield time, end
        time = end + rng.exponential(away)
        for begin in begins:
            if begin <= time < begin + outage:
                time = begin + outage
