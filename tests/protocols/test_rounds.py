"""Rounds with a barrier among neighbors, under stragglers, churn and outages: shown on synchronous D-PSGD.

A step takes 0.5 s and a message 0.25 s, so that an undisturbed round lasts 0.5 s: the neighbors' models
arrive while the client trains.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sim.core.simulation import Simulation
from tests.protocols.worlds import DIGITS, QUADRATIC, at, churn, cut, make, messages, ran
from tests.simulation.worlds import write

SYNCHRONOUS = ("protocol.name=dpsgd", "protocol.mode=synchronous")
RING = "clients.topology=ring"
STRAGGLER = "\n[[devices.override]]\nclients = [{}]\nslowdown = {}\n"


def rounds(world: Simulation) -> list[int]:
    """The round of each client that is up."""
    return [client.actor.rounds.number for client in world.clients_up]  # type: ignore[union-attr]


def announced(world: Simulation, sender: int, receiver: int) -> list[float]:
    """When one client sent its models to another."""
    pair = (f"client-{sender}", f"client-{receiver}")
    return [row[0] for row in messages(world, "RoundModel") if row[1:3] == pair]


def peers(world: Simulation) -> list[Sequence[str]]:
    return [client.actor.peers for client in world.clients_up if client.actor is not None]


def all_know_each_other(world: Simulation) -> bool:
    names = [client.name for client in world.clients_up]
    return peers(world) == [[other for other in names if other != name] for name in names]


# --- the barrier --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("latency", "round_s"), [("250 ms", 0.5), ("500 ms", 0.5), ("750 ms", 0.75)])
def test_a_round_lasts_as_long_as_the_slower_of_training_and_messages(latency: str, round_s: float) -> None:
    with ran(QUADRATIC, *SYNCHRONOUS, f"network.latency={latency}", "run.duration=9 s") as world:
        count = int(9 / round_s)
        assert rounds(world) == [count] * 4
        assert announced(world, 0, 1) == [round_s * number for number in range(count + 1)]


def test_a_straggler_slows_all_that_depend_on_it_to_its_pace() -> None:
    text = QUADRATIC + STRAGGLER.format(0, 4)
    with ran(text, *SYNCHRONOUS, RING, "clients.count=6", "run.duration=40 s") as world:
        # It ends round r at 2(r + 1) s. Its neighbors can end round r once its model has come, at 2r + 0.25
        # s; those further away are ahead of them by a round for each link.
        assert rounds(world) == [20, 20, 21, 22, 21, 20]
        assert announced(world, 1, 0) == [0.0, 0.5, *[2.0 * number + 0.25 for number in range(1, 20)]]


def test_clients_in_different_parts_of_the_topology_do_not_wait_for_each_other() -> None:
    text = QUADRATIC + STRAGGLER.format(0, 4)
    with ran(text, *SYNCHRONOUS, 'clients.topology={ kind = "clusters", count = 2 }') as world:
        assert rounds(world) == [4, 4, 16, 16]


# --- departures ---------------------------------------------------------------------------------------------


def test_a_crash_costs_the_survivors_their_patience_once() -> None:
    text = QUADRATIC + churn("crash", 3, "2.1 s")
    with ran(text, *SYNCHRONOUS, "protocol.patience=3 s", "run.duration=12 s") as world:
        # Client 3 has sent its models of the rounds 0 to 4. From 3.0 s on, in round 5, the
        # others wait for one more.
        assert announced(world, 0, 1) == [*[0.5 * k for k in range(6)], *[6.0 + 0.5 * k for k in range(13)]]
        assert announced(world, 0, 3) == [0.5 * k for k in range(6)]
        assert peers(world)[0] == ["client-1", "client-2"]


@pytest.mark.parametrize("when", ["2 s", "2.1 s", "2.25 s"])
def test_a_departure_with_a_goodbye_costs_nothing(when: str) -> None:
    # At 2 s sharp the one that leaves sends its model of round 4 in the same instant; its goodbye comes
    # after it.
    text = QUADRATIC + churn("leave", 3, when)
    with ran(text, *SYNCHRONOUS) as world:
        assert announced(world, 0, 1) == [0.5 * k for k in range(17)]
        assert messages(world, "RoundModel")[-1][0] == 8.0
        assert peers(world)[0] == ["client-1", "client-2"]
        assert [row[3] for row in messages(world) if row[1] == "client-3"][-1] == "Goodbye"


def test_nobody_waits_any_longer_for_a_straggler_that_leaves() -> None:
    text = QUADRATIC + STRAGGLER.format(3, 100) + churn("leave", 3, "4 s")
    with ran(text, *SYNCHRONOUS) as world:
        # In round 1 the others have waited for it since 1.0 s.
        assert announced(world, 0, 1) == [0.0, 0.5, *[4.25 + 0.5 * k for k in range(8)]]


def test_an_all_knowing_client_does_not_wait_for_a_crashed_one() -> None:
    text = QUADRATIC.replace('latency = "250 ms"', 'latency = "250 ms"\nmembership = "all-knowing"')
    text += STRAGGLER.format(3, 100) + churn("crash", 3, "4 s")
    with ran(text, *SYNCHRONOUS) as world:
        assert announced(world, 0, 1) == [0.0, 0.5, *[4.0 + 0.5 * k for k in range(9)]]


# --- arrivals -----------------------------------------------------------------------------------------------


def test_a_newcomer_goes_on_in_the_round_of_the_others() -> None:
    text = QUADRATIC + churn("join", 3, "4.1 s")
    with ran(text, *SYNCHRONOUS, "run.duration=20 s") as world:
        # When it says hello it is told their models of round 8. After its first training, from 4.1 to 4.6 s,
        # it ends that round with them, and from then on its models come in time for everybody. (At 4.85 s it
        # seems to be behind, and is told once more where the others are.)
        assert announced(world, 3, 0) == pytest.approx([4.1, 4.6, *[4.6 + 0.5 * k for k in range(31)]])
        assert announced(world, 0, 3)[:4] == [4.35, 4.5, 4.85, 5.0]
        assert announced(world, 0, 1) == [0.5 * k for k in range(41)]
        assert rounds(world) == [40, 40, 40, 39]
        assert all_know_each_other(world)


@pytest.mark.parametrize("topology", ["ring", "complete"])
def test_newcomers_between_clients_that_are_rounds_apart(topology: str) -> None:
    text = QUADRATIC + STRAGGLER.format(0, 4) + churn("join", 2, "7.3 s") + churn("join", 4, "7.4 s")
    with ran(
        text, *SYNCHRONOUS, f"clients.topology={topology}", "clients.count=8", "run.duration=60 s"
    ) as world:
        found = rounds(world)
        assert min(found) >= 28  # the straggler's own 30, but for the arrivals
        assert all(abs(found[i] - found[i - 1]) <= 1 for i in range(8))
        assert [len(known) for known in peers(world)] == [2 if topology == "ring" else 7] * 8


@pytest.mark.parametrize("state", ["keep", "fresh"])
@pytest.mark.parametrize(("back", "patience"), [("2.7 s", "60 s"), ("6 s", "60 s"), ("6 s", "1 s")])
def test_one_that_comes_back_goes_on_with_the_others(state: str, back: str, patience: str) -> None:
    """Before it has been missed, while it is waited for, and after it has been given up."""
    text = QUADRATIC + churn("crash", 3, "2.1 s") + churn("rejoin", 3, back, state)
    with ran(text, *SYNCHRONOUS, f"protocol.patience={patience}", "run.duration=20 s") as world:
        assert max(rounds(world)) - min(rounds(world)) <= 1
        assert all_know_each_other(world)
        down_s = float(back.removesuffix(" s")) - 2.1
        lost_s = 20 - 0.5 * min(rounds(world))
        assert lost_s <= (1.0 if patience == "1 s" else down_s) + 1.5


def test_one_that_was_alone_for_long_takes_the_others_along() -> None:
    """Alone it has done more rounds than they have; the numbers are a clock that only goes forward."""
    text = QUADRATIC + STRAGGLER.format(1, 4) + cut([[0], [1, 2, 3]], "2 s", "12 s")
    with closing(make(text, *SYNCHRONOUS, "protocol.patience=3 s", "run.duration=60 s")) as world:
        apart = at(world, 11.0, lambda: rounds(world))
        world.run()
        assert apart[0][0] > apart[0][1] + 3
        assert all_know_each_other(world)
        assert max(rounds(world)) - min(rounds(world)) <= 1


def test_two_halves_come_together_after_an_outage() -> None:
    text = QUADRATIC + cut([[0, 1], [2, 3]], "4 s", "10 s")
    with closing(make(text, *SYNCHRONOUS, "protocol.patience=1 s", "run.duration=30 s")) as world:
        apart = at(world, 9.0, lambda: peers(world))
        world.run()
        assert apart == [[["client-1"], ["client-0"], ["client-3"], ["client-2"]]]
        assert all_know_each_other(world)
        assert len(set(rounds(world))) == 1


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_cost_round_trips_and_part_nobody(seed: int) -> None:
    text = QUADRATIC.replace('latency = "250 ms"', 'latency = "250 ms"\nlink = "datagram"\nloss = 0.05')
    with ran(text, *SYNCHRONOUS, "run.duration=80 s", f"run.seed={seed}") as world:
        assert min(rounds(world)) > 90  # of 160 without losses; with a minute for each no more than a few
        assert max(rounds(world)) - min(rounds(world)) <= 1
        assert all_know_each_other(world)
        last = {row[1:3] for row in messages(world, "RoundModel", "delivered") if row[0] > 60}
        assert len(last) == 12  # every pair still talks, in both directions


FORGETFUL = """\
from dataclasses import dataclass

from protocols import RoundClient, RoundServer, RoundTask, Vector, mix


@dataclass(frozen=True)
class Task(RoundTask):
    params: Vector


class Mean(RoundServer):
    def task(self, client, number):
        return Task(self.params)

    def combine(self, answers, number):
        self.params = mix([(1 / len(answers), answer.params) for answer in answers.values()])


class Forgetful(RoundClient):
    server = Mean

    async def work(self, task):
        return Task(await self.trained(task.params))
    LEARN
"""
SHOWN = "\n    def evaluated(self):\n        return {'own': self.params}\n"


@pytest.mark.parametrize("shown", [False, True])
def test_a_client_that_never_assigns_its_model_is_told_so(tmp_path: Path, shown: bool) -> None:
    """It would be judged by the model that it began with; unless it says that it means it."""
    path = write(tmp_path, FORGETFUL.replace("    LEARN", SHOWN if shown else ""), "forgetful.py")
    options = (f"protocol.name={path}:Forgetful", "run.duration=3 s", "run.evaluate_every=3 s")
    with closing(make(DIGITS, *options)) as world:
        world.run()
        failures = [str(failure) for failure in world.supervisor.failures]
    assert bool(failures) is not shown
    assert all("Forgetful has finished a task without assigning self.params" in each for each in failures)


TOLD = 'server = Mean\n\n    class Settings(RoundSettings):\n        broadcast: str = "all"\n'
NEWS = "    def news(self, client):\n        return Task(self.params)\n\n    def combine("


@pytest.mark.parametrize(
    ("changes", "line", "errors"),
    [
        (
            {"class Task(RoundTask)": "class Task"},
            11,
            {
                "TypeError: Mean.task() ({path}:12) returned Task, which is not a RoundTask: write a frozen "
                "dataclass that is derived from it, `class Task(RoundTask)`"
            },
        ),
        (
            {"server = Mean": TOLD, "    def combine(": NEWS},
            11,
            {"TypeError: Mean.news() ({path}:15) returned Task, a RoundTask: return another dataclass"},
        ),
        (
            {"        return Task(await": "        Task(await"},
            19,
            {
                "TypeError: Forgetful.work() ({path}:22) returned nothing: return an answer for the server "
                "to use"
            },
        ),
    ],
)
def test_what_does_not_fit_a_server_is_named(
    tmp_path: Path, changes: dict[str, str], line: int, errors: set[str]
) -> None:
    source = FORGETFUL.replace("    LEARN", SHOWN).replace("RoundServer,", "RoundServer, RoundSettings,")
    source += "\n\n@dataclass(frozen=True)\nclass News:\n    number: int\n"
    for before, after in changes.items():
        source = source.replace(before, after)
    path = write(tmp_path, source, "unfit.py")
    options = (f"protocol.name={path}:Forgetful", "run.duration=3 s", "run.evaluate_every=3 s")
    with closing(make(DIGITS, *options)) as world:
        world.run()
        failures = world.supervisor.failures
    assert {failure.error for failure in failures} == {error.replace("{path}", str(path)) for error in errors}
    assert {failure.location for failure in failures} == {f"{path}:{line}"}  # where its class begins


# --- messages of a round to one peer ------------------------------------------------------------------------

PAIRS = ("protocol.name=cobo", "protocol.mode=synchronous", "protocol.patience=60 s", "run.duration=100 s")


def test_who_leaves_before_its_gradient_is_there_is_not_waited_for() -> None:
    """Models come at 0.25 s, the gradients of two peers are there at 1.25 s: client 2 leaves in between."""
    text = QUADRATIC + churn("leave", 2, "600 ms")
    with ran(text, *PAIRS, "protocol.sampling=none", "clients.count=3") as world:
        assert min(client.actor.iterations for client in world.clients_up) > 60  # type: ignore[union-attr]


@pytest.mark.long
def test_what_each_peer_was_told_is_kept_for_two_rounds() -> None:
    with ran(QUADRATIC, *PAIRS, "clients.count=8") as world:
        for client in world.clients:
            own = client.actor.rounds  # type: ignore[union-attr]
            kept = [number for told in own._to_one.values() for each in told.values() for number, _ in each]
            assert all(number >= own.number - 2 for number in kept)
            assert own.number > 40
