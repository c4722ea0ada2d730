"""Clients that fail, are restarted, leave slowly, and come back."""

import gc
from pathlib import Path
from typing import Any

import pytest

from sim.core.simulation import Simulation
from sim.run.code_warnings import warnings_about_results
from sim.run.collection import GarbageCollection
from tests.hooks import FailureLines
from tests.simulation.worlds import QUADRATIC, events, simulation

HEAD = """\
from dataclasses import dataclass
from protocols.decentralized.local import Local

@dataclass(frozen=True)
class Word:
    text: str

class Own(Local):
    async def on_message(self, message, sender):
        pass
"""
FAILS_AT_3_S = """
    async def step(self):
        if self.name == "client-2" and self.now >= 3:
            raise ValueError("three is too late")
        await super().step()
"""
FAILS_IN_STEP_17 = """
    async def step(self):
        await super().step()
        if self.name == "client-2" and self.iterations == 16:
            raise ValueError("sixteen are enough")
"""
FAILS_ONCE = FAILS_IN_STEP_17.replace("self.iterations == 16", "2 <= self.now < 3")
LEAVES_IN_2_S = """
    async def on_stop(self):
        self.tell("client-0", Word("wait"))
        await self.sleep(2)
        self.tell("client-0", Word("over"))
"""
RECOVERS_IN_2_S = """
    async def step(self):
        await super().step()
        if self.name == "client-2" and self.now >= 1:
            raise ValueError("enough")

    async def on_failure(self, error):
        await self.sleep(2)
"""


def own(folder: Path, body: str) -> str:
    (folder / "own.py").write_text(HEAD + body)
    return "protocol.name=own.py:Own"


def lives(built: Simulation, name: str = "client-2") -> list[tuple[float, str]]:
    """(time, event) of one client's comings and goings."""
    kinds = ("start", "join", "leave", "crash", "rejoin", "failed", "restarted")
    return [
        (entry["time"], entry["event"])
        for entry in events(built)
        if entry["event"] in kinds and entry["actor"] == name
    ]


def iterations(built: Simulation) -> list[int | None]:
    return [client.actor and client.actor.iterations for client in built.clients]


def churn(*changes: tuple[str, str, str]) -> str:
    """Overrides for events of client 2: (time, event, more)."""
    return (
        "churn=["
        + ", ".join(f"{{at='{at}', event='{kind}', clients=[2]{more}}}" for at, kind, more in changes)
        + "]"
    )


def test_a_failing_client_is_reported_and_takes_nobody_down(tmp_path: Path) -> None:
    said = FailureLines()
    with simulation(tmp_path, QUADRATIC, own(tmp_path, FAILS_AT_3_S), "run.duration=5 s") as built:
        built.add_hook(said)
        built.run()
        [failure] = built.supervisor.failures
        assert (
            said.lines
            == [str(failure)]
            == [
                f"client-2 failed at 3 s in step ({failure.location}): ValueError: three is too late "
                "(stopped for good)"
            ]
        )
        assert 'raise ValueError("three is too late")' in failure.traceback
        assert iterations(built) == [40, 40, None, 40, 40, 40]
        assert lives(built) == [(0.0, "start"), (3.0, "failed")]
        assert built.churn.failed == 1
        assert built.clients[2].device.down_s == 2.0
        assert built.observer.metrics.series("all", "alive").values.tolist() == [6, 5]


def test_a_failed_client_is_restarted_so_many_times(tmp_path: Path) -> None:
    with simulation(
        tmp_path,
        QUADRATIC,
        own(tmp_path, FAILS_IN_STEP_17),
        "run.duration=8.5 s",
        "run.evaluate_every=1 s",
        "supervision={on_failure='restart', max_restarts=2}",
    ) as built:
        built.run()
        steps_s = 16 * 0.125 + 0.125  # the failure comes with the 17th
        assert lives(built) == [
            (0.0, "start"),
            (steps_s, "failed"),
            (steps_s, "restarted"),
            (2 * steps_s, "failed"),
            (2 * steps_s, "restarted"),
            (3 * steps_s, "failed"),
        ]
        assert [failure.action for failure in built.supervisor.failures] == ["restart", "restart", "stop"]
        assert (built.churn.failed, built.churn.restarted) == (3, 2)
        assert built.clients[2].device.down_s == 8.5 - 3 * steps_s
        assert iterations(built)[0] == 68
        # A new life starts from the beginning.
        distances = built.observer.metrics.series("client-2", "distance")
        assert distances.values[2] < distances.values[0] / 2
        assert distances.values[3] > distances.values[2]


@pytest.mark.parametrize("supervision", ["{on_failure='stop'}", "{on_failure='restart', max_restarts=1}"])
def test_a_run_without_anybody_left_ends(tmp_path: Path, supervision: str) -> None:
    fails = FAILS_IN_STEP_17.replace('self.name == "client-2"', "True")
    with simulation(
        tmp_path, QUADRATIC, own(tmp_path, fails), "run.duration=1 h", f"supervision={supervision}"
    ) as built:
        built.run()
        assert built.clients_up == []
        assert built.loop.time() == 2.125 * (2 if "restart" in supervision else 1)
        assert built.observer.metrics.series("all", "alive").times[-1] == built.loop.time()


def test_a_run_goes_on_for_who_is_still_to_come(tmp_path: Path) -> None:
    fails = FAILS_IN_STEP_17.replace('self.name == "client-2"', "self.name != 'client-2'")
    with simulation(
        tmp_path,
        QUADRATIC,
        own(tmp_path, fails),
        "run.duration=4 s",
        "run.evaluate_every=4 s",
        churn(("3 s", "join", "")),
    ) as built:
        built.run()
        assert built.loop.time() == 4.0
        assert iterations(built) == [None, None, 8, None, None, None]


def test_a_handover_in_one_instant_is_no_end(tmp_path: Path) -> None:
    """The last one goes in the very instant in which the next one comes."""
    text = QUADRATIC.replace('duration = "10 s"\n', "")
    with simulation(
        tmp_path,
        text,
        "clients.count=3",
        "run.iterations=20",
        "churn=[{at='1 s', event='crash', clients=[0, 1]}, {at='1 s', event='join', clients=[2]}]",
    ) as built:
        built.run()
        assert iterations(built) == [None, None, 20]
        assert built.loop.time() == 1.0 + 20 * 0.125


def words(built: Simulation) -> list[tuple[float, str, str]]:
    """(time, event, type) of what client 2 tells client 0."""
    mine: list[dict[str, Any]] = [entry for entry in events(built) if entry["actor"] == "client-2"]
    return [(entry["time"], entry["event"], entry["type"]) for entry in mine if entry["peer"] == "client-0"]


def test_who_leaves_may_finish(tmp_path: Path) -> None:
    """It is up until it has done what it had to do, and says goodbye at last."""
    with simulation(
        tmp_path,
        QUADRATIC,
        own(tmp_path, LEAVES_IN_2_S),
        "network.latency=500 ms",
        churn(("1 s", "leave", "")),
    ) as built:
        built.run()
        assert lives(built) == [(0.0, "start"), (1.0, "leave")]
        assert words(built) == [
            (1.0, "sent", "Word"),
            (1.5, "delivered", "Word"),
            (3.0, "sent", "Word"),
            (3.0, "sent", "Goodbye"),
            (3.5, "delivered", "Word"),
            (3.5, "delivered", "Goodbye"),
        ]
        assert built.clients[2].device.down_s == 7.0
        assert built.clients[0].actor.peers == [f"client-{k}" for k in (1, 3, 4, 5)]


@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_who_comes_back_before_it_has_left_is_cut_short(tmp_path: Path, state: str) -> None:
    with simulation(
        tmp_path,
        QUADRATIC,
        own(tmp_path, LEAVES_IN_2_S),
        churn(("1 s", "leave", ""), ("2.0625 s", "rejoin", f", state='{state}'")),
        "run.duration=3.0625 s",
        "run.evaluate_every=3 s",
    ) as built:
        built.run()
        assert lives(built) == [(0.0, "start"), (1.0, "leave"), (2.0625, "rejoin")]
        assert built.supervisor.failures == []
        # While it was leaving, it went on; the job that the return cut short is gone.
        assert iterations(built)[2] == (24 if state == "keep" else 8)
        assert "client-2" in built.clients[0].actor.peers
        assert [event for _, event, kind in words(built) if kind == "Word"] == ["sent", "delivered"]


@pytest.mark.parametrize("event", ["crash", "leave"])
def test_who_goes_while_it_recovers_is_not_restarted(tmp_path: Path, event: str) -> None:
    with simulation(
        tmp_path,
        QUADRATIC,
        own(tmp_path, RECOVERS_IN_2_S),
        churn(("2 s", event, ""), ("5 s", "rejoin", "")),
        "supervision={on_failure='restart'}",
        "run.duration=5.5 s",
    ) as built:
        built.run()
        assert lives(built)[:3] == [(0.0, "start"), (1.0, "failed"), (5.0, "rejoin")]
        assert built.clients[2].device.down_s == pytest.approx(4.0 + 0.375)


def test_a_failed_client_can_come_back_as_the_schedule_says(tmp_path: Path) -> None:
    """Its crash, when it is due, finds it gone already."""
    with simulation(
        tmp_path,
        QUADRATIC,
        own(tmp_path, FAILS_ONCE),
        churn(("4 s", "crash", ""), ("5 s", "rejoin", ", state='keep'")),
        "run.duration=6 s",
    ) as built:
        built.run()
        assert lives(built) == [(0.0, "start"), (2.0, "failed"), (5.0, "rejoin")]
        assert iterations(built)[2] == 15 + 8
        assert (built.churn.crashed, built.churn.failed, built.churn.rejoined) == (0, 1, 1)


def test_nothing_undoes_the_compact_form_of_a_clients_attributes(tmp_path: Path) -> None:
    """CPython reads up to some 30 attributes faster as long as nobody has asked for a dictionary of them.

    `vars()` asks for one, and an attribute that comes late to each of many clients makes one, for good.
    Methods with more attributes than `local` and `gossip` have one anyway.
    """
    many = "clients.count=60", "run.budget.steps=5", "data.clusters=2"
    with simulation(tmp_path, QUADRATIC, *many) as built:
        built.run()
        for client in built.clients:
            held = [each for each in gc.get_referents(client.actor) if type(each) is dict]
            assert not any("iterations" in each for each in held)


CYCLES = """
    async def step(self):
        await super().step()
        kept = {"model": self.params + self.params}
        kept["itself"] = kept
        kept["model"].numpy()
"""


def test_a_run_says_when_reference_cycles_held_vectors(tmp_path: Path) -> None:
    """They live until an evaluation collects garbage, take memory, and what they need is computed."""
    options = ("run.duration=3 s", "run.evaluate_every=1 s")
    with simulation(tmp_path, QUADRATIC, own(tmp_path, CYCLES), *options) as built:
        built.add_hook(GarbageCollection())
        built.run()
        [line] = [each for each in warnings_about_results(built) if "reference cycles" in each]
        assert line.startswith(
            f"reference cycles held {built.engine.vectors_in_cycles} otherwise unreachable vectors"
        )
        assert built.engine.vectors_in_cycles > 0
    with simulation(tmp_path, QUADRATIC, "protocol.name=local", *options) as built:
        built.add_hook(GarbageCollection())
        built.run()
        assert built.engine.vectors_in_cycles == 0
