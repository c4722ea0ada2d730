"""A device is a queue with one server: its waiting times are those of queueing theory."""

import asyncio
from statistics import mean

import pytest

from sim.kernel.clock import VirtualLoop
from sim.kernel.random import RandomStream
from sim.world.devices.device import Device

JOBS = 40_000


def mean_wait_s(load: float, *, exponential: bool) -> float:
    """Mean wait before service of jobs of mean length 1 s that arrive at random, `load` per second."""
    loop = VirtualLoop()
    device = Device(loop)
    arrivals, lengths = RandomStream(1, "arrivals"), RandomStream(1, "lengths")
    waits_s: list[float] = []

    async def job(length_s: float) -> None:
        arrived_s = loop.time()
        await device.run(length_s)
        waits_s.append(loop.time() - arrived_s - length_s)

    async def source() -> None:
        for _ in range(JOBS):
            await asyncio.sleep(arrivals.exponential() / load)
            loop.create_task(job(lengths.exponential() if exponential else 1.0))

    loop.create_task(source())
    loop.run_forever()
    loop.shutdown()
    assert len(waits_s) == JOBS
    return mean(waits_s[JOBS // 20 :])


@pytest.mark.long
@pytest.mark.parametrize("load", [0.3, 0.6])
def test_waiting_times_are_those_of_pollaczek_and_khinchine(load: float) -> None:
    """M/G/1: load E[S^2] / (2 (1 - load) E[S]); half as much for constant lengths as for exponential ones."""
    assert mean_wait_s(load, exponential=False) == pytest.approx(load / (2 * (1 - load)), rel=0.05)
    assert mean_wait_s(load, exponential=True) == pytest.approx(load / (1 - load), rel=0.05)
