"""D-PSGD against its matrix iteration, and AD-PSGD: what its exchanges conserve, and who waits for whom."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial

import networkx as nx
import numpy as np
import pytest

from coterie import Client, RoundModel, Rounds, neighbour_mean, neighbour_weights
from protocols.decentralized.dpsgd import ADPSGD
from protocols.shared.averaging import Exchange
from sim.core.simulation import Simulation
from tests.protocols.worlds import (
    QUADRATIC,
    at,
    churn,
    learner,
    make,
    messages,
    optima,
    params,
    ran,
    start_from,
)

SYNCHRONOUS = ("protocol.name=dpsgd", "protocol.mode=synchronous")
ASYNCHRONOUS = ("protocol.name=dpsgd", "protocol.mode=asynchronous")
STRAGGLER = "\n[[devices.override]]\nclients = [0]\nslowdown = 20\n"
# Training that changes no float32 number: what the models do is due to the exchanges alone.
STILL = "training.learning_rate=1e-30"


# Eight clients with one to five neighbors.
IRREGULAR = ("clients.count=8", 'clients.topology={ kind = "erdos-renyi", probability = 0.4 }')


def mean(world: Simulation, indices: Sequence[int]) -> np.ndarray:
    """The mean of some clients' parameters."""
    return np.mean([learner(world, index).params.numpy() for index in indices], axis=0)


def start(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 3))


def metropolis(world: Simulation) -> np.ndarray:
    """The mixing matrix of the topology, by the formula of Xiao and Boyd."""
    graph = nx.Graph([(c.name, peer) for c in world.clients for peer in c.membership.neighbours])
    names = [client.name for client in world.clients]
    matrix = np.array(
        [
            [1 / (1 + max(graph.degree[i], graph.degree[j])) if graph.has_edge(i, j) else 0 for j in names]
            for i in names
        ]
    )
    return matrix + np.diag(1 - matrix.sum(axis=1))


class Mine(Client):
    """D-PSGD, of what coterie exports, as methods.md says."""

    collected = (RoundModel,)

    def setup(self) -> None:
        self.round_trips.wait_at_first(60.0)
        self.rounds = Rounds(self, 60.0)

    async def step(self) -> None:
        self.rounds.announce()
        update = await self.train()
        models = await self.rounds.gather()
        weights = neighbour_weights(self, self.rounds, models)
        self.params = neighbour_mean(self.params, weights, models) + update


# --- synchronous --------------------------------------------------------------------------------------------


def test_what_is_exported_makes_the_same_method() -> None:
    traces = []
    for method in (SYNCHRONOUS, (f"protocol.name={__name__}:Mine",)):
        with ran(QUADRATIC, *method, *IRREGULAR, "run.iterations=5", "run.duration=60 s") as world:
            traces.append((messages(world), params(world).tolist()))
    assert traces[0] == traces[1] and len(traces[0][0]) > 8 * 5


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("topology", ["ring", '{ kind = "erdos-renyi", probability = 0.4 }'])
def test_the_synchronous_form_is_the_matrix_iteration(topology: str, steps: int) -> None:
    x = start(8)
    with ran(
        QUADRATIC,
        *SYNCHRONOUS,
        "clients.count=8",
        f"clients.topology={topology}",
        "data.clusters=4",
        f"protocol.local_steps={steps}",
        "run.iterations=20",
        "run.duration=60 s",
        prepare=lambda world: start_from(world, x),
    ) as world:
        a, mu = optima(world)
        mixing = metropolis(world)
        degrees = {len(client.membership.neighbours) for client in world.clients}
        assert degrees == ({2} if topology == "ring" else {1, 2, 3, 4, 5})
        for _ in range(20):
            trained = x
            for _ in range(steps):
                trained = trained - 0.1 * a * (trained - mu)
            x = mixing @ x + trained - x
        np.testing.assert_allclose(params(world), x, atol=2e-6)
        assert [one.iterations for one in map(partial(learner, world), range(8))] == [20] * 8


@pytest.mark.parametrize("leaver", range(8))
def test_a_departure_in_the_middle_of_a_round_leaves_the_mean_of_the_others_alone(leaver: int) -> None:
    """Both ends of a link give it the same weight, also when one of them has just lost a neighbor."""
    others = [index for index in range(8) if index != leaver]
    text = QUADRATIC + churn("leave", leaver, "2.1 s")
    with closing(make(text, *SYNCHRONOUS, STILL, *IRREGULAR)) as world:
        start_from(world, start(8))
        before, after = (at(world, time_s, lambda: mean(world, others)) for time_s in (2.0, 7.0))
        world.run()
        assert world.supervisor.failures == []
        np.testing.assert_allclose(after[0], before[0], atol=1e-6)


def test_newcomers_are_averaged_in() -> None:
    x = start(4)
    text = QUADRATIC + churn("join", 3, "4.1 s")
    with ran(
        text, *SYNCHRONOUS, STILL, "run.duration=20 s", prepare=lambda world: start_from(world, x)
    ) as world:
        final = params(world)
        np.testing.assert_allclose(final, np.broadcast_to(final[0], final.shape), atol=1e-5)
        # In the newcomer's first round (at 4.6 s) the others do not count on it yet: it has the mean of all
        # four then, and they still have theirs.
        np.testing.assert_allclose(final[0], 0.75 * x[:3].mean(axis=0) + 0.25 * x.mean(axis=0), atol=1e-5)


# --- asynchronous -------------------------------------------------------------------------------------------

# A client asks at 0.0, 0.5, 1.0 s, ...; the peer moves 0.25 s later, and the client itself 0.25 s after that.
# So every exchange has been completed, or has not touched anybody yet, just before the quarters of a second.
BETWEEN_EXCHANGES_S = 15.625


@pytest.mark.parametrize("clients", [2, 3, 8])
def test_exchanges_conserve_the_mean_and_reach_consensus(clients: int) -> None:
    x = start(clients)
    with closing(
        make(QUADRATIC, *ASYNCHRONOUS, STILL, f"clients.count={clients}", "run.duration=16 s")
    ) as world:
        start_from(world, x)
        early, late = (at(world, time_s, lambda: params(world)) for time_s in (1.625, BETWEEN_EXCHANGES_S))
        world.run()
        assert world.supervisor.failures == []
        for seen in (early, late):
            np.testing.assert_allclose(seen[0].mean(axis=0), x.mean(axis=0), atol=1e-6)
        assert late[0].std(axis=0).max() < 0.02 * x.std(axis=0).max()


def test_two_that_ask_each_other_at_once_meet_in_the_middle() -> None:
    """Both exchanges together would swap the two models, again and again."""
    x = start(2)
    with closing(make(QUADRATIC, *ASYNCHRONOUS, STILL, "clients.count=2")) as world:
        start_from(world, x)
        asked, answered = (at(world, time_s, lambda: params(world)) for time_s in (0.375, 0.5))
        world.run()
        # Client 1 grants the request of client 0 at 0.25 s, and its own is declined in the same instant.
        np.testing.assert_allclose(asked[0], [x[0], x.mean(axis=0)], rtol=1e-6)
        np.testing.assert_allclose(answered[0], [x.mean(axis=0)] * 2, rtol=1e-6)


@pytest.mark.long
def test_exchanges_do_not_overshoot_where_messages_take_long() -> None:
    with closing(
        make(QUADRATIC, *ASYNCHRONOUS, STILL, "clients.count=8", "network.latency=4 s", "run.duration=200 s")
    ) as world:
        start_from(world, start(8))
        spread = [
            at(world, time_s, lambda: params(world).std(axis=0).max()) for time_s in (1.0, 50.0, 100.0, 199.0)
        ]
        world.run()
        widths = [seen[0] for seen in spread]
        assert widths == sorted(widths, reverse=True)
        assert widths[-1] < 0.05 * widths[0]


def test_a_gradient_is_applied_to_what_the_model_has_become_meanwhile() -> None:
    """x_i <- x_i - eta g_i(x_i as it was when g_i was begun), with a merge in between; by hand."""
    x = np.array([[1.0, 2.0, 3.0], [5.0, -2.0, 1.0]])
    with closing(make(QUADRATIC, *ASYNCHRONOUS, "clients.count=2")) as world:
        start_from(world, x)
        seen = at(world, 0.5, lambda: params(world))
        a, mu = optima(world)
        world.run()
        np.testing.assert_allclose(seen[0], x.mean(axis=0) - 0.1 * a * (x - mu), rtol=1e-6)


def test_a_straggler_harms_nobody_in_the_asynchronous_form() -> None:
    counts = {}
    for text in (QUADRATIC, QUADRATIC + STRAGGLER):
        with ran(text, *ASYNCHRONOUS, "clients.count=6", "run.duration=40 s") as world:
            counts[text] = [learner(world, index).iterations for index in range(6)]
    assert counts[QUADRATIC] == [80] * 6
    assert counts[QUADRATIC + STRAGGLER] == [4, *[80] * 5]


def test_a_crashed_peer_holds_up_exchanges_for_four_attempts_but_no_training() -> None:
    text = QUADRATIC + churn("crash", 1, "2.1 s")
    with ran(text, *ASYNCHRONOUS, "clients.count=3", "protocol.patience=2 s", "run.duration=20 s") as world:
        assert [learner(world, index).iterations for index in (0, 2)] == [40, 40]
        assert [learner(world, index).peers for index in (0, 2)] == [["client-2"], ["client-0"]]
        assert [row[2] for row in messages(world, "Exchange") if row[0] > 8.0].count("client-1") == 0


class Refusing(ADPSGD):
    """Client 1 fails when it is asked for an exchange."""

    async def on_message(self, message: object, sender: str) -> object:
        if self.name == "client-1" and isinstance(message, Exchange):
            raise ZeroDivisionError("one over none")
        return await super().on_message(message, sender)


def test_a_peer_that_fails_takes_nobody_down() -> None:
    name = f"protocol.name={__name__}:Refusing"
    with closing(make(QUADRATIC, name, "protocol.mode=asynchronous")) as world:
        world.run()
        assert {failure.name for failure in world.supervisor.failures} == {"client-1"}
        assert [learner(world, index).iterations for index in (0, 2, 3)] == [16, 16, 16]
        assert "client-1" not in learner(world, 0).peers
