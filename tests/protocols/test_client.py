"""What a client can do: train, talk, know its peers, fail. Small learners in a world with constant times."""

from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from actors.message import PeerUnavailable
from protocols.framework.client import Client
from protocols.framework.node import CurrentModel
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.worlds import (
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

HERE = f"protocol.name={__name__}"


@dataclass(frozen=True)
class Model:
    params: Any


@dataclass(frozen=True)
class Question:
    pass


class Idle(Client):
    """Does nothing, answers questions; keeps what happened."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.log: list[Any] = []

    async def step(self) -> None:
        await self.sleep(1.0)

    async def on_message(self, message: object, sender: str) -> object:
        return "yes" if isinstance(message, Question) else None


def logs(simulation: Simulation) -> list[list[Any]]:
    return [client.actor.log for client in simulation.clients if isinstance(client.actor, Idle)]


# --- training -----------------------------------------------------------------------------------------------


class Sender(Idle):
    """Client 1 sends its model at once; it reaches client 0 after 0.25 s, in the middle of its training."""

    async def run(self) -> None:
        if self.name == "client-1":
            self.tell("client-0", Model(self.params))
        else:
            await self.step()

    async def on_message(self, message: object, sender: str) -> object:
        assert isinstance(message, Model)
        self.params = self.params + message.params
        return None


class OneLine(Sender):
    """The trap: the parameters are read before the await, as `self.params + await ...` does."""

    async def step(self) -> None:
        before = self.params
        self.params = before + await self.train()


class UpdateFirst(Sender):
    """The right way."""

    async def step(self) -> None:
        update = await self.train()
        self.params = self.params + update


@pytest.mark.parametrize(("kind", "survives"), [("OneLine", 0.0), ("UpdateFirst", 1.0)])
def test_a_merge_during_training_survives_only_if_the_update_comes_first(kind: str, survives: float) -> None:
    start = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 40.0]])
    with ran(
        QUADRATIC, f"{HERE}:{kind}", "clients.count=2", prepare=lambda world: start_from(world, start)
    ) as world:
        a, mu = optima(world)
        trained = start[0] - 0.1 * a[0] * (start[0] - mu[0])
        np.testing.assert_allclose(params(world)[0], trained + survives * start[1], rtol=1e-6)


class Verbs(Idle):
    """Uses every verb that costs the device's time, and notes when each ended."""

    async def run(self) -> None:
        await self.note(self.train())
        await self.note(self.train(2, learning_rate=0.5))
        await self.note(self.train(start=self.params * 2))
        await self.note(self.train(proximal=[(0.3, self.params * 3), (0.2, self.params * -1)]))
        await self.note(self.gradient(self.params))
        await self.note(self.loss(self.params, on="train"))

    async def note(self, verb: Any) -> None:
        self.log.append((await verb, self.now))


def test_what_the_computing_verbs_return_and_cost() -> None:
    x = np.array([[1.0, -2.0, 3.0]])
    with ran(
        QUADRATIC, f"{HERE}:Verbs", "clients.count=1", prepare=lambda world: start_from(world, x)
    ) as world:
        a, mu = optima(world)
        (log,) = logs(world)
        values = [value.numpy() for value, _ in log]
        gradient = a * (x - mu)
        twice = x - 0.5 * gradient
        expected = [
            -0.1 * gradient,
            twice - 0.5 * a * (twice - mu) - x,
            -0.1 * a * (2 * x - mu),
            -0.1 * (gradient + 0.3 * (x - 3 * x) + 0.2 * (x + x)),
            gradient,
            0.5 * a * ((x - mu) ** 2).sum(),
        ]
        for value, wanted in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, wanted.reshape(value.shape), rtol=1e-5, atol=1e-6)
        assert [time_s for _, time_s in log] == [0.5, 1.5, 2.0, 2.5, 3.0, 3.0 + 0.5 / 3]
        np.testing.assert_array_equal(params(world), x.astype(np.float32))  # `train` leaves `params` alone


# --- iterations ---------------------------------------------------------------------------------------------


class Hasty(Idle):
    async def step(self) -> None:
        pass


class Yielding(Idle):
    async def step(self) -> None:
        await self.sleep(0)


class Stuck(Idle):
    async def step(self) -> None:
        if self.now < 5.0:
            await self.sleep(1.0)


class Undefined(Client):
    pass


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (
            "Hasty",
            "RuntimeError: step() of Hasty took no virtual time 1000 times in a row, so virtual time "
            "cannot advance: train, sleep or wait for a message in step()",
        ),
        (
            "Yielding",
            "RuntimeError: step() of Yielding took no virtual time 1000 times in a row, so virtual "
            "time cannot advance: train, sleep or wait for a message in step()",
        ),
        (
            "Stuck",
            "RuntimeError: step() of Stuck took no virtual time 1000 times in a row, so virtual time "
            "cannot advance: train, sleep or wait for a message in step()",
        ),
    ],
)
def test_a_step_without_time_is_a_failure_that_explains_itself(kind: str, error: str) -> None:
    with closing(make(QUADRATIC, f"{HERE}:{kind}", "clients.count=1")) as world:
        world.run()
        (failure,) = world.supervisor.failures
        since_s = 5.0 if kind == "Stuck" else 0.0
        assert (failure.name, failure.time_s, failure.where) == ("client-0", since_s, "step")
        assert failure.error == error


def test_a_client_without_a_step_is_refused_before_it_runs() -> None:
    with pytest.raises(UserError, match=r"test_client\.py:\d+: Undefined has no step\(\): write `async def"):
        make(QUADRATIC, f"{HERE}:Undefined", "clients.count=1")


class Burst(Idle):
    """Takes time only in each 900th step."""

    async def step(self) -> None:
        if self.iterations % 900 == 899:
            await self.sleep(1.0)


def test_steps_that_sometimes_take_no_time_are_fine() -> None:
    with ran(QUADRATIC, f"{HERE}:Burst", "clients.count=1", "run.duration=8 s") as world:
        assert learner(world, 0).iterations == 8 * 900 + 899


def test_iterations_are_counted_for_the_observer() -> None:
    with ran(QUADRATIC, f"{HERE}:Idle", "run.duration=8.5 s") as world:
        assert world.observer.metrics.latest("iterations") == {f"client-{i}": 8 for i in range(4)}


# --- peers --------------------------------------------------------------------------------------------------


class Picky(Idle):
    async def step(self) -> None:
        self.log.append(self.pick_peer())
        await self.sleep(1 / 64)


def test_pick_peer_draws_all_peers_alike() -> None:
    with ran(QUADRATIC, f"{HERE}:Picky", "clients.count=5", "run.duration=16 s") as world:
        for index, log in enumerate(logs(world)):
            counts = {peer: log.count(peer) for peer in set(log)}
            assert sorted(counts) == [f"client-{i}" for i in range(5) if i != index]
            assert all(abs(count - 256) < 56 for count in counts.values())  # 4 standard deviations


def test_pick_peer_without_peers() -> None:
    with closing(make(QUADRATIC, f"{HERE}:Picky", "clients.count=1")) as world:
        world.run()
        (failure,) = world.supervisor.failures
        assert failure.error == (
            "PeerUnavailable: every peer is unavailable: client-0 knows no peer that is up"
        )


class Gossiper(Idle):
    async def run(self) -> None:
        for fanout in (1, 2, 3, 10):
            self.log.append(self.gossip(Model(fanout), fanout))
            await self.sleep(1.0)


def test_gossip_tells_different_peers() -> None:
    with ran(QUADRATIC, f"{HERE}:Gossiper") as world:
        for index, log in enumerate(logs(world)):
            others = [f"client-{i}" for i in range(4) if i != index]
            assert [len(set(names)) for names in log] == [1, 2, 3, 3]
            assert all(set(names) <= set(others) for names in log)
            told = [(t, to) for t, sender, to, _ in messages(world, "Model") if sender == f"client-{index}"]
            assert told == [(float(round_), name) for round_, names in enumerate(log) for name in names]
    with ran(QUADRATIC, f"{HERE}:Gossiper", "clients.count=1") as world:
        assert logs(world) == [[[], [], [], []]]


# --- failures -----------------------------------------------------------------------------------------------


class Spawner(Idle):
    async def run(self) -> None:
        if self.name == "client-1":
            self.spawn(self.fail_later())
        await super().run()

    async def fail_later(self) -> None:
        await self.sleep(1.5)
        raise ZeroDivisionError("one over none")


def test_a_failing_spawned_task_is_its_clients_failure_and_nobody_elses() -> None:
    with closing(make(QUADRATIC, f"{HERE}:Spawner")) as world:
        world.run()
        (failure,) = world.supervisor.failures
        assert str(failure) == (
            f"client-1 failed at 1.5 s in fail_later ({failure.location}): "
            "ZeroDivisionError: one over none (stopped for good)"
        )
        assert str(failure.location).rpartition("/")[2].startswith("test_client.py:")
        assert [learner(world, index).iterations for index in (0, 2, 3)] == [8, 8, 8]
        assert [client.name for client in world.clients_up] == ["client-0", "client-2", "client-3"]


# --- who is there -------------------------------------------------------------------------------------------


def test_a_peer_that_leaves_is_gone_once_its_goodbye_arrives() -> None:
    with closing(make(QUADRATIC + churn("leave", 1, "1 s"), f"{HERE}:Idle")) as world:
        before, after = (at(world, time_s, lambda: learner(world, 0).peers) for time_s in (1.125, 1.25))
        world.run()
        assert before == [["client-1", "client-2", "client-3"]]
        assert after == [["client-2", "client-3"]]


def test_a_crashed_peer_is_believed_up_until_it_is_suspected() -> None:
    with closing(make(QUADRATIC + churn("crash", 1, "1 s"), f"{HERE}:Idle")) as world:
        at(world, 4.0, lambda: learner(world, 0).suspect("client-1"))
        before, after = (at(world, time_s, lambda: learner(world, 0).peers) for time_s in (3.0, 5.0))
        world.run()
        assert before == [["client-1", "client-2", "client-3"]]
        assert after == [["client-2", "client-3"]]
        assert learner(world, 2).peers == ["client-0", "client-1", "client-3"]  # it was told nothing


class Asker(Idle):
    """Client 0 asks client 1 again and again, and suspects it when it does not answer within 2 s."""

    async def step(self) -> None:
        if self.name == "client-0" and "client-1" in self.peers:
            try:
                self.log.append((await self.ask("client-1", Question(), timeout=2.0), self.now))
            except PeerUnavailable as error:
                self.log.append((str(error), self.now))
                self.suspect("client-1")
        else:
            await self.sleep(0.5)


def test_an_ask_without_an_answer_ends_at_its_timeout() -> None:
    with ran(QUADRATIC + churn("crash", 1, "0.6 s"), f"{HERE}:Asker", "clients.count=2") as world:
        assert logs(world)[0] == [
            ("yes", 0.5),
            ("client-1 is unavailable: no answer to Question within 2 s", 2.5),
        ]


def test_an_ask_ends_at_once_when_the_peer_says_goodbye() -> None:
    with ran(QUADRATIC + churn("leave", 1, "0.6 s"), f"{HERE}:Asker", "clients.count=2") as world:
        assert logs(world)[0] == [
            ("yes", 0.5),
            ("client-1 is unavailable: no answer to Question within 0.35 s", 0.85),
        ]
        assert learner(world, 0).peers == []


def test_clients_that_an_outage_has_parted_find_each_other_again() -> None:
    text = QUADRATIC + cut([[0], [1]], "2.1 s", "10 s")
    with ran(text, f"{HERE}:Asker", "clients.count=2", "run.duration=14 s") as world:
        # The question of 2.0 s arrives when the two are cut off. Client 0 gives up at 4 s, and says that it
        # is there 1, 3, 7, 15, ... s later. That alone tells it nothing of client 1, which has suspected
        # nobody.
        assert [row[0] for row in messages(world, "AreYouThere")] == [5.0, 7.0, 11.0]
        assert learner(world, 0).peers == []
        assert learner(world, 1).peers == ["client-0"]


class Suspicious(Asker):
    """Both ask, and suspect each other."""

    async def step(self) -> None:
        (other,) = {"client-0", "client-1"} - {self.name}
        if other not in self.peers:
            await self.sleep(0.5)
            return
        try:
            await self.ask(other, Question(), timeout=1.0)
        except PeerUnavailable:
            self.suspect(other)


def test_clients_that_suspect_each_other_talk_again_after_the_outage() -> None:
    text = QUADRATIC + cut([[0], [1]], "2.1 s", "10 s")
    with closing(make(text, f"{HERE}:Suspicious", "clients.count=2", "run.duration=14 s")) as world:
        during = at(world, 9.0, lambda: [learner(world, index).peers for index in (0, 1)])
        world.run()
        assert during == [[[], []]]
        assert [learner(world, index).peers for index in (0, 1)] == [["client-1"], ["client-0"]]
        first = min(row[0] for row in messages(world, "Question", "delivered") if row[0] > 2.1)
        assert 10.0 < first < 12.0


class Still(Idle):
    async def run(self) -> None:
        pass


def test_the_dead_are_sought_every_minute_then_seldom_and_not_for_ever() -> None:
    times = ("run.duration=1000 day", "run.evaluate_every=1000 day")
    with closing(make(QUADRATIC + churn("crash", 1, "1 s"), f"{HERE}:Still", *times)) as world:
        at(world, 2.0, lambda: learner(world, 0).suspect("client-1"))
        world.run()
        sought = [row[0] - 2.0 for row in messages(world, "AreYouThere")]
        first_hour = [time_s for time_s in sought if time_s < 3600]
        assert first_hour == [2.0**k - 1 for k in range(1, 7)] + [63.0 + 60.0 * k for k in range(1, 59)]
        for sooner, later in pairwise(sought[len(first_hour) :]):
            assert later - sooner == pytest.approx(sooner / 60)
        assert len(sought) < 600
        assert 179 < sought[-1] / 86_400 < 184


def test_who_is_lost_again_is_sought_as_soon_as_the_first_time() -> None:
    with closing(make(QUADRATIC, f"{HERE}:Still", "clients.count=2", "run.duration=12 s")) as world:
        at(world, 2.0, lambda: learner(world, 0).suspect("client-1"))
        at(world, 5.5, lambda: learner(world, 1).tell("client-0", CurrentModel(None)))
        at(world, 6.0, lambda: learner(world, 0).suspect("client-1"))
        world.run()
        assert [row[0] for row in messages(world, "AreYouThere")] == [3.0, 5.0, 7.0, 9.0]


def test_who_knows_everything_seeks_nobody() -> None:
    text = QUADRATIC.replace('latency = "250 ms"', 'latency = "250 ms"\nmembership = "all-knowing"')
    with closing(make(text, f"{HERE}:Idle")) as world:
        at(world, 1.0, lambda: learner(world, 0).suspect("client-1"))
        world.run()
        assert learner(world, 0).peers == ["client-1", "client-2", "client-3"]
        assert messages(world) == []
