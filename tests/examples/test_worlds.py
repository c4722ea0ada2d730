"""docs/examples/world, each run in a small world, and the pages of docs/how-to that show them."""

import re
import tomllib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from sim.core.simulation import Simulation
from sim.run.options import RunOptions
from sim.run.running import run_scenario
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario, load_scenario
from sim.world.topology.own import OwnTopology
from tests.own.worlds import GOSSIP
from tests.simulation.worlds import write

DOCS = Path(__file__).parents[2] / "docs"
WORLD = DOCS / "examples" / "world"
PAGES = {
    "latency": "latency",
    "bandwidth-and-speed": "bandwidth",
    "slow-times": "slow_times",
    "churn": "churn",
    "topology": "topology",
}


def options(*keys: str) -> list[str]:
    return [key.replace("WORLD", str(WORLD)) for key in keys]


def built(tmp_path: Path, *keys: str) -> Simulation:
    return build(scenario(tmp_path, *keys), device="cpu")


def scenario(tmp_path: Path, *keys: str) -> Scenario:
    return load_scenario(write(tmp_path, GOSSIP), options("clients.count=40", *keys))


@pytest.mark.long
def test_all_at_once_in_one_run(tmp_path: Path) -> None:
    text = GOSSIP + f'\n[[churn_process]]\nkind = "{WORLD}/churn.py:with_outages"\n'
    text = text.replace(
        "[devices]\n",
        "[devices]\n"
        f'slow_times = [{{ kind = "{WORLD}/slow_times.py:office_hours" }}, '
        f'{{ kind = "{WORLD}/slow_times.py:updates" }}]\n',
    )
    keys = options(
        "run.duration=120 s",
        "run.evaluate_every=60 s",
        "clients.topology={kind='WORLD/topology.py:exponential', directed=true}",
        "network.latency=WORLD/latency.py:by_region",
        "network.uplink=WORLD/bandwidth.py:homes",
        "network.downlink=WORLD/bandwidth.py:homes",
        "devices.step_time=WORLD/speed.py:generations",
    )
    result = run_scenario(load_scenario(write(tmp_path, text), keys), RunOptions(out=tmp_path, device="cpu"))
    assert result.summary["finished"] and not result.summary["failures"]
    assert result.directory is not None
    copies = {re.sub(r"-[0-9a-f]{8}$", "", path.name) for path in result.directory.iterdir() if path.is_dir()}
    assert copies == {
        "topology", "latency", "uplink", "downlink", "step_time", "slow_times", "churn_process",
    }  # fmt: skip
    again = load_scenario(result.directory / "scenario.toml")
    assert (
        run_scenario(again, RunOptions(out=tmp_path / "again", device="cpu")).summary["trace_hash"]
        == (result.summary["trace_hash"])
    )


def test_homes_with_fibre_have_it_both_ways(tmp_path: Path) -> None:
    ways = [f"network.{way}=WORLD/bandwidth.py:homes" for way in ("uplink", "downlink")]
    with closing(built(tmp_path, *ways)) as simulation:
        both = [simulation.network._model.bandwidths_of(each.name) for each in simulation.clients]
    assert all(up == down for up, down in both)
    assert 4 < sum(up == 1e9 for up, _ in both) < 20


def test_an_outage_takes_a_region_down(tmp_path: Path) -> None:
    text = (
        GOSSIP + f'\n[[churn_process]]\nkind = "{WORLD}/churn.py:with_outages"\nup = "10 h"\naway = "1 s"\n'
    )
    scenario = load_scenario(write(tmp_path, text), ["clients.count=30", "run.duration=600 s"])
    with closing(build(scenario, device="cpu")) as simulation:
        crashes: dict[float, list[int]] = {}
        for event in simulation.events:
            if event.kind == "crash":
                crashes.setdefault(event.time_s, []).extend(event.clients)
    groups = [sorted(each) for each in crashes.values() if len(each) > 5]
    assert groups and all(len({client % 3 for client in group}) == 1 for group in groups)


def test_the_lazy_ring_is_doubly_stochastic(tmp_path: Path) -> None:
    key = "clients.topology={kind='WORLD/topology.py:lazy_ring', own=0.8}"
    with closing(built(tmp_path, key)):
        topology = scenario(tmp_path, key).clients.topology
        assert isinstance(topology, OwnTopology)
        weights = topology.adjacency(40, 1).weights
    assert weights is not None
    matrix = np.zeros((40, 40))
    for row, given in enumerate(weights):
        matrix[row, [*given]] = [*given.values()]
    np.testing.assert_allclose(matrix.sum(0), 0.2)
    np.testing.assert_allclose(matrix.sum(1), 0.2)


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_show_the_examples_as_they_are(page: str) -> None:
    text = (DOCS / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    source = (WORLD / f"{PAGES[page]}.py").read_text(encoding="utf-8")
    assert shown and all(block in source + "\n" for block in shown)
    for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        for name in re.findall(r'kind = "(\w+)\.py:(\w+)"', str(block)):
            assert f"def {name[1]}(" in (WORLD / f"{name[0]}.py").read_text(encoding="utf-8")
        tomllib.loads(block)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        is_external = link.startswith("https://")
        assert is_external or (DOCS / "how-to" / link.partition("#")[0]).is_file(), link
