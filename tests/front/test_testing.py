"""coterie.testing: worlds in which a method is compared with numbers that are computed by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from coterie import Client, Count, UserError, Vector
from coterie.testing import Message, World
from protocols.decentralized.dpsgd import DPSGD
from protocols.federated.fedavg import FedAvg
from protocols.mapl.method import MAPL


@dataclass(frozen=True)
class Model:
    params: Vector


class Pairs(Client):
    """Trains, and sends its model to the other client, which takes the mean."""

    class Settings(Client.Settings):
        local_steps: Count = 1

    async def step(self) -> None:
        update = await self.train(self.settings.local_steps)
        self.params = self.params + update
        self.gossip(Model(self.params))

    async def on_message(self, message: object, sender: str) -> None:
        assert isinstance(message, Model)
        self.params = (self.params + message.params) / 2


def test_two_clients_by_hand() -> None:
    with World(
        Pairs,
        [[0.0, 8.0], [4.0, 0.0]],
        start=[[1.0, 1.0], [2.0, 2.0]],
        curvature=[1.0, 0.5],
        settings={"local_steps": 2},
        learning_rate=0.5,
        step_s=0.5,
        latency_s=0.25,
    ) as world:
        world.run(until_s=1.0)
        first, second = np.array([1.0, 1.0]), np.array([2.0, 2.0])
        for _ in range(2):
            first = first - 0.5 * 1.0 * (first - [0.0, 8.0])
            second = second - 0.5 * 0.5 * (second - [4.0, 0.0])
        np.testing.assert_array_equal(world.params, np.float32([first, second]))
        assert world.messages() == [
            Message(1.0, "client-0", "client-1", "Model"),
            Message(1.0, "client-1", "client-0", "Model"),
        ]
        assert world.messages("delivered") == []
        world.run(until_s=1.25)
        np.testing.assert_array_equal(world.params, np.float32([(first + second) / 2] * 2))
        assert [message.time_s for message in world.messages("delivered", "Model")] == [1.25, 1.25]
        assert world.now_s == 1.25


def test_times_that_are_no_float32_are_exact() -> None:
    with World(Pairs, [[0.0], [4.0]], step_s=0.1, latency_s=0.7) as world:
        world.run(until_s=0.8)
        assert [message.time_s for message in world.messages()][:2] == [0.1, 0.1]
        assert world.messages("delivered")[0].time_s == 0.1 + 0.7


def test_a_script_loses_one_message_and_delays_another() -> None:
    def script(sender: str, receiver: str, number: int) -> float | None:
        if (sender, number) == ("client-0", 1):
            return None
        return 10.0 if (sender, number) == ("client-1", 0) else 0.5

    with World(Pairs, [[0.0], [4.0]], latency_s=script) as world:
        world.run(until_s=12.0)
        assert world.messages("lost") == [Message(2.0, "client-0", "client-1", "Model")]
        late = [each for each in world.messages("delivered") if each.sender == "client-1"]
        assert [message.time_s for message in late] == [2.5 + each for each in range(8)] + [
            10.5,
            11.0,
            11.5,
        ]


@pytest.mark.long
def test_averaging_converges_to_the_mean_of_the_optima() -> None:
    with World(DPSGD, [[0.0], [3.0], [9.0]], learning_rate=0.05, settings={"local_steps": 1}) as world:
        world.run(until_s=400.0)
        assert abs(world.params.mean() - 4.0) < 1e-3
        assert np.ptp(world.params) < 1.0


def test_a_server_and_its_round_by_hand() -> None:
    with World(
        FedAvg,
        [[0.0], [4.0]],
        settings={"local_steps": 1},
        step_s=[1.0, 3.0],
        latency_s=0.5,
        learning_rate=0.5,
    ) as world:
        world.run(until_s=4.0)
        assert world.messages("delivered", "Contribution") == [
            Message(2.0, "client-0", "server", "Contribution"),
            Message(4.0, "client-1", "server", "Contribution"),
        ]
        [server] = world.servers
        assert server is not None
        np.testing.assert_array_equal(server.params.numpy(), [1.0])


def test_a_client_that_crashes_and_returns() -> None:
    with World(
        Pairs, [[0.0], [4.0], [8.0]], latency_s=0.5, events=[(2.25, "crash", 2), (5.25, "rejoin", 2)]
    ) as world:
        world.run(until_s=3.0)
        assert world.clients[2] is None
        assert np.isnan(world.params[2]).all()
        assert not np.isnan(world.params[:2]).any()
        world.run(until_s=8.0)
        assert world.clients[2] is not None
        sent = [each.time_s for each in world.messages(type="Model") if each.sender == "client-2"]
        assert sent == [1.0, 2.0, 6.25, 7.25]


def test_a_client_that_joins_later_is_down_before() -> None:
    with World(Pairs, [[0.0], [4.0]], events=[(3.0, "join", 1)]) as world:
        world.run(until_s=2.0)
        assert world.clients[1] is None
        world.run(until_s=4.0)
        assert world.clients[1] is not None


@pytest.mark.long
def test_equal_worlds_have_equal_hashes() -> None:
    hashes = set()
    for seed in (1, 1, 2):
        with World(Pairs, np.eye(4), seed=seed) as world:
            world.run(until_s=5.0)
            hashes.add(world.trace_hash)
    assert len(hashes) == 2


class Failing(Client):
    async def step(self) -> None:
        await self.train()
        raise KeyError("no such peer")


def test_an_error_of_a_client_fails_the_test() -> None:
    with (
        World(Failing, [[0.0]]) as world,
        pytest.raises(RuntimeError, match=r"(?s)client-0 failed at 1 s.*no such"),
    ):
        world.run(until_s=2.0)


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="settings: local_steps"):
        World(Pairs, [[0.0]], settings={"local_steps": 0})
    with pytest.raises(UserError, match="settings: steps"):
        World(Pairs, [[0.0]], settings={"steps": 1})
    with pytest.raises(ValueError, match=r"optima has shape \(2,\)"):
        World(Pairs, [0.0, 1.0])
    with pytest.raises(ValueError, match="start has shape"):
        World(Pairs, [[0.0], [1.0]], start=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="step_s has shape"):
        World(Pairs, [[0.0], [1.0]], step_s=[1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="with World"):
        World(Pairs, [[0.0]]).run(until_s=1.0)
    with World(Pairs, [[0.0], [1.0]], latency_s=lambda *_: -1.0) as world:
        world.run(until_s=0.5)
        with pytest.raises(ValueError, match=r"until_s = 0\.25"):
            world.run(until_s=0.25)
        with pytest.raises((ValueError, RuntimeError), match=r"latency_s returned -1\.0"):
            world.run(until_s=1.0)


def test_a_method_that_needs_parts_of_a_model_is_refused() -> None:
    with pytest.raises(UserError, match="MAPL exchanges parts of models"):
        World(MAPL, [[0.0]])
