"""Step times of three generations of phones, each twice as fast as the one before.

devices.step_time = { kind = "speed.py:generations", newest = "50 ms" }
"""

from coterie import Duration


def generations(rng, client, newest: Duration = "100 ms"):
    age = rng.choice(3, p=[0.5, 0.3, 0.2])
    return newest * 2**age * rng.lognormal(0.0, 0.1)
