"""A virtual loop for each test that asks for one."""

import pytest

from sim.world.clock import VirtualLoop


@pytest.fixture
def loop():
    """A fresh loop, shut down afterwards unless the test did."""
    loop = VirtualLoop()
    yield loop
    if not loop.is_closed():
        loop.shutdown()
