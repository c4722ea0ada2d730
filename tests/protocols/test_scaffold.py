"""SCAFFOLD against its formulas in numpy, and where it ends."""

import numpy as np
import pytest

from protocols.federated.scaffold import Scaffold, ScaffoldServer
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.worlds import QUADRATIC, learner, make, messages, optima, ran

WORLD = (QUADRATIC, "data.clusters=2", "data.curvatures=[2.0, 0.25]", "run.duration=1000 s")
RARELY = "run.evaluate_every=1000 s"
RATE = 0.1


def server(world: Simulation) -> ScaffoldServer:
    found = world.supervisor.running["server"]
    assert isinstance(found, ScaffoldServer)
    return found


def sampled(world: Simulation, task: str) -> list[list[int]]:
    """Who had a task in each round."""
    rounds: dict[float, list[int]] = {}
    for time_s, _, client, _ in messages(world, task):
        rounds.setdefault(time_s, []).append(int(client.removeprefix("client-")))
    return list(rounds.values())


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize(("server_rate", "steps"), [(1.0, 4), (0.5, 3), (1.0, 1)])
def test_scaffold_is_the_papers_algorithm_1(fraction: float, server_rate: float, steps: int) -> None:
    options = ("protocol.name=scaffold", f"protocol.fraction={fraction}", f"protocol.local_steps={steps}")
    with ran(*WORLD, RARELY, *options, f"protocol.server_rate={server_rate}", "protocol.rounds=7") as world:
        (a, mu), x, c, own = optima(world), np.zeros(3), np.zeros(3), np.zeros((4, 3))
        rounds = sampled(world, "ControlledTask")
        assert len(rounds) == 7 and {len(who) for who in rounds} == {int(4 * fraction)}
        for who in rounds:
            moved, changed = [], []
            for i in who:
                y = x
                for _ in range(steps):
                    y = y - RATE * (a[i] * (y - mu[i]) - own[i] + c)
                new = own[i] - c + (x - y) / (steps * RATE)
                moved.append(y - x)
                changed.append(new - own[i])
                own[i] = new
            x = x + server_rate * np.mean(moved, axis=0)
            c = c + np.sum(changed, axis=0) / 4
        np.testing.assert_allclose(server(world).params.numpy(), x, atol=2e-5)
        np.testing.assert_allclose(server(world).control.numpy(), c, atol=2e-5)
        for i in range(4):
            client = learner(world, i)
            assert isinstance(client, Scaffold)
            np.testing.assert_allclose(client.control.numpy(), own[i], atol=2e-5)


@pytest.mark.long
def test_scaffold_ends_at_the_minimum_that_averages_of_many_steps_miss() -> None:
    found = {}
    for name in ("fedavg", "scaffold"):
        options = (f"protocol.name={name}", "protocol.local_steps=8", "protocol.rounds=80", "clients.count=3")
        with ran(*WORLD, RARELY, *options) as world:
            a, mu = optima(world)
            best = (a * mu).sum(axis=0) / a.sum()
            found[name] = np.abs(learner(world, 0).params.numpy() - best).max()
    assert found["scaffold"] < 1e-3 < 0.02 < found["fedavg"]


def test_who_has_spent_its_budget_changes_no_control_variate() -> None:
    """Two rounds of three steps, one of a single one, then none: seven."""
    options = ("protocol.name=scaffold", "protocol.local_steps=3", "run.budget.steps=7")
    with ran(*WORLD, RARELY, *options) as world:
        assert {client.work.steps for client in world.clients} == {7}
        assert np.isfinite(server(world).control.numpy()).all()
        controls = [learner(world, i).control.numpy() for i in range(4)]
        np.testing.assert_allclose(server(world).control.numpy(), np.mean(controls, axis=0), atol=1e-5)


@pytest.mark.parametrize(
    "setting",
    ["training.optimizer=adam", "training.momentum=0.5", 'training.schedule={kind="step", every="9 steps"}'],
)
def test_scaffold_takes_plain_steps(setting: str) -> None:
    with pytest.raises(UserError, match=setting.partition("=")[0]):
        make(*WORLD, "protocol.name=scaffold", setting)
