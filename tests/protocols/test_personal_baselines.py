"""Methods with a model of each client's, or of each cluster's, in the same worlds: what they bring, in bad
weather, too."""

from statistics import median

import numpy as np
import pytest

from sim.core.simulation import Simulation
from sim.scenario.protocol_lookup import list_protocols
from tests.lists import require_listed
from tests.protocols.test_baselines import BASELINES
from tests.protocols.worlds import DIGITS, ran

WORLD = (
    DIGITS,
    "run.duration=20 s",
    "run.evaluate_every=20 s",
    "devices.step_time=31.25 ms",
    "network.latency=31.25 ms",
    "data.partition.samples_per_client=40",
    "data.test_samples=60",
    "data.validation_share=0.2",
    "training.learning_rate=0.3",
)
AGREEING = "data.partition.clusters=1"
SERVED = ("protocol.local_steps=10", "protocol.patience=4 s")
METHODS = {
    "clustered-fl": SERVED,
    "ditto": (*SERVED, "protocol.personal_steps=10", AGREEING),
    "fedavg-plus": (*SERVED, AGREEING),
    "federated-clustering": ("protocol.patience=4 s", "protocol.local_steps=2"),
    "fedem": (*SERVED, AGREEING),
    "fedfomo": SERVED,
    "ifca": SERVED,
    "validation-trust": ("protocol.patience=4 s",),
}
BY_THEMSELVES = (
    *("cobo", "dfedavgm", "dpsgd", "el-oracle", "fedavg", "fedclassavg", "federico", "fedproto", "fedsim"),
    *("flexlora", "flora", "flt", "gossip", "learn-to-collaborate", "local", "mapl", "mapl-plus", "oracle"),
    *("pfedsim", "scaffold", "scool"),
)
"""Methods that learn in tests of their own files."""
LOSSY = ("network.link=datagram", "network.loss=0.3")


def test_every_method_is_covered() -> None:
    where = f"METHODS or BY_THEMSELVES in {__file__}, or to BASELINES in tests/protocols/test_baselines.py"
    require_listed(list_protocols(), (*METHODS, *BASELINES, *BY_THEMSELVES), where)


def accuracy(simulation: Simulation) -> float:
    latest = simulation.observer.metrics.latest("accuracy")
    return float(np.mean(list(latest.values())))


@pytest.fixture(scope="module")
def alone() -> float:
    """The accuracy of training alone for as long."""
    with ran(*WORLD, "protocol.name=local") as simulation:
        return accuracy(simulation)


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_it_learns_more_than_alone(name: str, alone: float) -> None:
    with ran(*WORLD, f"protocol.name={name}", *METHODS[name]) as simulation:
        print(name, accuracy(simulation), alone)
        assert accuracy(simulation) > alone


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_it_goes_on_where_three_of_ten_messages_are_lost(name: str, alone: float) -> None:
    """Rounds wait for what is lost. By chance one client may be given up in most of them, with one seed."""
    least, found = [], []
    for seed in range(3):
        with ran(*WORLD, f"protocol.name={name}", *METHODS[name], *LOSSY, f"run.seed={seed}") as simulation:
            least.append(min(client.iterations for client in simulation.clients))
            found.append(accuracy(simulation))
    print(name, least, found, alone)
    assert median(least) >= 3
    assert median(found) > 0.6 * alone
