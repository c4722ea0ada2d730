"""The scenario l2c_churn in a short form: the coalitions are those found from scratch, whatever went on."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from protocols.learn_to_collaborate import LearnToCollaborate
from protocols.learn_to_collaborate.pareto_search import Optimum
from sim.core.simulation import Simulation
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario

SCENARIO = Path(__file__).parents[2] / "scenarios" / "l2c_churn.toml"
# Larger steps and fewer; members keep the front's models, so that nothing is trained in between.
SHORT = (
    "data.samples=240",
    "data.test_samples=10",
    "protocol.rounds=200",
    "protocol.newcomer_rounds=450",
    "protocol.hypernetwork_learning_rate=0.03",
    "protocol.search_steps=30",
    "protocol.patience=6 s",
    "protocol.inside=pareto",
    "run.evaluate_every=5 s",
)
EVENTS = ("churn.0.at=5 s", "churn.1.at=15 s", "churn.2.at=180 s", "churn.3.at=340 s", "run.duration=360 s")
FIRST, STAYING = frozenset({0, 1, 2}), (0, 1, 2, 4, 5)


@contextmanager
def ran(*overrides: str, unset: tuple[str, ...] = ()) -> Iterator[Simulation]:
    scenario = load_scenario(SCENARIO, [*SHORT, *overrides], unset=unset)
    with closing(build(scenario, device="cpu")) as simulation:
        simulation.run()
        assert simulation.supervisor.failures == []
        yield simulation


def learner(simulation: Simulation, client: int) -> LearnToCollaborate:
    found = simulation.clients[client].actor
    assert isinstance(found, LearnToCollaborate)
    return found


def partition(simulation: Simulation) -> set[frozenset[int]]:
    """The coalitions of those that stay to the end."""
    found = set()
    for client in STAYING:
        place = learner(simulation, client).settled
        assert place is not None
        found.add(frozenset([int(name.removeprefix("client-")) for name in place.members]))
    return found


@pytest.mark.long
def test_coalitions_after_a_crash_of_the_broker_an_arrival_and_a_departure_are_those_from_scratch() -> None:
    with ran(*EVENTS) as simulation:
        after = partition(simulation)
        terms = {learner(simulation, client).coordinator.election.term for client in STAYING}
        assert terms == {(2, "client-1")}, "the leader that crashed was replaced, once"
        table = simulation.observer.metrics.coalition_table()
        assert table is not None
        rows = [(row["since"], row["client"], row["coalition"]) for row in table.to_pylist()]
        spans = [(0.0, 95.0), (95.0, 180.0), (180.0, 340.0), (340.0, 360.0)]
        assert [{(who, which) for at, who, which in rows if start < at <= end} for start, end in spans] == [
            {(1, 1), (2, 1), (3, 3), (4, 3)},
            {(0, 0), (1, 0), (2, 0)},  # it came back while the front was learned, and needed more rounds
            {(3, 3), (4, 3), (5, 3)},
            {(4, 4), (5, 4)},
        ], "only those whom it affects, each time"
    scratch = '[{at="79 s",event="join",clients=[3]}]'  # too late for anybody to hear of it
    with ran(f"churn={scratch}", "run.duration=80 s") as simulation:
        assert after == partition(simulation) == {FIRST, frozenset({4, 5})}


@pytest.mark.slow
def test_the_scenario_as_it_is() -> None:
    with closing(build(load_scenario(SCENARIO), device="cpu")) as simulation:
        simulation.run()
        assert partition(simulation) == {FIRST, frozenset({4, 5})}


def test_a_client_that_departed_before_its_assignment_is_left_out() -> None:
    """Two clients of different coalitions went down while assignments were made; client-2 has none."""
    with ran("churn=[]", "run.duration=5 s") as simulation:
        coordinator = learner(simulation, 0).coordinator
        coordinator.assignments = {}
        optima = {
            client: Optimum({client: 1.0}, frozenset([client]), 0.1) for client in ("client-0", "client-1")
        }
        assert coordinator.coalitions_of(optima, ["client-2"]) == [("client-0",), ("client-1",)]
