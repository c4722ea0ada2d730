"""Adding a client changes nobody else's world, so that variations can be compared client by client."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from sim.core.simulation import Simulation
from sim.files.data_folder import DataFolder
from sim.learning.engine.graph.batches import draw_batches
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario
from sim.world.connection import Connection
from tests.simulation.worlds import DIGITS, events, load

N = 6
OVERRIDES = (
    "data.partition={kind='iid', samples_per_client=24}",
    "data.validation_share=0.25",
    "model.initialisation=independent",
    "devices.transient={every='5 s', length='1 s', factor=4}",
    "devices.slowdown=[{share=0.5, factor=2, start=0, end='2 s'}]",
    "network.loss=0.1",
    "network.link=datagram",
)
PARTITIONS = (
    "{kind='iid', samples_per_client=24}",
    "{kind='dirichlet', alpha=0.3, samples_per_client=24}",
    "{kind='classes-per-client', classes=3, samples_per_client=24}",
    "{kind='permuted-clusters', sizes=[3, 3], samples_per_client=24}",
    "{kind='disjoint-clusters', sizes=[3, 3], samples_per_client=24}",
)


@contextmanager
def world(count: int, folder: Path, *overrides: str) -> Iterator[Simulation]:
    """The simulation of the same world with so many clients."""
    with closing(build(scenario(count, folder, *overrides), device="cpu")) as simulation:
        yield simulation


def scenario(count: int, folder: Path, *overrides: str) -> Scenario:
    """The same world with `count` clients on a ring of the first six; a seventh has no neighbors."""
    (folder / "ring.txt").write_text("".join(f"{i} {(i + 1) % N}\n" for i in range(N)))
    topology = "clients.topology={kind='edge-list', file='ring.txt'}"
    options = (*OVERRIDES, topology, f"clients.count={count}", "engine.way=loop", *overrides)
    return load(folder, DIGITS, *options)


def test_devices_stay_the_same(tmp_path: Path) -> None:
    few, more = (scenario(count, tmp_path).devices.build(1, DataFolder(), count) for count in (N, N + 1))
    for client in range(N):
        assert few.cost_model(client) == more.cost_model(client)
        first, second = few.slowness(client), more.slowness(client)
        times = [k * 0.7 for k in range(60)]
        assert [first.finish_s(time, 0.3) for time in times] == [second.finish_s(time, 0.3) for time in times]
    speeds = {more.cost_model(client) for client in range(N + 1)}
    assert len(speeds) == N + 1  # so equal ones mean something


Fate = tuple[float, bool, float | None]


def fates(built: Simulation) -> dict[tuple[str, str], list[Fate]]:
    """What becomes of the first 20 messages of each pair: its latency, and whether it is lost."""
    names = [client.name for client in reversed(built.clients)]  # so a seventh client is the first to speak
    pairs = [(sender, receiver) for sender in names for receiver in names if sender != receiver]
    model, seed = built.network._model, built.network._seed
    connections = {
        pair: Connection(pair, model.model_of(pair), seed, built.network._arrive) for pair in pairs
    }
    rounds = [
        {pair: built.network.fate(connection, k) for pair, connection in connections.items()}
        for k in range(20)
    ]
    return {pair: [fate[pair] for fate in rounds] for pair in pairs}


def test_links_stay_the_same(tmp_path: Path) -> None:
    with world(N, tmp_path) as built, world(N + 1, tmp_path) as larger:
        before, after = fates(built), fates(larger)
    assert before == {pair: after[pair] for pair in before}
    assert len({tuple(drawn) for drawn in after.values()}) == (N + 1) * N


def test_streams_batches_and_initial_parameters_stay_the_same(tmp_path: Path) -> None:
    with world(N, tmp_path) as built, world(N + 1, tmp_path) as larger:
        for client, same in zip(built.clients, larger.clients, strict=False):
            first, second = client.fresh(), same.fresh()
            assert first.rng.random(20).tolist() == second.rng.random(20).tolist()
            assert first.params.tensor().equal(second.params.tensor())
            assert first.context.shared_seed == second.context.shared_seed
            for purpose in ("train", "gradient", "loss"):
                keys = [np.array([s.engine.draw_key(client.index, purpose)]) for s in (built, larger)]
                batches = [batch(key.astype(np.uint64)) for key in keys]
                assert batches[0] == batches[1]
        assert not built.clients[0].fresh().params.tensor().equal(built.clients[1].fresh().params.tensor())


def batch(key: np.ndarray) -> list[int]:
    drawn = draw_batches(key, np.zeros(1, int), np.array([24]), steps=6, batch_size=8, sampling="shuffled")
    return drawn.ravel().tolist()


@pytest.mark.parametrize("partition", PARTITIONS)
def test_data_stay_the_same(tmp_path: Path, partition: str) -> None:
    larger_partition = partition.replace("[3, 3]", "[3, 4]")
    with (
        world(N, tmp_path, f"data.partition={partition}") as built,
        world(N + 1, tmp_path, f"data.partition={larger_partition}") as larger,
    ):
        for name in ("train", "validation", "test"):
            first, second = built.engine.data.subset(name), larger.engine.data.subset(name)
            assert first.counts.tolist() == second.counts[:N].tolist()
            for client in range(N):
                positions = np.arange(first.counts[client])[None, :]
                one, other = (s.gather(np.array([client]), positions) for s in (first, second))
                assert one[0].equal(other[0]) and one[1].equal(other[1])


@pytest.mark.parametrize("protocol", ["local", "gossip"])
def test_whole_lives_stay_the_same(tmp_path: Path, protocol: str) -> None:
    """Beside one that talks to nobody, all others live as they do without it: times, messages, parameters."""
    with (
        world(N, tmp_path, f"protocol.name={protocol}") as built,
        world(N + 1, tmp_path, f"protocol.name={protocol}") as larger,
    ):
        built.run()
        larger.run()
        newcomer = larger.clients[N].name
        lives = [entry for entry in events(larger) if entry["actor"] != newcomer]
        assert lives == events(built)
        assert len(lives) > 2 * N
        times = [client.device.intervals() for client in built.clients]
        assert times == [client.device.intervals() for client in larger.clients[:N]]
