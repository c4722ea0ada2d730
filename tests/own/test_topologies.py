"""Topologies by functions of the user's own: directed, weighted, and what methods make of them."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from sim.errors import UserError
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.own.test_world import messages
from tests.own.worlds import scenario_with
from tests.protocols.decoupled import DECOUPLED
from tests.simulation.worlds import QUADRATIC

TOPOLOGY = "clients.topology"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CHAIN = "def mine(clients):\n    return [(i, i + 1) for i in range(clients - 1)]\n"
RING = """
import numpy as np

def mine(rng, clients, own: float = 0.5):
    shift = np.roll(np.eye(clients), 1, axis=0)
    return own * np.eye(clients) + (1 - own) * (0.3 * shift + 0.7 * shift.T)
"""


def test_links_go_both_ways_unless_they_are_directed(tmp_path: Path) -> None:
    both = load_scenario(scenario_with(tmp_path, TOPOLOGY, CHAIN)).clients.topology.adjacency(4, 1)
    assert both.receivers == both.senders == [[1], [0, 2], [1, 3], [2]]
    assert not both.directed and both.weights is None
    path = scenario_with(tmp_path, TOPOLOGY, CHAIN, keys="directed = true")
    one_way = load_scenario(path).clients.topology.adjacency(4, 1)
    assert one_way.directed
    assert (one_way.receivers, one_way.senders) == ([[1], [2], [3], []], [[], [0], [1], [2]])


def test_row_i_of_an_array_is_what_client_i_gives_to_others(tmp_path: Path) -> None:
    ring = load_scenario(scenario_with(tmp_path, TOPOLOGY, RING)).clients.topology.adjacency(4, 1)
    assert ring.receivers == [[1, 3], [0, 2], [1, 3], [0, 2]]
    assert ring.weights is not None
    assert ring.weights[1] == pytest.approx({0: 0.15, 2: 0.35})
    truth = "import numpy as np\ndef mine(clients):\n    return ~np.eye(clients, dtype=bool)\n"
    everybody = load_scenario(scenario_with(tmp_path, TOPOLOGY, truth)).clients.topology.adjacency(3, 1)
    assert everybody.receivers == [[1, 2], [0, 2], [0, 1]] and everybody.weights is None


def test_d_psgd_mixes_with_the_weights_of_the_topology(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, TOPOLOGY, RING, base=QUADRATIC)
    options = ["protocol.name=dpsgd", "training.learning_rate=1e-12", "model.initialisation=independent"]
    options += ["run.iterations=3"]
    with closing(build(load_scenario(path, options, unset=["run.duration"]), device="cpu")) as simulation:
        before = np.stack([client.compute.initial().numpy() for client in simulation.clients])
        simulation.run()
        after = np.stack([client.params.numpy() for client in simulation.clients])
        rounds = [client.actor.rounds.number for client in simulation.clients if client.actor is not None]
    shift = np.roll(np.eye(6), 1, axis=0)
    w = 0.5 * np.eye(6) + 0.15 * shift + 0.35 * shift.T
    for index, row in enumerate(after):
        wanted = np.linalg.matrix_power(w, rounds[index]) @ before
        np.testing.assert_allclose(row, wanted[index], rtol=1e-5, atol=1e-6)
    assert min(rounds) >= 3


@pytest.mark.long
def test_messages_go_along_directed_links_only(tmp_path: Path) -> None:
    text, method = (EXAMPLES / "world" / "topology.py").read_text(), EXAMPLES / "push_sum.py"
    path = scenario_with(tmp_path, TOPOLOGY, text, "exponential", keys="directed = true", base=QUADRATIC)
    scenario = load_scenario(path, [f"protocol.name={method}:PushSum", "run.evaluate_every=10 s"])
    result = run_scenario(scenario, RunOptions(out=tmp_path / "runs", device="cpu"))
    assert result.directory is not None and not result.summary["failures"]
    pairs = messages(result.directory).select("actor", "peer").unique().rows()
    hops = {(int(peer[7:]) - int(actor[7:])) % 6 for actor, peer in pairs}
    assert hops == {1, 2, 4}


def test_methods_that_need_both_ways_refuse_directed_links(tmp_path: Path) -> None:
    path = scenario_with(tmp_path, TOPOLOGY, CHAIN, keys="directed = true", base=QUADRATIC)
    for name in ("dpsgd", "cobo"):
        with pytest.raises(UserError, match=r"clients.topology = .*needs two-way links"):
            load_scenario(path, [f"protocol.name={name}"])
    for name, *needed in (("cga",), ("meta-l2c", "data.validation_share=0.2"), ("spdb",)):
        base = QUADRATIC if name == "cga" else DECOUPLED
        directed = scenario_with(tmp_path, TOPOLOGY, CHAIN, keys="directed = true", base=base)
        with pytest.raises(UserError, match=r"clients.topology = .*needs two-way links"):
            load_scenario(directed, [f"protocol.name={name}", *needed])
        if name != "spdb":
            load_scenario(directed, [f"protocol.name={name}", "protocol.mode=asynchronous", *needed])
        load_scenario(directed, [f"protocol.name={name}", "protocol.alone=true", *needed])
    load_scenario(path, ["protocol.name=dpsgd", "protocol.alone=true"])
    load_scenario(path, ["protocol.name=dpsgd", 'protocol.unusual=["clients.topology"]'])


def test_a_client_knows_its_senders_its_receivers_and_its_weights(tmp_path: Path) -> None:
    text = "def mine():\n    return [(0, 1, 0.25), (2, 1, 0.5), (1, 2, 0.125)]\n"
    path = scenario_with(tmp_path, TOPOLOGY, text, keys="directed = true")
    with closing(
        build(load_scenario(path, ["run.duration=1 s", "run.evaluate_every=1 s"]), device="cpu")
    ) as simulation:
        simulation.run()
        learners = {client.index: client.actor for client in simulation.clients}
        one = learners[1]
        assert one is not None
        assert (one.peers, one.senders) == (["client-2"], ["client-0", "client-2"])
        assert one.mixing_weights == {"client-0": 0.25, "client-2": 0.5}
        assert not one.is_peer("client-0")
        zero = learners[0]
        assert zero is not None and zero.mixing_weights == {} and zero.senders == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("while True:\n        yield 0, 1", "returned more than 72 links for 6 clients; return fewer"),
        ("import sys\n    sys.exit(3)\n    yield", r"own.py:\d+: mine failed as the topology: SystemExit: 3"),
    ],
)
def test_links_without_end_and_none_at_all(tmp_path: Path, text: str, message: str) -> None:
    path = scenario_with(tmp_path, TOPOLOGY, f"def mine(clients):\n    {text}\n")
    with pytest.raises(UserError, match=message):
        load_scenario(path).clients.topology.adjacency(6, 1)
