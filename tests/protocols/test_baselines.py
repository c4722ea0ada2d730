"""The baselines of other papers' tables: each goes on and learns, in calm and in bad weather.

Six clients with classes of their own (Dirichlet), in bad weather with 30% of the messages lost and one
client that is 20 times slower.
"""

import numpy as np
import pytest

from sim.core.simulation import Simulation
from tests.protocols.worlds import DIGITS, learner, ran

WORLD = (
    DIGITS.replace(
        'partition = { kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }\ntest_samples = 10',
        'partition = { kind = "dirichlet", alpha = 0.5, samples_per_client = 40 }\ntest_samples = 60',
    ),
    "run.duration=30 s",
    "run.evaluate_every=30 s",
    "devices.step_time=31.25 ms",
    "network.latency=62.5 ms",
    "training.learning_rate=0.2",
    "training.batch_size=10",
)
PARTS = ('model={ name = "decoupled", backbones = ["small-mlp"], features = 16 }', "protocol.local_steps=5")
PATIENCE = "protocol.patience=2 s"
BASELINES: dict[str, tuple[str, ...]] = {
    "fedper": (*PARTS, PATIENCE),
    "lg-fedavg": (*PARTS, PATIENCE, "protocol.warm_up=5"),
    "q-ffl": (PATIENCE, "protocol.local_steps=5"),
    "afl": (PATIENCE,),
    "per-fedavg": (PATIENCE, "protocol.local_steps=5", "protocol.adaptation_rate=0.05"),
    "pfedme": (PATIENCE, "protocol.local_steps=2", "protocol.strength=2", "protocol.outer_rate=0.3"),
    "dada": (PATIENCE, "protocol.mu_2=0.5"),
    "cga": (PATIENCE,),
    "spdb": (*PARTS, PATIENCE),
    "meta-l2c": (PATIENCE, "data.validation_share=0.2", "protocol.local_steps=5", "protocol.temperature=0.3"),
    "pfedhn": (PATIENCE, "protocol.local_steps=5", "protocol.outer_rate=0.1", "protocol.hidden=[32]"),
    "fedasync": ("protocol.local_steps=5",),
    "fedbuff": ("protocol.local_steps=5",),
}
CALM: dict[str, tuple[int, int, int, int]] = {
    "fedper": (1278, 1278, 0, 0),
    "lg-fedavg": (1278, 1278, 0, 0),
    "q-ffl": (1116, 1110, 0, 0),
    "afl": (2160, 2154, 0, 0),
    "per-fedavg": (462, 462, 0, 0),
    "pfedme": (822, 822, 0, 0),
    "cga": (5790, 5775, 0, 0),
    "spdb": (2910, 2880, 0, 0),
    "meta-l2c": (3690, 3690, 0, 0),
    "pfedhn": (1278, 1278, 0, 0),
    "fedasync": (1284, 1284, 0, 0),
    "fedbuff": (1284, 1284, 0, 0),
}
"""Messages sent, delivered, lost and dropped in calm weather, where who talks to whom hangs on no number."""
BAD = ("network.link=datagram", "network.loss=0.3", "devices.override=[{clients=[5], slowdown=20}]")


def scenario(name: str) -> tuple[str, ...]:
    return (*WORLD, f"protocol.name={name}", *BASELINES[name])


def accuracy(world: Simulation, clients: int) -> float:
    """Mean accuracy of the first clients, by the model that each is judged by."""
    latest = world.observer.metrics.latest("accuracy")
    return float(np.mean([latest[f"client-{i}"] for i in range(clients)]))


def untrained(world: Simulation, clients: int) -> float:
    """The same at the start."""
    series = [world.observer.metrics.series(f"client-{i}", "accuracy") for i in range(clients)]
    return float(np.mean([each.values[0] for each in series]))


@pytest.mark.long
@pytest.mark.parametrize("name", BASELINES)
def test_it_learns_in_calm_weather(name: str) -> None:
    with ran(*scenario(name)) as world:
        assert accuracy(world, 6) > untrained(world, 6) + 0.4
        counts = world.network.counts
        found = (counts.sent, counts.delivered, counts.lost, counts.dropped)
        if name == "dada":  # who is a collaborator is learned
            assert counts.lost == counts.dropped == 0 and counts.delivered > 1000
        else:
            assert found == CALM[name]


@pytest.mark.long
@pytest.mark.parametrize("name", BASELINES)
def test_it_goes_on_and_learns_in_bad_weather(name: str) -> None:
    with ran(*scenario(name), *BAD) as world:
        counts = world.network.counts
        assert counts.sent == counts.delivered + counts.lost + counts.dropped + counts.in_flight
        assert counts.lost > 0.2 * counts.sent
        for i in range(5):
            assert learner(world, i).iterations >= 3
            assert np.isfinite(learner(world, i).params.numpy()).all()
        assert accuracy(world, 5) > untrained(world, 5) + 0.15
