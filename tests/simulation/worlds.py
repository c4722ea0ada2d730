"""Small scenarios for tests of whole runs: base texts, and short ways to load and to run them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sim.core.simulation import Simulation
from sim.run.options import RunOptions
from sim.run.running import RunResult, run_scenario
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario, load_scenario

# A step takes an eighth of a second, so that times are exact binary numbers and can be compared with ==.
QUADRATIC = """\
# Does the simulator keep its promises?
[run]
seed = 1
duration = "10 s"
evaluate_every = "5 s"

[clients]
count = 6

[data]
name = "quadratic"
clusters = 2
dimension = 4
samples = 20

[model]
name = "point"

[training]
learning_rate = 0.1
batch_size = 1

[protocol]
name = "local"

[network]
latency = "20 ms"
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = "125 ms"
"""

DIGITS = """\
# Does the simulator keep its promises, on real data?
[run]
seed = 1
duration = "4 s"
evaluate_every = "2 s"

[clients]
count = 6

[data]
name = "digits"
partition = { kind = "permuted-clusters", clusters = 2, samples_per_client = 24 }
test_samples = 50

[model]
name = "logistic-regression"

[training]
learning_rate = 0.1
batch_size = 8

[protocol]
name = "gossip"
period = "500 ms"

[network]
latency = { kind = "lognormal", median = "50 ms", sigma = 0.5 }
uplink = "10 Mbit/s"
downlink = "10 Mbit/s"

[devices]
step_time = { kind = "lognormal", median = "100 ms", sigma = 0.3 }
"""


def write(folder: Path, text: str, name: str = "world.toml") -> Path:
    """A scenario file, or any other."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str, *overrides: str) -> Scenario:
    """The scenario of a text, with overrides as after `--set`."""
    return load_scenario(write(folder, text), overrides)


@contextmanager
def simulation(folder: Path, text: str, *overrides: str) -> Iterator[Simulation]:
    """A simulation that has not run yet, on the CPU."""
    with closing(build(load(folder, text, *overrides), device="cpu")) as built:
        yield built


def run(folder: Path, text: str, *overrides: str) -> RunResult:
    """A whole run; its results lie in `folder`/runs."""
    return run_scenario(load(folder, text, *overrides), RunOptions(out=folder / "runs", device="cpu"))


def events(built: Simulation) -> list[dict[str, Any]]:
    """The trace as far as it goes, one dictionary for each entry."""
    return built.trace.to_table().to_pylist()
