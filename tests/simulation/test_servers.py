"""Servers with data and a device of their own, several of them, and servers that crash and come back."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from protocols import Client, Server, ServerPlan
from protocols.federated.fedavg import FedAvg
from protocols.shared.server_rounds import RoundServer
from sim.core.simulation import Simulation
from sim.errors import UserError
from sim.learning.partitions.partition import Partition
from sim.results.trace import Trace
from sim.run.setup.builder import build
from sim.run.setup.owners import assign_samples
from tests.protocols.worlds import DIGITS, QUADRATIC, at, loaded, make, messages, ran

HERE = __file__
# Rounds of 0.25 s there, 0.5 s of training and 0.25 s back.
FEDAVG = ("protocol.name=fedavg", "protocol.local_steps=1")
SERVER = """
[server]
samples = 12
step_time = "125 ms"
"""


def server(world: Simulation, number: int = 0) -> Any:
    return world.servers[number].actor


def lives(trace: Trace, name: str) -> list[tuple[float, str, str | None]]:
    """What happened to an actor: (time, event, detail)."""
    table = trace.to_table().select(["time", "event", "actor", "detail", "type"])
    rows = zip(*[column.to_pylist() for column in table.columns], strict=True)
    return [(t, event, detail) for t, event, actor, detail, kind in rows if actor == name and not kind]


def own(world: Simulation, owner: int) -> tuple[torch.Tensor, torch.Tensor]:
    train = world.engine.data.train
    x, y = train.gather(np.array([owner]), np.arange(train.counts[owner])[None])
    return x[0], y[0]


# --- data and a device ---


class Refining(RoundServer):
    """Trains the average on its own data, after each round."""

    async def refine(self, number: int) -> None:
        start = self.params
        self.before = start
        update = await self.train(2, start=start)
        self.params = self.params + update
        self.losses = await self.loss(self.params, "train", reduction="none")
        self.gradient_there = await self.gradient(self.params, on="train")
        self.observe("own_loss", await self.loss(self.params, "train"))


class RefinedFedAvg(FedAvg):
    server = Refining


def test_a_server_trains_on_its_own_samples_in_its_own_time() -> None:
    """A round is 1 s, and then 2 steps, a gradient and two losses on 3 batches of 4 take 0.125 s a step."""
    options = (
        f"protocol.name={HERE}:RefinedFedAvg",
        "protocol.local_steps=1",
        "run.duration=1900 ms",
        "run.evaluate_every=1900 ms",
    )
    with ran(DIGITS + SERVER, *options) as world:
        acting, owner = server(world), len(world.clients)
        assert acting.samples == 12 == len(own(world, owner)[1])
        losses_s = 2 * 3 * 0.125 / 3
        assert acting.compute.device.busy_s == pytest.approx(2 * 0.125 + 3 * 0.125 + losses_s)
        assert acting.number == 1
        x, y = own(world, owner)
        module = nn.Linear(64, 10)
        nn.utils.vector_to_parameters(acting.params.tensor(), module.parameters())
        each = nn.functional.cross_entropy(module(x.flatten(1)), y, reduction="none")
        each.mean().backward()
        each = each.detach()
        np.testing.assert_allclose(acting.losses.numpy(), each, rtol=1e-4)
        gradient = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
        np.testing.assert_allclose(acting.gradient_there.numpy(), gradient, rtol=1e-3, atol=1e-6)
        nn.utils.vector_to_parameters(acting.before.tensor(), module.parameters())
        before = nn.functional.cross_entropy(module(x.flatten(1)), y).detach()
        assert float(each.mean()) < float(before)
        observed = world.observer.metrics.latest("own_loss")
        assert observed == {"server": pytest.approx(float(each.mean()), rel=1e-4)}


def test_what_a_server_owns_is_nobody_elses_and_no_clients_data_change() -> None:
    with closing(make(DIGITS, *FEDAVG)) as plain, closing(make(DIGITS + SERVER, *FEDAVG)) as world:
        owners = range(len(world.clients) + 1)
        rows = torch.cat([own(world, owner)[0].flatten(1) for owner in owners])
        assert len(rows) == 6 * 8 + 12
        for client in range(len(world.clients)):
            for mine, before in zip(own(world, client), own(plain, client), strict=True):
                assert torch.equal(mine, before)
        data = world.engine.data.train
        flat = data.rows.tolist()
        assert len(set(flat)) == len(flat)
        # With the labels as they are in the data set, whatever clients call them.
        assert torch.equal(own(world, 6)[1], data.y[data.rows[-12:]])


def test_where_clients_own_everything_they_give_some_away() -> None:
    everything = DIGITS.replace(", samples_per_client = 8", "")
    with closing(make(everything, *FEDAVG)) as plain, closing(make(everything + SERVER, *FEDAVG)) as world:
        before, now = plain.engine.data.train, world.engine.data.train
        assert now.counts.sum() == before.counts.sum()
        assert now.counts[-1] == 12
        assert set(now.rows.tolist()) == set(before.rows.tolist())


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (8, r"server.samples = 8 leaves no training sample for client \d, which owns 2 samples"),
        (9, "would own 9 samples"),
    ],
)
def test_a_server_that_takes_too_much_is_refused(samples: int, message: str) -> None:
    text = QUADRATIC + SERVER.replace("12", str(samples))
    with pytest.raises(UserError, match=message):
        make(text, *FEDAVG)


class Idle(Client):
    """Does nothing, and neither does its server but what the test asks of it."""

    kind: type[Server]

    @classmethod
    def servers(cls, settings: Any, clients: Sequence[str], clusters: Any) -> list[ServerPlan]:
        return [ServerPlan("server", cls.kind, tuple(clients))]

    async def run(self) -> None:
        return


class Hopeful(Server):
    async def run(self) -> None:
        await self.train()


class WithHopeful(Idle):
    kind = Hopeful


def test_without_data_a_server_that_trains_fails_and_says_what_is_missing() -> None:
    with closing(make(DIGITS, f"protocol.name={HERE}:WithHopeful")) as world:
        world.run()
        (failure,) = world.supervisor.failures
        assert (
            "server has no data and no device; add `samples` and `step_time` or `speed` to [server]"
            in str(failure)
        )


class Misspelling(Server):
    @property
    def wanted(self) -> object:
        return self.settings.buffers  # type: ignore[attr-defined]

    async def run(self) -> None:
        assert self.wanted


class WithMisspelling(Idle):
    kind = Misspelling


def test_what_fails_in_a_property_of_a_server_is_told() -> None:
    with closing(make(DIGITS, f"protocol.name={HERE}:WithMisspelling")) as world:
        world.run()
        (failure,) = world.supervisor.failures
        assert "has no attribute 'buffers'" in str(failure)


class Applying(Server):
    async def run(self) -> None:
        self.doubled = await self.apply(torch.add, self.params, self.params, steps=4)
        self.ended = self.now


class WithApplying(Idle):
    kind = Applying


def test_a_function_takes_the_servers_time() -> None:
    with ran(DIGITS + SERVER, f"protocol.name={HERE}:WithApplying") as world:
        assert server(world).ended == 0.5
        np.testing.assert_allclose(server(world).doubled.numpy(), 2 * server(world).params.numpy())


# --- several ---


@dataclass(frozen=True)
class Word:
    text: str


class Talker(Server):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.heard_of: list[tuple[str, str]] = []

    async def run(self) -> None:
        for peer in self.peers:
            self.tell(peer, Word(f"from {self.name}"))

    async def on_message(self, message: object, sender: str) -> object:
        assert isinstance(message, Word)
        self.heard_of.append((sender, message.text))
        return None


class Listener(Client):
    """Clients 0 to 3 of a, clients 2 to 5 of b; the two know each other."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.heard_of: list[str] = []

    @classmethod
    def servers(cls, settings: Any, clients: Sequence[str], clusters: Any) -> list[ServerPlan]:
        return [
            ServerPlan("a", Talker, tuple(clients[:4]), ("b",)),
            ServerPlan("b", Talker, tuple(clients[2:])),
        ]

    async def run(self) -> None:
        return

    async def on_message(self, message: object, sender: str) -> object:
        self.heard_of.append(sender)
        return None


def test_a_client_may_have_several_servers_and_servers_may_know_each_other() -> None:
    with ran(DIGITS, f"protocol.name={HERE}:Listener", "run.duration=1 s", "run.evaluate_every=1 s") as world:
        learners: list[Any] = [client.actor for client in world.clients]
        assert [learner.peers for learner in learners] == [["a"]] * 2 + [["a", "b"]] * 2 + [["b"]] * 2
        assert [sorted(learner.heard_of) for learner in learners] == [learner.peers for learner in learners]
        assert server(world, 0).heard_of == [("b", "from b")]
        assert server(world, 1).heard_of == [("a", "from a")]


class TwiceNamed(Listener):
    @classmethod
    def servers(cls, settings: Any, clients: Sequence[str], clusters: Any) -> list[ServerPlan]:
        return [ServerPlan("client-1", Talker, tuple(clients))]


class OfStrangers(Listener):
    @classmethod
    def servers(cls, settings: Any, clients: Sequence[str], clusters: Any) -> list[ServerPlan]:
        return [ServerPlan("a", Talker, ("client-9",))]


class Lonely(Listener):
    @classmethod
    def servers(cls, settings: Any, clients: Sequence[str], clusters: Any) -> list[ServerPlan]:
        return [ServerPlan("a", Talker, tuple(clients), ("b",))]


PLANS: Mapping[str, str] = {
    "TwiceNamed": "two actors are called client-1",
    "OfStrangers": "a serves client-9, which is not a client",
    "Lonely": "a names b, which is not another server",
}


@pytest.mark.parametrize("kind", PLANS)
def test_servers_that_cannot_be(kind: str) -> None:
    with pytest.raises(UserError, match=f"{kind}.servers.*{PLANS[kind]}"):
        make(DIGITS, f"protocol.name={HERE}:{kind}")


# --- crashes ---


def crash(at_s: str, back_s: str = "", state: str = "keep", servers: str = "") -> str:
    back = f'back = "{back_s}"\nstate = "{state}"\n' if back_s else ""
    return f'\n[[server.crash]]\nat = "{at_s}"\n{back}{servers}'


@pytest.mark.parametrize("state", ["keep", "fresh"])
def test_a_server_that_comes_back_goes_on_or_begins_anew(state: str) -> None:
    """It has done two rounds at 2 s, and is gone in the middle of the third, from 2.5 s to 4 s."""
    text = DIGITS + crash("2500 ms", "4 s", state)
    with closing(make(text, *FEDAVG, "run.duration=5 s")) as world:
        models = [at(world, time_s, lambda: server(world).params.numpy()) for time_s in (0.5, 2.25, 4.125)]
        numbers = at(world, 4.125, lambda: server(world).number)
        world.run()
        assert not world.supervisor.failures
        assert lives(world.trace, "server") == [(2.5, "crash", None), (4.0, "rejoin", state)]
        sent = [time_s for time_s, sender, _, _ in messages(world, "Assignment") if sender == "server"]
        assert sorted(set(sent)) == [0, 1, 2, 4, 5]
        (start,), (before,), (after,) = models
        assert numbers == [2 if state == "keep" else 0]
        np.testing.assert_array_equal(after, before if state == "keep" else start)
        assert abs(before - start).max() > 1e-3
        # The clients' answers to the third round came to nobody.
        dropped = [row for row in messages(world, "Contribution", "dropped") if row[2] == "server"]
        assert not dropped or {time_s for time_s, *_ in dropped} <= {2.5, 2.75, 3.0}


def test_one_that_stays_away_is_heard_of_no_more() -> None:
    with ran(DIGITS + crash("2500 ms"), *FEDAVG) as world:
        assert server(world) is None
        assert max(time_s for time_s, sender, _, _ in messages(world) if sender == "server") < 2.5
        assert all(client.up for client in world.clients)


def test_a_crash_interrupts_what_its_device_does() -> None:
    """Its first round is over at 1 s; it trains for 0.25 s then, but for the crash."""
    options = (f"protocol.name={HERE}:RefinedFedAvg", "protocol.local_steps=1", "run.duration=4 s")
    with ran(DIGITS + SERVER + crash("1125 ms", "2 s"), *options) as world:
        acting = server(world)
        stretches = acting.compute.device.intervals()
        assert stretches[:2] == [(1.0, 1.125, "busy"), (1.125, 2.0, "down")]
        assert acting.compute.training_steps >= 2
        assert acting.number >= 1


CRASHES: Mapping[str, tuple[str, str]] = {
    "unknown": (crash("1 s", servers="servers = [1]\n"), r"no server 1; must be \[0\], the only server"),
    "down": (crash("1 s") + crash("2 s"), "server.crash.1.at: server 0 is already down at 2 s"),
    "backwards": (crash("3 s", "2 s"), "must be after the crash"),
    "late": (crash("9 s"), "is after the end of the run"),
    "no time": ("\n[server]\nsamples = 3\n", "training on them takes time"),
    "no data": ('\n[server]\nspeed = "1 GFLOP/s"\n', "a server's device needs data"),
    "two speeds": (SERVER + 'speed = "1 GFLOP/s"\n', "set either 'step_time' or 'speed', not both"),
}


@pytest.mark.parametrize("kind", CRASHES)
def test_what_cannot_be_said_of_servers_is_refused(kind: str) -> None:
    text, message = CRASHES[kind]
    with pytest.raises(UserError, match=message):
        make(DIGITS + text, *FEDAVG)


def test_without_servers_nothing_is_said_of_them() -> None:
    with pytest.raises(
        UserError, match=r"server: must be removed, because protocol.name = .gossip. has no servers"
    ):
        make(DIGITS.replace('"local"', '"gossip"') + SERVER)
    scenario = loaded(DIGITS.replace('"local"', '"fedavg"') + SERVER, "protocol.name=gossip")
    assert any("server" in notice for notice in scenario.notices)
    build(scenario, device="cpu").close()


def test_the_same_run_twice_has_the_same_trace() -> None:
    text = DIGITS + SERVER + crash("2500 ms", "4 s", "fresh")
    options = (f"protocol.name={HERE}:RefinedFedAvg", "protocol.local_steps=1", "network.loss=0.1")
    hashes = []
    for _ in range(2):
        with ran(text, *options) as world:
            hashes.append(world.trace.hash())
    assert hashes[0] == hashes[1]


def test_servers_train_on_nothing_twice_and_on_nothing_that_anybody_validates_on() -> None:
    """Also where clients share samples: 0 to 3 are both clients', and 4 and 5 are held out by one."""
    train = (np.array([0, 1, 2, 3, 6]), np.array([0, 1, 2, 3, 4, 5, 7]))
    nothing = np.empty(0, dtype=np.int64)
    for seed in range(20):
        scenario: Any = SimpleNamespace(server=SimpleNamespace(samples=2), run=SimpleNamespace(seed=seed))
        found = assign_samples(
            scenario, Partition(train, (nothing, nothing)), (np.array([4, 5]), nothing), 2, 8
        )
        dealt = np.concatenate(found.train[2:]).tolist()
        assert len(dealt) == len(set(dealt)) == 4
        assert set(dealt) <= {0, 1, 2, 3, 6, 7}
