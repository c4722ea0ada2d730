"""Tiny simulations from inline scenarios, with constant times: tests compare virtual times with ==."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from protocols.framework.client import Client
from sim.core.simulation import Simulation
from sim.run.setup.builder import build
from sim.scenario.scenario import Scenario, load_scenario

T = TypeVar("T")

# A batch holds all samples of a client, so gradients are exact: a (x - mu). Times are sums of powers of two.
QUADRATIC = """\
# A world of quadratic functions.
[run]
duration = "8 s"
evaluate_every = "8 s"

[clients]
count = 4

[data]
name = "quadratic"
clusters = 1
dimension = 3
noise = 0
samples = 2

[model]
name = "point"

[training]
learning_rate = 0.1
batch_size = 2

[protocol]
name = "local"

[network]
latency = "250 ms"
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = "500 ms"
"""

DIGITS = """\
# A world of handwritten digits.
[run]
duration = "8 s"
evaluate_every = "4 s"

[clients]
count = 6

[data]
name = "digits"
partition = { kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }
test_samples = 10

[model]
name = "logistic-regression"

[training]
learning_rate = 0.1
batch_size = 4

[protocol]
name = "local"

[network]
latency = "250 ms"
uplink = "unlimited"
downlink = "unlimited"

[devices]
step_time = "500 ms"
"""


def loaded(text: str, *overrides: str) -> Scenario:
    """The scenario of a text, with overrides such as "run.duration=2 s"."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.toml"
        path.write_text(text, encoding="utf-8")
        return load_scenario(path, overrides)


def make(text: str, *overrides: str) -> Simulation:
    """The simulation of a scenario's text, ready to run."""
    return build(loaded(text, *overrides), device="cpu")


@contextmanager
def ran(
    text: str, *overrides: str, prepare: Callable[[Simulation], object] | None = None
) -> Iterator[Simulation]:
    """A simulation that has run to its end without a failure of any actor; closed afterwards."""
    with closing(make(text, *overrides)) as simulation:
        if prepare is not None:
            prepare(simulation)
        simulation.run()
        assert [str(failure) for failure in simulation.supervisor.failures] == []
        yield simulation


def churn(event: str, client: int, at: str, state: str = "keep") -> str:
    """One churn event, to be added to a scenario's text."""
    return f'\n[[churn]]\nat = "{at}"\nevent = "{event}"\nclients = [{client}]\nstate = "{state}"\n'


def cut(groups: Sequence[Sequence[int | str]], start: str, end: str) -> str:
    """A partition of the network into groups of clients, to be added to a scenario's text."""
    return f'\n[[network.partition]]\nstart = "{start}"\nend = "{end}"\ngroups = {groups}\n'


def learner(simulation: Simulation, index: int) -> Client:
    """The learner of client number `index`."""
    found = simulation.clients[index].actor
    assert found is not None
    return found


def params(simulation: Simulation) -> np.ndarray:
    """Everybody's parameters, [clients, P]."""
    return np.stack([learner(simulation, client.index).params.numpy() for client in simulation.clients])


def start_from(simulation: Simulation, rows: np.ndarray) -> None:
    """Have client number i start from rows[i], in each life."""

    def starting(fresh: Callable[[], Client], row: np.ndarray) -> Client:
        made = fresh()
        made.params = simulation.engine.vector(torch.tensor(row, dtype=torch.float32))
        return made

    for client, row in zip(simulation.clients, rows, strict=True):
        client.fresh = partial(starting, client.fresh, row)


def optima(simulation: Simulation) -> tuple[np.ndarray, np.ndarray]:
    """Curvatures [clients, 1] and optima [clients, dimension] of quadratic clients."""
    rows = simulation.engine.data.test.x.cpu().numpy()
    return rows[:, :1], rows[:, 1:]


def at(simulation: Simulation, time_s: float, look: Callable[[], T]) -> list[T]:
    """What `look` returns after all else that happens at that virtual time; filled in when the time comes."""
    seen: list[T] = []
    simulation.loop.call_at_observer(time_s, lambda: seen.append(look()))
    return seen


def messages(
    simulation: Simulation, kind: str | None = None, event: str = "sent"
) -> list[tuple[float, str, str, str]]:
    """What became of messages, in order: (time, sender, receiver, type)."""
    table = simulation.trace.to_table().select(["time", "event", "actor", "peer", "type"])
    rows = zip(*[column.to_pylist() for column in table.columns], strict=True)
    return [
        (time_s, sender, receiver, found)
        for time_s, what, sender, receiver, found in rows
        if what == event and kind in (None, found)
    ]
