"""Federated averaging against a numpy reference; who takes part in a round; the oracle."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pytest

from actors.status import ActorStatus
from actors.transport import InMemoryTransport
from protocols.federated.fedavg import FedAvgSettings
from protocols.federated.oracle import Oracle
from protocols.framework.context import ClientContext
from protocols.shared.server_rounds import RoundServer
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.decoupled import own_data
from tests.protocols.worlds import (
    DIGITS,
    QUADRATIC,
    at,
    churn,
    cut,
    learner,
    make,
    messages,
    optima,
    params,
    ran,
    start_from,
)

FEDAVG = ("protocol.name=fedavg", "protocol.local_steps=1")
STRAGGLER = "\n[[devices.override]]\nclients = [{}]\nslowdown = {}\n"


def server(world: Simulation, name: str = "server") -> RoundServer:
    found = world.supervisor.running[name]
    assert isinstance(found, RoundServer)
    return found


def global_model(world: Simulation, name: str = "server") -> np.ndarray:
    return server(world, name).params.numpy()


def assigned(world: Simulation) -> dict[float, list[str]]:
    """Who was told to train, by the time of it."""
    rounds: dict[float, list[str]] = {}
    for time_s, _, client, _ in messages(world, "Assignment"):
        rounds.setdefault(time_s, []).append(client)
    return rounds


# --- the average --------------------------------------------------------------------------------------------


def softmax_gradient(x: np.ndarray, y: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Gradient of the mean cross-entropy of logistic regression; flat: weights [10, d], then biases [10]."""
    d = x.shape[1]
    weights, biases = flat[: 10 * d].reshape(10, d), flat[10 * d :]
    logits = x @ weights.T + biases
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return np.concatenate([(p.T @ x / len(y)).ravel(), p.mean(axis=0)])


def test_the_global_model_is_the_average_weighed_by_samples() -> None:
    """Unequal clients, whole batches, three local steps: x <- sum_i n_i x_i / sum_i n_i."""
    text = DIGITS.replace(
        '{ kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }',
        '{ kind = "dirichlet", alpha = 0.3 }',
    )
    with ran(text, "protocol.name=fedavg", "protocol.local_steps=3", "training.batch_size=2000") as world:
        counts = world.engine.data.train.counts
        assert counts.max() > 3 * counts.min()
        x = learner(world, 0).compute.initial().numpy().astype(np.float64)
        owned = [own_data(world, i) for i in range(6)]
        for _ in range(4):  # rounds of 0.25 + 3 x 0.5 + 0.25 s
            trained = []
            for images, labels in owned:
                own = x
                for _ in range(3):
                    own = own - 0.1 * softmax_gradient(images.numpy(), labels.numpy(), own)
                trained.append(own)
            x = np.average(trained, axis=0, weights=counts)
        assert list(assigned(world)) == [0.0, 2.0, 4.0, 6.0, 8.0]
        np.testing.assert_allclose(global_model(world), x, atol=1e-5)


def test_clients_are_evaluated_by_the_last_global_model_that_they_received() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3))
    with closing(make(QUADRATIC, *FEDAVG, "data.clusters=4")) as world:
        start_from(world, x)
        seen = at(world, 1.5, lambda: params(world))
        a, mu = optima(world)
        world.run()
        start = learner(world, 0).compute.initial().numpy()  # not `x`: the server has its own
        first = (start - 0.1 * a * (start - mu)).mean(axis=0)
        np.testing.assert_allclose(seen[0], np.broadcast_to(first, (4, 3)), atol=1e-6)


def test_an_epoch_visits_each_sample_once() -> None:
    with ran(DIGITS, "protocol.name=fedavg", "protocol.local_epochs=3", "run.duration=100 s") as world:
        # 8 samples in batches of 4: 3 epochs of 2 steps of 0.5 s, and 0.5 s for the messages.
        assert list(assigned(world))[:3] == [0.0, 3.5, 7.0]


def test_an_optimizer_starts_afresh_in_each_round() -> None:
    """With momentum kept from round to round the second update would be larger."""
    with ran(QUADRATIC, *FEDAVG, "training.momentum=0.9", "clients.count=1") as world:
        (a, mu), x = optima(world), np.zeros((1, 3))
        for _ in range(8):
            x = x - 0.1 * a * (x - mu)
        np.testing.assert_allclose(global_model(world), x[0], rtol=1e-5)


@pytest.mark.parametrize("mu", [0.0, 0.7, 5.0])
def test_a_proximal_term_makes_it_fedprox(mu: float) -> None:
    """Three steps of SGD on F_i(y) + mu/2 ||y - x||^2 in each round, in numpy."""
    settings = ("protocol.name=fedavg", "protocol.local_steps=3", f"protocol.mu={mu}", "data.clusters=4")
    with ran(QUADRATIC, *settings) as world:
        (a, centres), x = optima(world), np.zeros(3)
        for _ in range(4):  # rounds of 2 s
            own = np.tile(x, (4, 1))
            for _ in range(3):
                own = own - 0.1 * (a * (own - centres) + mu * (own - x))
            x = own.mean(axis=0)
        np.testing.assert_allclose(global_model(world), x, rtol=1e-5, atol=1e-6)


# --- who takes part -----------------------------------------------------------------------------------------


@dataclass
class Known:
    """Membership of a server that knows so many clients."""

    peers: list[str]
    on_change: Callable[[str, bool], None] | None = None

    def suspect(self, peer: str) -> None:
        raise NotImplementedError

    def received_from(self, sender: str) -> None:
        raise NotImplementedError

    def on_message(self, message: object, sender: str) -> bool:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("fraction", "clients", "count"),
    [(1.0, 7, 7), (0.5, 7, 3), (0.1, 7, 1), (0.29, 100, 29), (0.57, 100, 57), (0.1, 30, 3), (0.7, 10, 7)],
)
def test_how_many_clients_are_sampled(fraction: float, clients: int, count: int) -> None:
    names = [f"client-{i}" for i in range(clients)]
    context = ClientContext(
        InMemoryTransport(),
        Known(names),
        np.random.default_rng(0),
        0,
        lambda who, name, value: None,
    )
    settings = FedAvgSettings(fraction=fraction)
    one = RoundServer("server", context, settings, initial=None)  # type: ignore[arg-type]
    chosen = one.sample()
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= set(names)
    assert count == clients or one.sample() != chosen


def test_only_the_sampled_clients_train_and_all_get_their_turn() -> None:
    with ran(QUADRATIC, *FEDAVG, "protocol.fraction=0.5", "clients.count=6", "run.duration=30 s") as world:
        rounds = assigned(world)
        assert list(rounds) == [float(time_s) for time_s in range(31)]
        assert {len(set(names)) for names in rounds.values()} == {3}
        assert {name for names in rounds.values() for name in names} == {f"client-{i}" for i in range(6)}
        assert sum(client.device.busy_s for client in world.clients) == 0.5 * 3 * 30
        assert messages(world, "GlobalModel") == []


def test_broadcast_sends_each_new_model_to_every_client() -> None:
    settings = ("protocol.fraction=0.5", 'protocol.broadcast="all"')
    with ran(QUADRATIC, *FEDAVG, *settings, "run.duration=8.5 s") as world:
        times = [row[0] for row in messages(world, "GlobalModel")]
        assert times == [float(time_s) for time_s in range(1, 9) for _ in range(4)]
        np.testing.assert_array_equal(params(world), np.tile(global_model(world), (4, 1)))


def test_a_client_that_crashes_in_training_is_left_out_after_the_patience() -> None:
    text = QUADRATIC + churn("crash", 3, "2.5 s")
    with closing(
        make(text, *FEDAVG, "data.clusters=4", "protocol.patience=3 s", "run.duration=9.5 s")
    ) as world:
        before, after = (at(world, time_s, lambda: global_model(world)) for time_s in (2.0, 5.0))
        a, mu = optima(world)
        world.run()
        assert world.supervisor.failures == []
        x = before[0] - 0.1 * a[:3] * (before[0] - mu[:3])
        np.testing.assert_allclose(after[0], x.mean(axis=0), atol=1e-6)
        rounds = assigned(world)
        # Two rounds of 1 s were seen: s = 1 s, and a deviation of .375 s. The answer is overdue after 2.5 s.
        assert rounds.pop(4.5) == ["client-3"]
        assert list(rounds) == [0.0, 1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        assert server(world).peers == ["client-0", "client-1", "client-2"]


def test_a_client_that_leaves_in_training_is_not_waited_for() -> None:
    text = QUADRATIC + churn("leave", 3, "2.5 s") + STRAGGLER.format(3, 100)
    with ran(text, *FEDAVG, "run.duration=9.5 s") as world:
        # Round 0 lasts until its goodbye arrives, at 2.75 s.
        assert list(assigned(world))[:3] == [0.0, 2.75, 3.75]


def test_a_newcomer_is_sampled_from_then_on() -> None:
    text = QUADRATIC + churn("join", 3, "2.5 s")
    with ran(text, *FEDAVG) as world:
        assert {time_s: len(names) for time_s, names in assigned(world).items()} == {
            **dict.fromkeys([0.0, 1.0, 2.0], 3),
            **dict.fromkeys([3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 4),
        }


@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_one_that_comes_back_is_sampled_again(state: str) -> None:
    text = QUADRATIC + churn("crash", 3, "2.5 s") + churn("rejoin", 3, "6.5 s", state)
    with ran(text, *FEDAVG, "protocol.patience=3 s") as world:
        rounds = assigned(world)
        assert rounds.pop(4.5) == ["client-3"], "asked again"
        assert [len(names) for names in rounds.values()] == [4, 4, 4, 3, 3, 4, 4]


def test_a_late_answer_brings_a_slow_client_back_but_is_not_used() -> None:
    text = QUADRATIC + STRAGGLER.format(3, 10)
    with ran(text, *FEDAVG, "protocol.patience=2 s", "run.duration=12.5 s") as world:
        # It trains for 5 s. Meanwhile the others do rounds of 1 s without it; its late answers arrive at 5.5,
        # 11.5 s.
        rounds = assigned(world)
        assert [time_s for time_s, names in rounds.items() if "client-3" in names] == [0.0, 6.0, 12.0]
        assert list(rounds) == [0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 9.0, 10.0, 11.0, 12.0]
        assert ActorStatus(server(world)).late_answers == 2


def test_clients_whose_messages_were_lost_are_found_again() -> None:
    """Each lost message makes the server suspect a client that would never speak by itself."""
    text = QUADRATIC.replace('latency = "250 ms"', 'latency = "250 ms"\nlink = "datagram"\nloss = 0.1')
    with ran(text, *FEDAVG, "protocol.patience=2 s", "run.duration=200 s") as world:
        late = [names for time_s, names in assigned(world).items() if time_s > 100]
        assert {name for names in late for name in names} == {f"client-{i}" for i in range(4)}
        assert np.mean([len(names) for names in late]) > 2  # of 4
        assert {row[3] for row in messages(world)} == {"Assignment", "Contribution", "AreYouThere", "Ready"}


@pytest.mark.long
@pytest.mark.parametrize("cut_s", [45, 600, 3000])
def test_whoever_was_cut_off_gets_a_task_within_a_minute_of_the_end_of_the_cut(cut_s: int) -> None:
    text = QUADRATIC + cut([[0, 1, "servers"], [2, 3]], "20 s", f"{20 + cut_s} s")
    with ran(text, *FEDAVG, "protocol.patience=2 s", f"run.duration={100 + cut_s} s") as world:
        for client in ("client-2", "client-3"):
            times = [time_s for time_s, names in assigned(world).items() if client in names]
            assert 20 + cut_s < min([time_s for time_s in times if time_s > 26]) < 20 + cut_s + 62


@pytest.mark.long
def test_rounds_go_on_where_three_of_ten_messages_are_lost() -> None:
    """A round of eight waits for the unluckiest of them: waits that double would leave hardly any."""
    text = QUADRATIC.replace("count = 4", "count = 8")
    rounds = {}
    for loss in (0.0, 0.3):
        settings = ("protocol.name=fedavg", "protocol.local_steps=4", f"network.loss={loss}")
        with ran(text, *settings, "network.link=datagram", "run.duration=300 s") as world:
            rounds[loss] = server(world).number
    assert rounds[0.0] == 300 / (0.5 + 4 * 0.5) and rounds[0.3] > rounds[0.0] / 8


def test_a_newcomer_whose_greeting_was_lost_makes_itself_known(monkeypatch: pytest.MonkeyPatch) -> None:
    text = QUADRATIC + churn("join", 3, "2.5 s")
    with closing(make(text, *FEDAVG, "protocol.patience=2 s", "run.duration=20 s")) as world:
        monkeypatch.setattr(type(world.clients[3].membership), "join", lambda view, tell: None)
        world.run()
        assert [row[0] for row in messages(world, "Ready")] == [4.5]
        assert min(time_s for time_s, names in assigned(world).items() if "client-3" in names) == 5.0


def test_a_client_that_is_only_slow_is_not_given_more_to_do() -> None:
    text = QUADRATIC + STRAGGLER.format(3, 60)
    with ran(text, *FEDAVG, "protocol.patience=2 s", "run.duration=70 s") as world:
        # While it trains, from 0.25 to 30.25 s and so on, it is asked whether it is there, and does not say
        # that it is ready.
        assert [time_s for time_s, names in assigned(world).items() if "client-3" in names] == [
            0.0,
            31.0,
            62.0,
        ]
        assert messages(world, "AreYouThere") != [] and messages(world, "Ready") == []


# --- the oracle ---------------------------------------------------------------------------------------------


def test_the_oracle_has_a_server_for_each_true_cluster() -> None:
    settings = (
        "protocol.name=oracle",
        "protocol.local_steps=1",
        'protocol.broadcast="all"',
        "run.duration=8.5 s",
    )
    with ran(DIGITS, *settings) as world:
        clusters = {"server-0": range(3), "server-1": range(3, 6)}
        assert {name for name in world.supervisor.running if name.startswith("server")} == set(clusters)
        for name, members in clusters.items():
            assert server(world, name).peers == [f"client-{i}" for i in members]
            for index in members:
                np.testing.assert_array_equal(params(world)[index], global_model(world, name))
                assert learner(world, index).peers == [name]
        assert not np.allclose(params(world)[0], params(world)[3])
        between = {(sender, receiver) for _, sender, receiver, _ in messages(world)}
        assert all(f"client-{i}" not in pair for i in range(3) for pair in between if "server-1" in pair)


def test_clusters_need_not_be_in_blocks() -> None:
    plans = Oracle.servers(FedAvgSettings(), ["a", "b", "c", "d"], [7, 2, 7, 2])
    assert [(plan.name, plan.clients) for plan in plans] == [
        ("server-2", ("b", "d")),
        ("server-7", ("a", "c")),
    ]
    assert all(plan.kind is RoundServer for plan in plans)


def test_the_oracle_refuses_data_without_clusters() -> None:
    text = DIGITS.replace(
        '{ kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }',
        '{ kind = "iid", samples_per_client = 8 }',
    )
    with pytest.raises(UserError) as refusal:
        make(text, "protocol.name=oracle")
    assert str(refusal.value) == (
        'protocol.name = "oracle" needs data with true clusters, such as '
        'data.partition.kind = "permuted-clusters" or "disjoint-clusters"'
    )
