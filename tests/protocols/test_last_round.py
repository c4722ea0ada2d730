"""`protocol.rounds` ends a run after so many rounds of the server, and tells everybody what came of it."""

import numpy as np
import pytest

from actors.message import Envelope
from protocols.shared.server_rounds import LastRound
from sim.core.simulation import Simulation
from sim.run.summary import budget_summary
from tests.protocols.test_fedavg import server
from tests.protocols.worlds import DIGITS, QUADRATIC, churn, cut, learner, messages, params, ran

WORLD = (QUADRATIC, "data.clusters=4", "run.duration=1000 s", "run.evaluate_every=1000 s")
FEDAVG = ("protocol.name=fedavg", "protocol.local_steps=1")


@pytest.mark.parametrize("broadcast", ["sampled", "all"])
def test_the_run_ends_after_so_many_rounds_of_a_sample(broadcast: str) -> None:
    """One client of four in each; all have the last average, a quarter of a second after the last round."""
    options = ("protocol.fraction=0.25", "protocol.rounds=8", f"protocol.broadcast={broadcast}")
    with ran(*WORLD, *FEDAVG, *options) as world:
        assert len(messages(world, "Assignment")) == 8 and server(world).number == 8
        assert world.loop.time() == 8 * 1.0 + 0.25
        np.testing.assert_array_equal(params(world), np.tile(server(world).params.numpy(), (4, 1)))


def test_each_server_has_its_rounds() -> None:
    options = (
        "protocol.name=oracle",
        "protocol.rounds=3",
        "run.duration=1000 s",
        "run.evaluate_every=1000 s",
    )
    with ran(DIGITS, *options) as world:
        assert [server(world, f"server-{i}").number for i in (0, 1)] == [3, 3]
        assert world.loop.time() < 100


def test_who_is_told_that_it_was_the_last_round_has_not_spent_its_budget() -> None:
    with ran(*WORLD, *FEDAVG, "protocol.rounds=3", "run.budget.steps=5") as world:
        budget = budget_summary(world)
        assert budget == {"steps": 5, "finished": 0, "spent_seconds": [None] * 4}
    with ran(*WORLD, *FEDAVG, "protocol.rounds=3", "run.budget.steps=2") as world:
        budget = budget_summary(world)
        assert budget == {"steps": 2, "finished": 4, "spent_seconds": [2.25] * 4}


@pytest.mark.parametrize("budget", [(), ("run.budget.steps=50",)])
def test_nobody_is_waited_for_who_is_down_or_only_comes_later(budget: tuple[str, ...]) -> None:
    text = WORLD[0] + churn("crash", 1, "0.1 s") + churn("crash", 2, "0.2 s") + churn("rejoin", 2, "900 s")
    with ran(text, *WORLD[1:], *FEDAVG, "protocol.rounds=3", "protocol.patience=2 s", *budget) as world:
        assert world.loop.time() < 30


def test_who_was_cut_off_is_told_when_it_is_back() -> None:
    text = WORLD[0] + cut([[0, 1, 2, "servers"], [3]], "0.6 s", "40 s")
    with ran(text, *WORLD[1:], *FEDAVG, "protocol.rounds=4", "protocol.patience=2 s") as world:
        assert 40 < world.loop.time() < 110
        np.testing.assert_array_equal(learner(world, 3).params.numpy(), server(world).params.numpy())


def test_lost_last_words_are_repeated() -> None:
    options = ("network.link=datagram", "network.loss=0.4", "protocol.rounds=4")
    with ran(*WORLD, *FEDAVG, *options) as world:
        assert world.loop.time() < 500
        np.testing.assert_array_equal(params(world), np.tile(server(world).params.numpy(), (4, 1)))


def test_a_server_that_was_down_when_the_last_round_was_done_tells_it_when_it_is_back() -> None:
    """Its last words get nowhere before it crashes."""
    text = WORLD[0] + '\n[[server.crash]]\nat = "5 s"\nback = "12 s"\n'

    def losing(simulation: Simulation) -> None:
        network, send = simulation.network, simulation.network.send

        def lossy(envelope: Envelope) -> None:
            if simulation.loop.time() > 5 or not isinstance(envelope.message, LastRound):
                send(envelope)

        network.send = lossy  # type: ignore[method-assign]

    with ran(text, *WORLD[1:], *FEDAVG, "protocol.rounds=3", prepare=losing) as world:
        assert world.loop.time() == 12.25
