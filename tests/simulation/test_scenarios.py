"""Golden short runs of every scenario file: what happens in them, counted, and that it happens again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sim.build.simulation import build
from sim.scenario import load_scenario
from sim.world.network import Counts

FOLDER = Path(__file__).parents[2] / "scenarios"
SHORT = {
    "quickstart": ["run.duration=10 s", "churn.0.at=2 s", "churn.1.at=6 s"],
    "cobo_quadratics": ["run.iterations=10", 'run.evaluate_every="5 iterations"'],
    "cobo_cross_silo": ["run.iterations=2", 'run.evaluate_every="2 iterations"', "data.test_samples=20"],
    "cobo_cross_device": [
        "run.iterations=1",
        'run.evaluate_every="1 iterations"',
        "model.width=8",
        "model.groups=4",
        "training.batch_size=2",
        "data.test_samples=2",
    ],
    "gossip": ["run.duration=12 s"],
    "dpsgd_synchronous": ["run.duration=20 s"],
    "dpsgd_asynchronous": ["run.duration=20 s"],
    "fedavg": [
        "run.duration=20 s",
        "churn.0.at=2 s",
        "churn.1.at=5 s",
        "churn.2.at=8 s",
        "churn.3.at=12 s",
        "protocol.patience=3 s",
    ],
    "mapl": [
        "run.iterations=2",
        'run.evaluate_every="2 iterations"',
        "data.partition.images_per_class=8",
        "data.partition.test_images_per_class=2",
        "protocol.warm_up=1",
    ],
    "mapl_full": [
        "run.iterations=1",
        'run.evaluate_every="1 iterations"',
        "clients.count=4",
        'model.assign="in-turn"',
        "data.partition.images_per_class=1",
        "data.partition.test_images_per_class=1",
        "training.batch_size=2",
    ],
    "mapl_churn": ["run.duration=15 s", "churn.0.at=5 s", "churn.1.at=7 s", "protocol.warm_up=4"],
    "world_planet": ["run.duration=10 s"],
    "world_phones": ["run.duration=20 s"],
    "world_spot": ["run.duration=60 s"],
    "world_flash_crowd": ["run.duration=20 s", "churn.0.at=5 s"],
    "world_flapping": [
        "run.duration=30 s",
        "network.partition.0.start=5 s",
        "network.partition.0.end=30 s",
    ],
}
# Messages sent, delivered, lost and dropped: decided by seed and virtual time, so the same on any machine.
GOLDEN: dict[str, tuple[int, int, int, int]] = {
    "quickstart": (2672, 2567, 0, 87),
    "cobo_quadratics": (760, 753, 0, 0),
    "cobo_cross_silo": (208, 194, 0, 0),
    "cobo_cross_device": (12738, 12501, 0, 0),
    "gossip": (600, 568, 25, 0),
    "dpsgd_synchronous": (480, 480, 0, 0),
    "dpsgd_asynchronous": (3229, 3220, 0, 0),
    "fedavg": (476, 456, 0, 18),
    "world_flapping": (2791, 1815, 973, 0),
    "world_flash_crowd": (3305, 3289, 0, 0),
    "world_spot": (3473, 2234, 0, 1239),
    "world_phones": (3710, 3684, 0, 0),
    "world_planet": (7518, 7453, 0, 0),
    "mapl": (245, 210, 0, 0),
    "mapl_full": (12, 12, 0, 0),
    "mapl_churn": (3093, 2709, 0, 382),
}
NEEDS_DATA = {
    "mapl": "cifar-10",
    "mapl_full": "cifar-10",
    "cobo_cross_silo": "fashion-mnist",
    "cobo_cross_device": "cifar-100-subset",
    "world_planet": "net-latency",
    "world_phones": "device-traces",
    "world_spot": "spot-churn",
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With more, torch rounds otherwise, and who talks to whom in MAPL's graph hangs on the last digits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run_short(name: str) -> tuple[Counts, str]:
    """Message counts and trace hash at the end of a scenario's short form."""
    with closing(build(load_scenario(FOLDER / f"{name}.toml", SHORT[name]), device="cpu")) as simulation:
        simulation.run()
        assert simulation.supervisor.failures == []
        return replace(simulation.network.counts), simulation.trace.hash()


def test_every_scenario_has_a_short_form() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(SHORT) == set(GOLDEN)


def test_across_the_flapping_line_are_other_digits_and_one_client_here_has_them() -> None:
    with closing(build(load_scenario(FOLDER / "world_flapping.toml"), device="cpu")) as simulation:
        clusters = simulation.clusters
        [cut] = simulation.scenario.network.partition
        assert clusters is not None and cut.groups is not None and cut.groups != "clusters"
        of_sides = [
            Counter(clusters[client] for client in side if client != "servers") for side in cut.groups
        ]
    assert of_sides == [{0: 9, 1: 1}, {1: 9, 0: 1}]


@pytest.mark.parametrize("name", list(SHORT))
def test_short_run(name: str) -> None:
    folder = os.environ.get("COTERIE_DATA")
    if name in NEEDS_DATA and not (folder and (Path(folder) / NEEDS_DATA[name]).is_dir()):
        pytest.skip(f"needs {NEEDS_DATA[name]} in the folder COTERIE_DATA")
    counts, trace_hash = run_short(name)
    assert (counts.sent, counts.delivered, counts.lost, counts.dropped) == GOLDEN[name]
    assert counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
    assert load_scenario(FOLDER / f"{name}.toml").question.partition("\n")[0].endswith("?")
    assert run_short(name)[1] == trace_hash
