"""A virtual loop for each test that asks for one, and what hypothesis draws.

It draws new examples at every run at one's desk, and the same ones in continuous integration.
"""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from sim.kernel.clock import VirtualLoop

# No deadlines: how long an example takes hangs on how busy the machine is.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("desk", deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture
def loop():
    """A fresh loop, shut down afterwards unless the test did."""
    loop = VirtualLoop()
    yield loop
    if not loop.is_closed():
        loop.shutdown()


@pytest.fixture
def no_garbage_collector():
    """As in a run: what is not freed by reference counting alone is not freed."""
    gc.disable()
    yield
    gc.enable()
