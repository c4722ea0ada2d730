"""A virtual loop for each test that asks for one, and what hypothesis draws."""

import gc

import pytest

from sim.kernel.clock import VirtualLoop
from tests import draws

draws.register()


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
