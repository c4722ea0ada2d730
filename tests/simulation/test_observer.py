"""The observer is invisible to the clients, and looks when the scenario says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.core import observer
from sim.core.simulation import Simulation
from sim.learning.engine import Engine
from tests.simulation.worlds import DIGITS, QUADRATIC, events, simulation

COBO = ("protocol.name=cobo", "protocol.sampling=none", "run.duration=3 s")
PULLS = """\
from dataclasses import dataclass
from protocols.framework.client import Client
from protocols.framework.vectors import Vector

@dataclass(frozen=True)
class Model:
    params: Vector

class Choosy(Client):
    "Keeps a mixture only if it lowers the loss: what it does next depends on numbers."

    async def step(self):
        update = await self.train()
        self.params = self.params + update
        if await self.loss(self.params) < 1.5:
            await self.sleep(0.1)
        self.gossip(Model(self.params), 2)

    async def on_message(self, message, sender):
        mixed = (self.params + message.params) / 2
        if await self.loss(mixed) < await self.loss(self.params):
            self.params = mixed
"""

PAUSES = """\
from protocols.framework.client import Client

class Pauses(Client):
    async def step(self):
        update = await self.train()
        self.params = self.params + update
        await self.sleep(1.0)
"""


def messages(built: Simulation) -> list[dict[str, object]]:
    return [entry for entry in events(built) if entry["event"] != "checksum"]


def parameters(built: Simulation) -> np.ndarray:
    return np.stack([client.actor.params.numpy() for client in built.clients if client.actor])


@pytest.mark.parametrize(
    "overrides",
    [
        COBO,
        ("protocol.name=dpsgd", "protocol.mode=asynchronous", "run.duration=3 s"),
        ("protocol.name=choosy.py:Choosy", "run.duration=3 s"),
    ],
)
def test_evaluating_ten_times_as_often_changes_nothing(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    (tmp_path / "choosy.py").write_text(PULLS)
    churn = "churn=[{at='1 s', event='crash', clients=[2]}, {at='2 s', event='rejoin', clients=[2]}]"
    with simulation(tmp_path, DIGITS, *overrides, churn, "run.evaluate_every=1 s") as seldom:
        seldom.run()
        with simulation(tmp_path, DIGITS, *overrides, churn, "run.evaluate_every=100 ms") as often:
            often.run()
            assert not often.supervisor.failures
            assert messages(often) == messages(seldom)
            assert len(messages(often)) > 50
            assert len(often.observer.metrics.mean("accuracy").times) == 31
            assert len(seldom.observer.metrics.mean("accuracy").times) == 4
            np.testing.assert_allclose(parameters(often), parameters(seldom), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("every", "expected"),
    # 3 x 0.7 is a little less than 2.1
    [("700 ms", [0.0, 0.7, 1.4, 2.1]), ("500 ms", [0.0, 0.5, 1.0, 1.5, 2.0, 2.1])],
)
def test_the_start_and_the_end_are_evaluated_once(tmp_path: Path, every: str, expected: list[float]) -> None:
    with simulation(tmp_path, QUADRATIC, "run.duration=2.1 s", f"run.evaluate_every={every}") as built:
        built.run()
        assert built.observer.metrics.series("client-0", "distance").times.tolist() == expected


def test_evaluation_by_iterations_waits_for_every_client_that_is_up(tmp_path: Path) -> None:
    with simulation(
        tmp_path,
        QUADRATIC,
        "run.evaluate_every=5 iterations",
        "devices.override=[{clients=[2], slowdown=5}]",
        "run.duration=6.5 s",
    ) as built:
        built.run()
        times, iterations = built.observer.metrics.series("client-2", "iterations")
        others = built.observer.metrics.series("client-0", "iterations").values
    assert times.tolist() == [0.0, 3.125, 6.25, 6.5]
    assert iterations.tolist() == [0, 5, 10, 10]
    assert others.tolist() == [0, 25, 50, 52]


@pytest.mark.parametrize("event", ["crash", "leave"])
def test_evaluation_by_iterations_does_not_wait_for_who_is_gone(tmp_path: Path, event: str) -> None:
    with simulation(
        tmp_path,
        QUADRATIC,
        "run.evaluate_every=5 iterations",
        "devices.override=[{clients=[2], slowdown=100}]",
        "run.duration=3 s",
        f"churn=[{{at='1.5 s', event='{event}', clients=[2]}}]",
    ) as built:
        built.run()
        times, iterations = built.observer.metrics.series("client-0", "iterations")
    # At 1.5 s all others have done 12: two evaluations are overdue, and one makes up for both.
    assert times.tolist() == [0.0, 1.5, 1.875, 2.5, 3.0]
    assert iterations.tolist() == [0, 12, 15, 20, 24]


def test_a_newcomer_is_waited_for(tmp_path: Path) -> None:
    with simulation(
        tmp_path,
        QUADRATIC,
        "run.evaluate_every=10 iterations",
        "run.duration=5 s",
        "churn=[{at='1.5 s', event='join', clients=[5]}]",
    ) as built:
        built.run()
        assert built.observer.metrics.series("client-0", "iterations").times.tolist() == [0.0, 1.25, 4.0, 5.0]
        assert built.observer.metrics.series("client-5", "iterations").values.tolist() == [20, 28]


def test_a_run_ends_by_iterations(tmp_path: Path) -> None:
    with simulation(
        tmp_path,
        QUADRATIC,
        "run.iterations=12",
        "run.evaluate_every=5 iterations",
        "devices.override=[{clients=[2], slowdown=5}]",
        "run.duration=1 min",
    ) as built:
        built.run()
        times, iterations = built.observer.metrics.series("client-2", "iterations")
        assert built.loop.time() == 7.5
    assert times.tolist() == [0.0, 3.125, 6.25, 7.5]
    assert iterations.tolist() == [0, 5, 10, 12]


@pytest.mark.parametrize("protocol", ["local", "broken.py:Broken"])
def test_a_run_by_iterations_ends_although_the_slowest_is_gone(tmp_path: Path, protocol: str) -> None:
    """Whether it crashed, or failed by itself."""
    (tmp_path / "broken.py").write_text(
        "from protocols.decentralized.local import Local\n"
        "class Broken(Local):\n"
        "    async def step(self):\n"
        "        await super().step()\n"
        "        if self.name == 'client-2': raise RuntimeError('broken')\n"
    )
    text = QUADRATIC.replace('duration = "10 s"\n', "")
    crash = [] if "Broken" in protocol else ["churn=[{at='5 s', event='crash', clients=[2]}]"]
    slow = "devices.override=[{clients=[2], slowdown=40}]"
    with simulation(tmp_path, text, f"protocol.name={protocol}", "run.iterations=20", slow, *crash) as built:
        built.run()
        assert built.loop.time() == 5.0
        assert built.observer.metrics.series("client-0", "iterations").values[-1] == 40


def test_a_run_by_iterations_that_nobody_can_do_ends(tmp_path: Path) -> None:
    """A server without clients would wait for them for ever."""
    text = QUADRATIC.replace('duration = "10 s"\n', "")
    churn = "churn=[{at='2 s', event='crash', clients=[0, 1, 2, 3, 4, 5]}]"
    with simulation(tmp_path, text, "protocol.name=fedavg", "run.iterations=1000", churn) as built:
        built.run()
        assert built.loop.time() == 2.0
        assert built.observer.metrics.series("all", "alive").values[-1] == 0


OWN = """
from protocols.framework.client import Client

class Numbers(Client):
    async def step(self):
        await self.sleep(1)
        self.params = self.params.tensor()
"""


def test_numbers_instead_of_a_handle_are_the_clients_own_failure(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with simulation(tmp_path, QUADRATIC, "protocol.name=own.py:Numbers") as built:
        built.run()
        assert len(built.supervisor.failures) == len(built.clients)
        assert all("params must be a handle" in failure.error for failure in built.supervisor.failures)


def test_models_that_have_not_changed_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client trains for 125 ms and pauses for 1 s: from 1.125 s to 1.25 s, and from 2.25 s on."""
    (tmp_path / "pauses.py").write_text(PAUSES)
    overrides = (
        "protocol.name=pauses.py:Pauses",
        "devices.step_time=125 ms",
        "run.duration=3 s",
        "run.evaluate_every=500 ms",
    )
    calls, measure = [0], observer.measure_models

    def counted(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        return measure(*arguments, **named)

    monkeypatch.setattr(observer, "measure_models", counted)
    with simulation(tmp_path, DIGITS, *overrides) as once:
        once.run()
    found = calls[0]
    monkeypatch.setattr(observer.Observer, "_measured_if_changed", observer.Observer._measured)
    with simulation(tmp_path, DIGITS, *overrides) as always:
        always.run()
    assert (found, calls[0] - found) == (4, 7), "at 0, .5, 1.5 and 2.5 s, and at all times without it"
    assert once.observer.metrics.to_table() == always.observer.metrics.to_table()
    assert once.trace.hash() == always.trace.hash()


def test_weights_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    row, arrays = Engine.read, Engine.read_measurement
    monkeypatch.setattr(Engine, "read", lambda *given: reads.append("row") or row(*given))
    monkeypatch.setattr(Engine, "read_measurement", lambda *given: reads.append("arrays") or arrays(*given))
    with simulation(tmp_path, DIGITS, *COBO, "run.evaluate_every=1 s") as built:
        built.run()
    # Four evaluations: checksums, metrics, weights. At the start, all weights are constants.
    assert reads.count("row") == 0 and reads.count("arrays") in (11, 12)
    graph = built.observer.metrics.graph_table().to_pylist()
    last = {entry["source"] for entry in graph if entry["time"] == 3.0}
    assert len(last) == 6
