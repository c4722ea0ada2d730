"""A crash in the middle of something leaves nothing behind, and what comes back is what was kept."""

import gc
from pathlib import Path

import numpy as np
import pytest

from sim.core.simulation import Simulation
from tests.simulation.worlds import QUADRATIC, events, simulation

# Steps take 0.125 s: at 1.3 s ten are done and the eleventh is under way.
CRASH = "{at='1.3 s', event='crash', clients=[2]}"
THREE = ("clients.count=3", "run.evaluate_every=1 s", "training.momentum=0.9")
SLOW_LINKS = ("network.uplink=2 kbit/s", "network.downlink=2 kbit/s")


def leftovers(built: Simulation, name: str) -> list[str]:
    """What there still is of a client that crashed, in words."""
    client = next(client for client in built.clients if client.name == name)
    network = built.network
    found = [f"task {task.get_name()}" for task in built.loop.tasks() if name in task.get_name()]
    found += [f"device {client.device.state}"] if client.device.state != "down" else []
    found += ["a learner"] if client.actor is not None else []
    found += ["an optimizer's state"] if client.compute._optimizer_state is not None else []
    found += ["an address"] if name in network._deliver else []
    found += ["the supervisor's care"] if name in built.supervisor.running else []
    for link in (network._uplinks.get(name), network._downlinks.get(name)):
        found += [f"transfers in {link}"] if link is not None and link.transfers else []
    mine = [entry["event"] for entry in events(built) if entry["actor"] == name and entry["peer"] is not None]
    unfinished = 2 * mine.count("sent") - len(mine)
    return found + ([f"{unfinished} messages in flight"] if unfinished else [])


def rows_held(built: Simulation) -> int:
    built.engine.flush()
    gc.collect()
    return built.engine.rows_held


@pytest.mark.parametrize("protocol", ["local", "gossip", "dpsgd", "cobo"])
def test_a_crash_in_the_middle_of_a_job(tmp_path: Path, protocol: str) -> None:
    world = (*THREE, f"protocol.name={protocol}", "run.duration=2.1 s")
    with simulation(tmp_path, QUADRATIC, *world, f"churn=[{CRASH}]") as built:
        built.run()
        assert leftovers(built, "client-2") == []
        assert built.clients[2].device.down_s == pytest.approx(0.8)


def test_the_engine_forgets_who_crashed(tmp_path: Path) -> None:
    """It holds what it would hold if the client had never been: no job, parameters or optimizer's state."""
    world = (*THREE, "run.duration=2 s", "run.evaluate_every=2 s")
    with simulation(tmp_path, QUADRATIC, *world, f"churn=[{CRASH}]") as built:
        built.run()
        with simulation(tmp_path, QUADRATIC, *world, "clients.count=2") as without:
            without.run()
            assert rows_held(built) == rows_held(without)
        with simulation(tmp_path, QUADRATIC, *world) as complete:
            complete.run()
            # Parameters and momentum, and those of the job that was under way at the end.
            assert rows_held(complete) == rows_held(built) + 4


def test_work_that_was_cut_short_is_never_done(tmp_path: Path) -> None:
    """Everything is computed at the end: of the crashed client there is nothing left to compute."""
    world = (*THREE, "run.duration=2 s", "run.evaluate_every=2 s")
    with simulation(tmp_path, QUADRATIC, *world, f"churn=[{CRASH}]") as built:
        built.run()
        assert built.engine.statistics.jobs == 2 * 16


@pytest.mark.parametrize("victim", ["sender", "receiver"])
def test_a_crash_in_the_middle_of_a_transfer(tmp_path: Path, victim: str) -> None:
    """Models of about 0.1 kB need most of a second on these links."""
    speaker, listener = ("client-1", "client-0") if victim == "sender" else ("client-0", "client-1")
    (tmp_path / "own.py").write_text(
        "from dataclasses import dataclass\n"
        "from protocols.framework.client import Client\n"
        "@dataclass(frozen=True)\n"
        "class Model:\n"
        "    params: object\n"
        "class Talk(Client):\n"
        "    async def step(self):\n"
        f"        if self.name == '{speaker}' and self.iterations == 1:\n"
        f"            self.tell('{listener}', Model(self.params))\n"
        f"            self.tell('{listener}', Model(self.params))\n"
        "        await self.sleep(0.5)\n"
        "    async def on_message(self, message, sender):\n"
        "        raise AssertionError('a message arrived')\n"
    )
    world = ("clients.count=2", "protocol.name=own.py:Talk", *SLOW_LINKS, "run.duration=5 s")
    with simulation(
        tmp_path, QUADRATIC, *world, "churn=[{at='600 ms', event='crash', clients=[1]}]"
    ) as built:
        built.run()
        fates = [(entry["time"], entry["event"], entry["detail"]) for entry in events(built) if entry["peer"]]
        reason = "sender crashed" if victim == "sender" else "down"
        assert fates == [(0.5, "sent", None)] * 2 + [(0.6, "dropped", reason)] * 2
        assert built.network.counts.in_flight == 0
        assert built.supervisor.failures == []
        assert leftovers(built, "client-1") == []


def parameters(built: Simulation, client: int) -> np.ndarray:
    learner = built.clients[client].actor
    assert learner is not None
    return learner.params.numpy()


def test_who_comes_back_with_its_state_goes_on_where_it_was(tmp_path: Path) -> None:
    """Parameters, optimizer, batches: after as many steps it is where it would be without the crash."""
    rejoin = "{at='2 s', event='rejoin', clients=[2], state='keep'}"
    with simulation(tmp_path, QUADRATIC, *THREE, "run.duration=3 s", f"churn=[{CRASH}, {rejoin}]") as built:
        built.run()
        assert built.clients[2].actor.iterations == 10 + 8
        with simulation(tmp_path, QUADRATIC, *THREE, "run.duration=2.25 s") as steady:
            steady.run()
            assert steady.clients[2].actor.iterations == 18
            np.testing.assert_allclose(parameters(built, 2), parameters(steady, 2), rtol=1e-6)


def test_who_comes_back_afresh_starts_anew(tmp_path: Path) -> None:
    """Without noise a step does not depend on the batch: it repeats its first steps, momentum included."""
    rejoin = "{at='2 s', event='rejoin', clients=[2], state='fresh'}"
    exact = (*THREE, "data.noise=0")
    with simulation(tmp_path, QUADRATIC, *exact, "run.duration=3 s", f"churn=[{CRASH}, {rejoin}]") as built:
        built.run()
        assert built.clients[2].actor.iterations == 8
        assert built.observer.metrics.series("client-2", "iterations").values.tolist() == [0, 8, 0, 8]
        with simulation(tmp_path, QUADRATIC, *exact, "run.duration=1 s") as first_second:
            first_second.run()
            np.testing.assert_allclose(parameters(built, 2), parameters(first_second, 2), rtol=1e-6)


def test_a_device_is_idle_after_its_return(tmp_path: Path) -> None:
    """The job that the crash cut short does not block what comes after it."""
    rejoin = "{at='1.3125 s', event='rejoin', clients=[2], state='keep'}"
    with simulation(
        tmp_path, QUADRATIC, *THREE, "run.duration=2.3125 s", f"churn=[{CRASH}, {rejoin}]"
    ) as built:
        built.run()
        assert built.clients[2].actor.iterations == 10 + 8
        assert built.clients[2].device.down_s == pytest.approx(0.0125)
        assert built.clients[2].device.waiting_s == 0.0
