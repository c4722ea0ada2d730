"""A small scenario whose data are the user's own, and a file of theirs beside it."""

from pathlib import Path
from typing import Any

import numpy as np

from sim.core.simulation import Simulation
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario, load_scenario
from tests.simulation.worlds import write

TEXT = """\
# Do three clients learn from data that a person brought?
[run]
seed = 1
duration = "2 s"
evaluate_every = "1 s"

[clients]
count = 3

[data]
DATA

[model]
name = "logistic-regression"

[training]
learning_rate = 0.1
batch_size = 4

[protocol]
name = "local"

[network]
latency = "20 ms"
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = "125 ms"
"""
HEAD = "import numpy as np\nimport torch\nfrom torch.utils.data import Dataset\n"


def load(folder: Path, data: str, *overrides: str, code: str = "") -> Scenario:
    """The scenario with these keys of `[data]`; `code` is in mine.py beside it, from line 4."""
    write(folder, HEAD + code, "mine.py")
    return load_scenario(write(folder, TEXT.replace("DATA", data)), overrides)


def built(folder: Path, data: str, *overrides: str, code: str = "") -> Simulation:
    """What is built of it, closed."""
    simulation = build(load(folder, data, *overrides, code=code), device="cpu")
    simulation.close()
    return simulation


def owned(simulation: Simulation, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels of each client in a role."""
    subset: Any = simulation.engine.data.subset(name)
    found = []
    for client, count in enumerate(subset.counts.tolist()):
        x, y = subset.gather(np.array([client]), np.arange(count)[None])
        found.append((x[0].numpy(), y[0].numpy()))
    return found


def all_of(simulation: Simulation, name: str) -> np.ndarray:
    """The first number of each sample of all clients in a role, ascending."""
    return np.sort(np.concatenate([x[:, 0] for x, _ in owned(simulation, name)]))
