"""Learning to Collaborate as a whole: who joins whom, in good weather and bad, and with whom as a broker."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.message import Envelope
from protocols.learn_to_collaborate.method import CollaboratingClient
from protocols.learn_to_collaborate.pareto_search import ParetoSearch
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.run.code_warnings import warnings_about_results
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.draws import examples

# Two halves of opposite sign, in each of which all have the same function. Few rounds, and large steps.
WORLD = """\
# Who joins whom?
[run]
seed = 1
duration = "40 s"
evaluate_every = "20 s"

[clients]
count = 4
topology = "complete"

[data]
name = "synthetic-regression"
samples = 60
test_samples = 20
dimension = 5
rho = 0.0
validation_share = 0.25

[model]
name = "logistic-regression"

[training]
learning_rate = 0.1
batch_size = 100

[protocol]
name = "learn-to-collaborate"
rounds = 100
concentration = 0.5
rule = "threshold"
least = 0.6
newcomer_rounds = 15
local_steps = 1
hidden = [10]
activation = "none"
spread = 1.0
hypernetwork_learning_rate = 0.03
search_steps = 10
patience = "6 s"
time_limit = "500 ms"

[network]
latency = "20 ms"
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = "100 ms"
"""
HALVES = [("client-0", "client-1"), ("client-2", "client-3")]


@contextmanager
def finished(tmp_path: Path, *overrides: str, world: str = WORLD) -> Iterator[Simulation]:
    file = tmp_path / "world.toml"
    file.write_text(world, encoding="utf-8")
    with closing(build(load_scenario(file, list(overrides)), device="cpu")) as simulation:
        simulation.run()
        assert simulation.supervisor.failures == []
        yield simulation


def learner(simulation: Simulation, client: int) -> CollaboratingClient:
    found = simulation.clients[client].actor
    assert isinstance(found, CollaboratingClient)
    return found


def coalitions(simulation: Simulation) -> list[tuple[str, ...]]:
    """Of those that are up, which all of their members agree on."""
    up = [client for client in simulation.clients if client.up]
    places = {client.name: learner(simulation, client.index).settled for client in up}
    found = {place.members for place in places.values() if place is not None}
    for members in found:
        for member in members:
            place = places[member]
            assert place is not None and place.members == members
    assert None not in places.values()
    return sorted(found)


@pytest.mark.long
def test_the_weights_of_a_search_are_observed_at_each_step(tmp_path: Path) -> None:
    """From equal ones on, to those by which collaborators are chosen."""
    watched = ("protocol.watched=2", "protocol.equilibrium=at-once", "run.duration=25 s")
    with finished(tmp_path, *watched, "run.evaluate_every=10 ms") as simulation:
        found = [simulation.observer.metrics.series("client-0", f"d_client-{i}") for i in range(4)]
        weights = np.stack([series.values for series in found])
        assert weights.shape[1] > 3 and len({tuple(series.times) for series in found}) == 1
        np.testing.assert_allclose(weights[:, 0], 0.25)
        np.testing.assert_allclose(weights.sum(axis=0), 1.0)
        expected = [learner(simulation, 2).weights().get(f"client-{i}", 0.0) for i in range(4)]
        np.testing.assert_allclose(weights[:, -1] * (np.array(expected) > 0), expected)


def test_who_is_watched_must_be_there(tmp_path: Path) -> None:
    told = "clients.count = 4.*watched = 4, which is the number of a client, from 0; must be greater"
    with pytest.raises(UserError, match=told), finished(tmp_path, "protocol.watched=4"):
        pass


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("equilibrium", ["iterative", "at-once"])
def test_the_halves_find_each_other(tmp_path: Path, mode: str, equilibrium: str) -> None:
    with finished(tmp_path, f"protocol.mode={mode}", f"protocol.equilibrium={equilibrium}") as simulation:
        assert coalitions(simulation) == HALVES
        for client in range(4):
            found = learner(simulation, client).coalition()
            assert found is not None and set(found.losses) == {"alone", "full", "equilibrium"}
            weights = learner(simulation, client).weights()
            helper = max(weights, key=weights.__getitem__)
            assert helper in found.members and 0.2 < weights[helper] < 0.8
        latest = simulation.observer.metrics.latest("loss")
        assert max(latest.values()) < 0.1, "they train together after that"
        by_type = simulation.network.counts.by_type
        assert by_type["PartnerModel"][0] > 20 and by_type["Members"][0] == 3


def test_no_data_travel_and_whoever_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    """One client crashes while the front is learned: the others form coalitions without it."""
    churn = '[[churn]]\nat = "3 s"\nevent = "crash"\nclients = [3]\n'
    with finished(tmp_path, world=WORLD + churn) as simulation:
        assert coalitions(simulation) == [("client-0", "client-1"), ("client-2",)]
        kinds = set(simulation.network.counts.by_type)
        assert kinds <= {
            "GradientWanted", "GradientFound", "Members", "LeaderPing", "Pong", "PartnerModel", "Goodbye",
            "AreYouThere", "Ask", "Answer",
        }  # fmt: skip


@pytest.mark.parametrize("broker", [0, 3])
def test_a_broker_that_crashes_is_replaced(tmp_path: Path, broker: int) -> None:
    """Before there are coalitions, and the run ends with the same ones among those that are left."""
    churn = f'[[churn]]\nat = "3 s"\nevent = "crash"\nclients = [{broker}]\n'
    with finished(tmp_path, f"protocol.broker=client-{broker}", world=WORLD + churn) as simulation:
        assert coalitions(simulation) == [
            tuple(member for member in half if member != f"client-{broker}") for half in HALVES
        ]
        heir = "client-1" if broker == 0 else "client-0"
        assert {
            learner(simulation, client).coordinator.election.term for client in range(4) if client != broker
        } == {(2, heir)}


@pytest.mark.long
def test_a_broker_that_crashes_and_comes_back_finds_the_same_coalitions(tmp_path: Path) -> None:
    churn = (
        '[[churn]]\nat = "3 s"\nevent = "crash"\nclients = [0]\n'
        '[[churn]]\nat = "12 s"\nevent = "rejoin"\nclients = [0]\nstate = "keep"\n'
    )
    with finished(tmp_path, "run.duration=80 s", "protocol.rounds=200", world=WORLD + churn) as simulation:
        assert coalitions(simulation) == HALVES
        assert learner(simulation, 0).coordinator.election.term == (2, "client-1")


@pytest.mark.long
def test_a_departure_concerns_only_those_whom_it_affects(tmp_path: Path) -> None:
    churn = '[[churn]]\nat = "40 s"\nevent = "leave"\nclients = [3]\n'
    with finished(tmp_path, "run.duration=70 s", world=WORLD + churn) as simulation:
        assert coalitions(simulation) == [("client-0", "client-1"), ("client-2",)]
        for client, anew in enumerate([False, False, True]):
            found = learner(simulation, client).coalition()
            assert found is not None and (found.since > 40.0) == anew
        assert simulation.network.counts.by_type["Members"][0] == 4, "client 2 heard of it, nobody else"


@pytest.mark.long
def test_an_arrival_is_let_in_where_it_is_wanted(tmp_path: Path) -> None:
    churn = '[[churn]]\nat = "40 s"\nevent = "join"\nclients = [3]\n'
    with finished(tmp_path, "run.duration=100 s", world=WORLD + churn) as simulation:
        assert coalitions(simulation) == HALVES, "as if it had been there from the start"
        for client, anew in enumerate([False, False, True, True]):
            found = learner(simulation, client).coalition()
            assert found is not None and (found.since > 40.0) == anew
        rows = simulation.observer.metrics.coalition_table()
        assert rows is not None
        of_client_2 = [row for row in rows.to_pylist() if row["client"] == 2]
        assert [row["coalition"] for row in of_client_2] == [2, 2] and np.isnan(rows["full"][-1].as_py())


def test_a_leader_that_stepped_down_asks_everybody_when_it_leads_again(tmp_path: Path) -> None:
    """It steps down in the moment in which its questions begin, so that none of them has begun."""
    file = tmp_path / "world.toml"
    file.write_text(WORLD, encoding="utf-8")
    with closing(build(load_scenario(file), device="cpu")) as simulation:
        stepped_down: list[set[str]] = []
        wait = ParetoSearch.wait_for_gradients

        async def waiting(search: ParetoSearch) -> None:
            if not stepped_down:
                stepped_down.append(set(search.at_work))
                search.election.step_down()
                search.election.start_term()
            await wait(search)

        with pytest.MonkeyPatch.context() as monkey:
            monkey.setattr(ParetoSearch, "wait_for_gradients", waiting)
            simulation.run()
        assert stepped_down[0] and coalitions(simulation) == HALVES


@pytest.mark.long
@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_lost_messages_change_nothing(tmp_path: Path, loss: float) -> None:
    overrides = (
        f"network.loss={loss}",
        "network.link=datagram",
        "protocol.patience=20 s",
        "protocol.rounds=150",
        "run.duration=3 min",
    )
    with finished(tmp_path, *overrides) as simulation:
        assert coalitions(simulation) == HALVES


@pytest.mark.slow
@pytest.mark.hypothesis
def test_any_messages_may_be_lost(tmp_path: Path) -> None:
    """Each is asked for again, or has its time limit: nobody waits for ever, and all agree in the end."""
    file = tmp_path / "world.toml"
    file.write_text(WORLD, encoding="utf-8")
    world = load_scenario(file, ["protocol.patience=10 s", "protocol.rounds=60", "run.duration=45 s"])

    @examples(10)
    @given(st.sets(st.integers(0, 300), max_size=40))
    @example(set(range(24)))  # all that is said at first
    def whatever_is_lost(lost: set[int]) -> None:
        with closing(build(world, device="cpu")) as simulation:
            send, numbers = simulation.network.send, count()

            def lossy(envelope: Envelope) -> None:
                if next(numbers) not in lost:
                    send(envelope)

            simulation.network.send = lossy  # type: ignore[method-assign]
            simulation.run()
            assert coalitions(simulation) == HALVES

    whatever_is_lost()


@pytest.mark.long
def test_a_straggler_delays_nobody_who_does_not_wait(tmp_path: Path) -> None:
    """Client 3 is 20 times slower. It is let in when its search is over."""
    slow = "\n[[devices.override]]\nclients = [3]\nslowdown = 20\n"
    overrides = ("protocol.search_limit=8 s", "protocol.patience=20 s", "run.duration=4 min")
    with finished(tmp_path, *overrides, world=WORLD + slow) as simulation:
        first = learner(simulation, 0).coalition()
        assert first is not None and first.members == HALVES[0] and first.since < 100
        assert coalitions(simulation) == HALVES


@pytest.mark.long
def test_where_everybody_is_too_slow_all_are_let_in_one_by_one(tmp_path: Path) -> None:
    with finished(tmp_path, "protocol.search_limit=100 ms", "run.duration=80 s") as simulation:
        assert coalitions(simulation) == HALVES


def test_alone_nobody_negotiates(tmp_path: Path) -> None:
    with finished(
        tmp_path, "protocol.alone=true", "run.duration=5 s", "run.evaluate_every=5 s"
    ) as simulation:
        assert simulation.network.counts.sent == 0
        assert [learner(simulation, client).settled for client in range(4)] == [None] * 4
        assert all(learner(simulation, client).iterations == 50 for client in range(4))


@pytest.mark.parametrize(
    ("override", "warned"),
    [
        (
            "run.duration=5 s",
            ["no client was in a coalition by the end at 5 s: all metrics are from before the coalitions"],
        ),
        ("protocol.alone=true", []),
        ("protocol.mode=synchronous", []),
    ],
)
def test_a_run_says_that_no_coalition_was_found_in_its_time(
    tmp_path: Path, override: str, warned: list[str]
) -> None:
    with finished(tmp_path, override, "run.evaluate_every=5 s") as simulation:
        assert warnings_about_results(simulation) == warned


def test_members_may_keep_the_best_model_of_their_front(tmp_path: Path) -> None:
    with finished(tmp_path, "protocol.inside=pareto") as simulation:
        assert warnings_about_results(simulation) == []
        assert "PartnerModel" not in simulation.network.counts.by_type
        for client in range(4):
            found = learner(simulation, client)
            assert found.settled is not None and found.params is found.settled.pareto


@pytest.mark.long
def test_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    hashes = []
    for _ in range(2):
        with finished(tmp_path, "network.loss=0.1", "network.link=datagram") as simulation:
            hashes.append(simulation.trace.hash())
    assert hashes[0] == hashes[1]


def test_what_it_needs_of_a_scenario(tmp_path: Path) -> None:
    for override, problem in (
        ("data.validation_share=0.0", "chooses collaborators by validation losses"),
        ("clients.topology=ring", "a coordinator that communicates with all clients"),
    ):
        with pytest.raises(UserError, match=problem), finished(tmp_path, override):
            pass
