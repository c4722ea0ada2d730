"""Slow times: every device is slower in its owner's office hours, and all are slower during an update.

[[devices.slow_times]]
kind = "slow_times.py:office_hours"
factor = 5.0

[[devices.slow_times]]
kind = "slow_times.py:updates"
"""

from coterie import Duration


def office_hours(rng, begin: Duration = "8 h", end: Duration = "17 h", factor: float = 10.0):
    day, late = 86_400.0, 3_600.0 * rng.uniform(0.0, 1.0)
    start = 0.0
    while True:
        yield start + begin + late, 1.0
        yield start + end + late, factor
        start += day


def updates(rng, shared_rng, every: Duration = "1 h", factor: float = 3.0):
    time = 0.0
    while True:
        time += shared_rng.exponential(every)  # the update is announced to all clients at once,
        yield time, 1.0
        time += rng.uniform(60.0, 300.0)  # and each client starts it after a random delay
        yield time, factor
        time += 300.0
        yield time, 1.0
