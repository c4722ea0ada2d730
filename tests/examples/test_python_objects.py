"""The examples that run the simulator from Python objects."""

import runpy
from contextlib import closing
from pathlib import Path

import pytest

import coterie
from sim.core.process import simulating
from sim.run.setup.builder import build
from sim.scenario.scenario import load_scenario
from tests.simulation.worlds import write

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "python"
SAME_SCENARIO = """
[run]
seed = 1
duration = "30 s"
evaluate_every = "10 s"

[clients]
count = 6
topology = "complete"

[data]
name = "digits"
partition = { kind = "permuted-clusters", sizes = [3, 3], samples_per_client = 60 }

[model]
name = "logistic-regression"

[training]
optimizer = "sgd"
learning_rate = 0.1
batch_size = 16

[protocol]
name = "cobo"

[network]
latency = "5 ms"
uplink = "unlimited"
downlink = "unlimited"

[[network.class]]
across = [[0, 1, 2], [3, 4, 5]]
latency = "60 ms"

[devices]
step_time = "100 ms"
"""


@pytest.mark.long
def test_fifty_lines_are_the_run_of_a_scenario(tmp_path: Path) -> None:
    file = EXAMPLES / "fifty_lines.py"
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") == 50
    page = (EXAMPLES.parents[1] / "how-to" / "fifty-lines.md").read_text(encoding="utf-8")
    assert text in page
    simulation = runpy.run_path(str(file))["simulation"]
    with simulating(), closing(build(load_scenario(write(tmp_path, SAME_SCENARIO)), device="cpu")) as same:
        same.run()
        assert simulation.trace.hash() == same.trace.hash()


@pytest.mark.long
def test_the_hook_counts_lost_messages(tmp_path: Path) -> None:
    losses = runpy.run_path(str(EXAMPLES / "losses.py"))["Losses"]()
    keys = {
        "run.duration": "30 s",
        "run.evaluate_every": "30 s",
        "network.loss": 0.3,
        "network.link": "datagram",
    }
    run = coterie.run("gossip", set=keys, out=tmp_path, device="cpu", quiet=True, hooks=[losses])
    assert sum(losses.lost.values()) == run.summary["messages"]["lost"] > 0
