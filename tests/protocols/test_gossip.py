"""Gossip learning, checked by hand on a log of three messages, and its timers."""

import numpy as np
import pytest

from actors.status import ActorStatus
from protocols.decentralized.gossip import Gossip
from protocols.framework.client import Client
from sim.core.simulation import Simulation
from tests.protocols.worlds import QUADRATIC, churn, learner, messages, optima, params, ran, start_from

GOSSIP = ("protocol.name=gossip", "protocol.period=2 s")


class Punctual(Gossip):
    """Client i begins at i seconds sharp instead of a random time."""

    async def run(self) -> None:
        await self.sleep(float(self.name.removeprefix("client-")))
        await Client.run(self)


def ages(world: Simulation) -> list[int]:
    found = [client.actor for client in world.clients]
    return [one.age for one in found if isinstance(one, Gossip)]


@pytest.mark.parametrize(
    ("merge", "shares"),
    # The share of the received model in each merge. By age: 0 and 0 (no age at all: a half), 2 against 0, 4
    # against 2.
    [("average", (1 / 2, 1 / 2, 1 / 2)), ("age", (1 / 2, 1.0, 4 / 6))],
)
def test_three_messages_by_hand(merge: str, shares: tuple[float, float, float]) -> None:
    """0 s: 0 to 1; 1 s: 1 to 0; 2 s: 0 to 1. Each arrives after 0.25 s and is followed by 2 steps."""
    x = np.array([[1.0, -2.0, 4.0], [3.0, 2.0, 0.0]])
    with ran(
        QUADRATIC,
        f"protocol.name={__name__}:Punctual",
        "protocol.period=2 s",
        "protocol.local_steps=2",
        f"protocol.merge={merge}",
        "clients.count=2",
        "devices.step_time=250 ms",
        "run.duration=2.9 s",
        "run.evaluate_every=1 s",
        prepare=lambda world: start_from(world, x),
    ) as world:
        a, mu = optima(world)
        steps = [(0, 1), (1, 0), (0, 1)]
        for (sender, receiver), share in zip(steps, shares, strict=True):
            merged = (1 - share) * x[receiver] + share * x[sender]
            for _ in range(2):
                merged = merged - 0.1 * a[receiver] * (merged - mu[receiver])
            x[receiver] = merged
        np.testing.assert_allclose(params(world), x, atol=1e-6)
        assert ages(world) == [4, 6]  # max(0, 2) + 2; max(2, 4) + 2
        assert messages(world) == [
            (float(number), f"client-{sender}", f"client-{receiver}", "AgedModel")
            for number, (sender, receiver) in enumerate(steps)
        ]
        assert [row[0] for row in messages(world, event="delivered")] == [0.25, 1.25, 2.25]
        assert [row[1:] for row in world.intervals()] == [
            (1.25, 1.75, "busy"),
            (0.25, 0.75, "busy"),
            (2.25, 2.75, "busy"),
        ]


def test_each_client_pushes_at_its_own_phase_once_in_a_period() -> None:
    with ran(QUADRATIC, *GOSSIP, "clients.count=20", "run.duration=10 s") as world:
        phases = []
        for index in range(20):
            times = [row[0] for row in messages(world) if row[1] == f"client-{index}"]
            assert 0 <= times[0] < 2
            expected = [times[0]]
            while expected[-1] + 2 <= 10:
                expected.append(expected[-1] + 2)
            assert times == expected
            phases.append(times[0])
        assert len(set(phases)) == 20
        assert np.ptp(phases) > 1.5


def test_fanout_is_the_number_of_peers_that_get_each_push() -> None:
    with ran(QUADRATIC, *GOSSIP, "protocol.fanout=3", "clients.count=8") as world:
        pushes: dict[tuple[float, str], set[str]] = {}
        for time_s, sender, receiver, _ in messages(world):
            pushes.setdefault((time_s, sender), set()).add(receiver)
        assert len(pushes) == 8 * 4
        assert {len(receivers) for receivers in pushes.values()} == {3}


def test_who_receives_nothing_does_not_train() -> None:
    x = np.array([[1.0, 2.0, 3.0]])
    with ran(QUADRATIC, *GOSSIP, "clients.count=1", prepare=lambda world: start_from(world, x)) as world:
        assert np.array_equal(params(world), x)
        assert world.clients[0].device.busy_s == 0
        assert learner(world, 0).iterations == 3


def test_a_client_trains_once_for_each_model_that_it_receives() -> None:
    with ran(QUADRATIC, *GOSSIP, "clients.count=4", "devices.step_time=1 ms") as world:
        for client in world.clients:
            received = [row for row in messages(world, event="delivered") if row[2] == client.name]
            assert client.device.busy_s == pytest.approx(0.001 * len(received))


def test_models_that_come_during_training_wait_for_their_turn() -> None:
    """A slow client merges one after the other; nothing is lost, and its age counts every training."""
    text = QUADRATIC + "\n[[devices.override]]\nclients = [0]\nslowdown = 2\n"
    with ran(text, *GOSSIP, "clients.count=4", "protocol.fanout=3", "run.duration=20 s") as world:
        # Three models in 2 s, and 1 s of training for each of them: more than it can do.
        assert world.clients[0].device.busy_s > 18
        assert ActorStatus(learner(world, 0)).overflows == 0


def test_one_that_comes_back_has_a_new_phase() -> None:
    text = QUADRATIC + churn("crash", 0, "3 s") + churn("rejoin", 0, "5 s")
    with ran(text, *GOSSIP, "run.duration=20 s") as world:
        times = [row[0] for row in messages(world, "AgedModel") if row[1] == "client-0"]
        first, second = times[0], next(time_s for time_s in times if time_s > 5)
        assert 5 <= second < 7
        assert (second - first) % 2 != 0
