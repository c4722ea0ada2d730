"""Bandwidths of homes: some have fiber, the others a slow line with a slower uplink than downlink.

[network]
uplink = { kind = "bandwidth.py:homes", slow = 5e6 }
downlink = { kind = "bandwidth.py:homes", slow = 50e6 }
"""


def homes(rng, client, fibre: float = 0.3, slow: float = 10e6):
    if rng.random() < fibre:
        return 1e9
    return slow * rng.lognormal(0.0, 0.5)
