"""Wakeups per second of event loops on which every actor only sleeps."""

import asyncio
import random
import selectors
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from importlib.util import find_spec

from benchmarks.measuring import Effort, Say, interleaved, median_ratio, per_second, table, times
from sim.kernel.clock import VirtualLoop
from sim.kernel.task import sleep

WAKEUPS = 200_000  # approximate number in one full measurement
LEAD_S = 2.0  # virtual time before the measurement, in which every actor is created and sleeps

TEXT = """\
Each of N actors repeats a sleep, with its own delay d between 0.5 and 1.5 virtual seconds. *VirtualLoop*
uses the sleep of actors, `await self.sleep(d)`, without the actor; the next column uses `asyncio.sleep(d)`.
The table counts wakeups, about {wakeups:,} in each measurement; creating and ending the actors is not
timed. *asyncio, patched clock* is Python's selector loop with a virtual `time()`, and a `select()` that
makes no system call but skips to the next timer. *SimPy* runs the same actors as processes that yield
timeouts."""


class Patched(asyncio.SelectorEventLoop):
    """asyncio's loop in virtual time: instead of waiting for the next timer, it advances its clock."""

    class Selector(selectors.DefaultSelector):
        """Select nothing, and advance the clock by the timeout."""

        time_s = 0.0

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            self.time_s += timeout or 0.0
            return []

    def __init__(self) -> None:
        self._clock = self.Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.time_s


def on_asyncio(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    sleep: Callable[[float], Awaitable[None]],
    delays_s: Sequence[float],
    span_s: float,
) -> tuple[int, float]:
    """Return the wakeups within `span_s` of virtual time on a new loop, and their wall-clock seconds."""
    wakeups = 0

    async def actor(delay_s: float) -> None:
        nonlocal wakeups
        while True:
            await sleep(delay_s)
            wakeups += 1

    async def measure() -> tuple[int, float]:
        actors = [asyncio.create_task(actor(delay_s)) for delay_s in delays_s]
        await asyncio.sleep(LEAD_S)
        before, started = wakeups, time.perf_counter()
        await asyncio.sleep(span_s)
        result = wakeups - before, time.perf_counter() - started
        for task in actors:
            task.cancel()
        await asyncio.gather(*actors, return_exceptions=True)
        return result

    loop = make_loop()
    try:
        return loop.run_until_complete(measure())
    finally:
        loop.close()


def on_simpy(delays_s: Sequence[float], span_s: float) -> tuple[int, float]:
    """Return the wakeups and wall-clock seconds of the same actors on SimPy."""
    import simpy

    wakeups = 0
    environment = simpy.Environment()

    def actor(delay_s: float) -> Generator[simpy.Event]:
        nonlocal wakeups
        while True:
            yield environment.timeout(delay_s)
            wakeups += 1

    for delay_s in delays_s:
        environment.process(actor(delay_s))
    environment.run(until=LEAD_S)
    before, started = wakeups, time.perf_counter()
    environment.run(until=LEAD_S + span_s)
    return wakeups - before, time.perf_counter() - started


def contenders(actors: int, wakeups: int) -> Mapping[str, Callable[[], float]]:
    """Return the loops to compare, by name; each measures wakeups per second."""
    generator = random.Random(actors)
    delays_s = [generator.uniform(0.5, 1.5) for _ in range(actors)]
    span_s = wakeups / sum(1 / delay_s for delay_s in delays_s)

    def rate(run: Callable[..., tuple[int, float]], *how: object) -> float:
        count, seconds = run(*how, delays_s, span_s)
        return count / seconds

    found = {
        "VirtualLoop": lambda: rate(on_asyncio, VirtualLoop, sleep),
        "VirtualLoop, asyncio.sleep": lambda: rate(on_asyncio, VirtualLoop, asyncio.sleep),
        "asyncio, patched clock": lambda: rate(on_asyncio, Patched, asyncio.sleep),
    }
    return found | ({"SimPy": lambda: rate(on_simpy)} if find_spec("simpy") else {})


def measure(effort: Effort, say: Say) -> str:
    """Return the section on the event loop, in Markdown."""
    wakeups = round(WAKEUPS * effort.share)
    rows, names = [], []
    for actors in effort.sizes(100, 1_000, 10_000, 100_000):
        rates = interleaved(contenders(actors, wakeups), effort.repetitions)
        names = list(rates)
        ours, *others = rates.values()
        ratios = [times(median_ratio(ours, other)) for other in others]
        rows.append([f"{actors:,}", *map(per_second, rates.values()), *ratios])
        say(f"event loop, {actors:,} actors: {rows[-1][1]} wakeups/s, {', '.join(ratios)} of the others")
    head = ["actors", *[f"{name}, wakeups/s" for name in names], *[f"to {name}" for name in names[1:]]]
    return "\n\n".join(["## Event loop", TEXT.format(wakeups=wakeups), table(head, rows)])
