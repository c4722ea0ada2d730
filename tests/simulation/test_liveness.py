"""Who keeps vectors alive changes no bit of a run: cycles, collections, tracebacks, tracers."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sim.core.process import without_garbage_collection
from sim.run.collection import GarbageCollection
from tests.simulation.worlds import simulation

WORLD = """\
# Gossip of models of which no product takes whole cache lines.
[run]
duration = "3 s"
evaluate_every = "1 s"

[clients]
count = 4

[data]
name = "digits"
partition = { kind = "permuted-clusters", clusters = 2, samples_per_client = 10 }
test_samples = 10

[model]
name = "mlp"
hidden = [7]

[training]
learning_rate = 0.1
batch_size = 5

[protocol]
name = "own.py:Gossip"

[network]
latency = { kind = "lognormal", median = "50 ms", sigma = 0.5 }
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = { kind = "lognormal", median = "100 ms", sigma = 0.5 }

[[churn]]
at = "1500 ms"
event = "crash"
clients = [1]
"""
METHOD = """
from dataclasses import dataclass
from protocols.framework.client import Client
from tests.simulation import test_liveness

@dataclass(frozen=True)
class Model:
    params: object

class Gossip(Client):
    async def step(self):
        update = await self.train(steps=2)
        test_liveness.keep(self.params)
        test_liveness.keep(self.params + await self.train(steps=1))
        self.params = self.params + update
        before = await self.loss(self.params)
        self.tell(self.peers[self.iterations % len(self.peers)], Model(self.params))
        if before < 2.0:
            tried = self.params + await self.train(steps=1)
            test_liveness.keep(tried - self.params)
            if await self.loss(tried) < before:
                self.params = tried

    async def on_message(self, message, sender):
        test_liveness.keep(message.params)
        self.params = 0.5 * self.params + 0.5 * message.params
"""
OPTIMIZERS = {
    "sgd": (),
    "momentum": ("training.momentum=0.9",),
    "adamw": ("training.optimizer='adamw'", "training.learning_rate=0.01"),
}
LOOP = ("engine.way='loop'",)

held: list[Any] = []


def nothing(vector: Any) -> None:
    """Submit the job that makes a vector of a sum, as all of these do, and let go of it."""
    vector.slot()


def in_a_list(vector: Any) -> None:
    """For the whole run, together with a job for each."""
    vector.slot()
    held.append(vector)


def in_a_cycle(vector: Any) -> None:
    """Until somebody collects garbage."""
    vector.slot()
    cycle = {"vector": vector}
    cycle["itself"] = cycle  # type: ignore[assignment]


def in_a_traceback(vector: Any) -> None:
    """By the frames of an error that is kept."""
    vector.slot()
    try:
        raise ValueError("kept")
    except ValueError as error:
        held.append(error)


keep: Callable[[Any], None] = nothing


@contextmanager
def collecting_at(threshold: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(threshold)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def trace_all(frame: FrameType, event: str, argument: Any) -> None:
    """As a debugger may: keep the frames of the method and of what it calls, with all that they hold."""
    if "own.py" in frame.f_code.co_filename or "client_training" in frame.f_code.co_filename:
        held.append(frame)


class Ran:
    """What came of a run."""

    def __init__(
        self,
        folder: Path,
        overrides: tuple[str, ...] = (),
        by: Callable[[Any], None] = nothing,
        *,
        collects: int | None = None,
        traced: bool = False,
    ) -> None:
        """collects: the threshold of a collector that somebody turns on again while the run goes on."""
        global keep
        (folder / "own.py").write_text(METHOD)
        before, keep = keep, by
        try:
            with without_garbage_collection(), simulation(folder, WORLD, *overrides) as built:
                built.add_hook(GarbageCollection())
                if collects is not None:
                    gc.enable()
                    gc.set_threshold(collects)
                if traced:
                    sys.settrace(trace_all)
                try:
                    built.run()
                finally:
                    sys.settrace(None)
                self.hash = built.trace.hash()
                self.jobs = built.engine.statistics.jobs
                self.bytes = built.engine.bytes_held
                self.models = [
                    client.actor.params.numpy().tobytes()
                    for client in built.clients
                    if client.actor is not None
                ]
        finally:
            keep = before
            held.clear()

    @property
    def result(self) -> tuple[str, list[bytes]]:
        return self.hash, self.models


@pytest.fixture(autouse=True)
def threshold() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.set_threshold(*before)
    gc.enable() if enabled else gc.disable()


@pytest.mark.long
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_holders_change_no_bit(optimizer: str, tmp_path: Path) -> None:
    world = OPTIMIZERS[optimizer]
    plain = Ran(tmp_path, world)
    for by in (in_a_list, in_a_cycle, in_a_traceback):
        other = Ran(tmp_path, world, by)
        assert other.result == plain.result, by.__name__
        assert other.jobs > plain.jobs and other.bytes > plain.bytes


@pytest.mark.long
def test_holders_change_no_bit_of_one_client_after_the_other(tmp_path: Path) -> None:
    plain = Ran(tmp_path, LOOP)
    assert all(Ran(tmp_path, LOOP, by).result == plain.result for by in (in_a_list, in_a_cycle))


@pytest.mark.long
def test_collections_and_tracers_change_no_bit(tmp_path: Path) -> None:
    plain = Ran(tmp_path)
    for collects in (1, 0):
        assert Ran(tmp_path, (), in_a_cycle, collects=collects).result == plain.result
        assert Ran(tmp_path, (), collects=collects).result == plain.result
        with collecting_at(collects):  # before the run, which turns it off
            assert Ran(tmp_path, (), in_a_cycle).result == plain.result
    assert Ran(tmp_path, traced=True).result == plain.result
