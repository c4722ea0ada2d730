"""Transfers that share links, beside a simulation of the same in SimPy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from sim.kernel.clock import VirtualLoop
from sim.world.fair_sharing import Link, SharedLinks

simpy = pytest.importorskip("simpy", reason="simpy is not installed: make peers")

ACTORS, TRANSFERS = 12, 400


def workload(seed: int) -> tuple[dict[str, float], list[tuple[float, float, tuple[str, str]]]]:
    """Capacities (bit/s) of uplinks and downlinks, and transfers: (start in s, bits, their two links)."""
    rng = np.random.default_rng(seed)
    capacities = {f"{side}{actor}": float(rng.uniform(1, 20)) for side in "ud" for actor in range(ACTORS)}
    starts = np.cumsum(rng.exponential(0.08, TRANSFERS)).tolist()
    ends = [rng.choice(ACTORS, 2, replace=False).tolist() for _ in starts]
    return capacities, [
        (start, float(rng.exponential(10)), (f"u{source}", f"d{target}"))
        for start, (source, target) in zip(starts, ends, strict=True)
    ]


def fair_rates(flows: dict[int, tuple[str, str]], capacities: dict[str, float]) -> dict[int, float]:
    """By definition: the link with the least for each of its open flows fixes theirs, then the next one."""
    rates: dict[int, float] = {}
    left = dict(capacities)
    while len(rates) < len(flows):
        still = {number: links for number, links in flows.items() if number not in rates}
        users = {link: [number for number, links in still.items() if link in links] for link in left}
        tightest = min((link for link in left if users[link]), key=lambda link: left[link] / len(users[link]))
        share = left[tightest] / len(users[tightest])
        for number in users[tightest]:
            rates[number] = share
            for link in still[number]:
                left[link] -= share
    return rates


class InSimPy:
    """Each transfer is a process that is interrupted whenever its rate may have changed."""

    def __init__(self, capacities: dict[str, float], transfers: list) -> None:
        self.environment, self.capacities = simpy.Environment(), capacities
        self.flows: dict[int, tuple[str, str]] = {}
        self.rates: dict[int, float] = {}
        self.processes: dict[int, object] = {}
        self.ends: dict[int, float] = {}
        for number, transfer in enumerate(transfers):
            self.processes[number] = self.environment.process(self.transfer(number, *transfer))

    def transfer(self, number: int, start: float, bits: float, links: tuple[str, str]) -> Iterator[object]:
        yield self.environment.timeout(start)
        self.flows[number] = links
        self.share_anew(but=number)
        while bits > 0:
            began, rate = self.environment.now, self.rates[number]
            try:
                yield self.environment.timeout(bits / rate)
                break
            except simpy.Interrupt:
                bits -= (self.environment.now - began) * rate
        self.ends[number] = self.environment.now
        del self.flows[number]
        self.share_anew(but=number)

    def share_anew(self, but: int) -> None:
        before, self.rates = self.rates, fair_rates(self.flows, self.capacities)
        for number, rate in self.rates.items():
            if number != but and rate != before.get(number):
                self.processes[number].interrupt()  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
def test_transfers_end_when_they_do_in_simpy(seed: int) -> None:
    capacities, transfers = workload(seed)
    peer = InSimPy(capacities, transfers)
    peer.environment.run()

    loop = VirtualLoop()
    shared, ends = SharedLinks(loop), {}
    links = {name: Link(name, bps) for name, bps in capacities.items()}

    def start(number: int, bits: float, names: tuple[str, str]) -> None:
        def done(_: object) -> None:
            ends[number] = loop.time()

        shared.start(bits, tuple(links[name] for name in names), done)

    for number, (start_s, bits, names) in enumerate(transfers):
        loop.call_at(start_s, start, number, bits, names)
    loop.run_until(1e6)
    loop.close()
    assert len(ends) == TRANSFERS
    starts = [start_s for start_s, _, _ in transfers]
    assert all(first < second for first, second in pairwise(starts))
    waiting = [ends[number] - start_s > bits / min(capacities[name] for name in names) * 1.01
               for number, (start_s, bits, names) in enumerate(transfers)]  # fmt: skip
    assert sum(waiting) > TRANSFERS / 2, "most have had to share"
    # Some 50 steps of float64 for each, at times of up to 100 s: far below a nanosecond.
    assert max(abs(ends[number] - peer.ends[number]) for number in ends) < 1e-11
