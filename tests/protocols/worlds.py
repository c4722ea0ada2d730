"""Tiny simulations from inline scenarios, with constant times, so that tests can compare virtual times with ==."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from protocols.learner import Learner
from sim.build import build
from sim.scenario import load_scenario
from sim.simulation import Simulation

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


def make(text: str, *overrides: str) -> Simulation:
    """The simulation of a scenario's text, with overrides such as "run.duration=2 s", ready to run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.toml"
        path.write_text(text, encoding="utf-8")
        return build(load_scenario(path, overrides), device="cpu")


@contextmanager
def ran(text: str, *overrides: str) -> Iterator[Simulation]:
    """A simulation that has run to its end without a failure of any actor; closed afterwards."""
    with closing(make(text, *overrides)) as simulation:
        simulation.run()
        assert simulation.supervisor.failures == []
        yield simulation


def churn(*events: str) -> str:
    """Churn for the end of a scenario's text; each event is "<time> <event> <client> [state]"."""
    return "".join(_churn_table(*event.split(" ")) for event in events)


def _churn_table(at: str, event: str, client: str, state: str = "") -> str:
    table = f'\n[[churn]]\nat = "{at}"\nevent = "{event}"\nclients = [{client}]\n'
    return table + (f'state = "{state}"\n' if state else "")


def learner(simulation: Simulation, index: int) -> Learner:
    """The learner of client number `index`."""
    found = simulation.clients[index].learner
    assert found is not None
    return found


def params(simulation: Simulation) -> np.ndarray:
    """Everybody's parameters, [clients, P]."""
    return np.stack([learner(simulation, client.index).params.tensor().numpy() for client in simulation.clients])


def optima(simulation: Simulation) -> tuple[np.ndarray, np.ndarray]:
    """Curvatures [clients, 1] and optima [clients, dimension] of quadratic clients."""
    rows = simulation.engine.data.test.x.numpy()
    return rows[:, :1], rows[:, 1:]


def at(simulation: Simulation, time_s: float, do: Callable[[], object]) -> None:
    """Call `do` after everything else that happens at that virtual time, as an observer."""
    simulation.loop.call_at_observer(time_s, do)


def messages(simulation: Simulation, event: str = "sent", kind: str | None = None) -> list[tuple[float, str, str, str]]:
    """What the trace says of messages, in order: (time, sender, receiver, type)."""
    table = simulation.trace.to_table().select(["time", "event", "actor", "peer", "type"])
    rows = zip(*[column.to_pylist() for column in table.columns], strict=True)
    return [
        (time_s, sender, receiver, found)
        for time_s, what, sender, receiver, found in rows
        if what == event and kind in (None, found)
    ]
