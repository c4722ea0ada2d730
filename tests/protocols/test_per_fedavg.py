"""Per-FedAvg on quadratics: its rounds in numpy, and where they end in closed form."""

import numpy as np
import pytest
import torch

from protocols.federated.per_fedavg import PerFedAvg
from protocols.framework.vectors import Vector
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.decoupled import own_data
from tests.protocols.worlds import DIGITS, QUADRATIC, learner, make, messages, optima, ran

META = ("protocol.name=per-fedavg", "data.clusters=4", "run.duration=1000 s", "run.evaluate_every=500 s")


def models(world: Simulation, name: str) -> np.ndarray:
    """Everybody's model of that name, [N, d]."""
    rows = []
    for i in range(len(world.clients)):
        client = learner(world, i)
        assert isinstance(client, PerFedAvg)
        rows.append(client.evaluated()[name].numpy())
    return np.stack(rows)


@pytest.mark.parametrize(("steps", "personal"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("hessian", ["differences", "none"])
def test_rounds_are_those_of_the_papers_algorithm_1(steps: int, personal: int, hessian: str) -> None:
    """The Hessian of a quadratic client is a times the identity."""
    settings = (
        f"protocol.local_steps={steps}",
        f"protocol.personal_steps={personal}",
        f"protocol.hessian={hessian}",
    )
    with ran(QUADRATIC, *META, *settings, "protocol.adaptation_rate=0.3", "run.iterations=6") as world:
        (a, mu), x = optima(world), np.zeros(3)
        for _ in range(6):
            told, w = x, np.tile(x, (4, 1))
            for _ in range(steps):
                adapted = w - 0.3 * a * (w - mu)
                w = w - 0.1 * (1 - 0.3 * a * (hessian != "none")) * a * (adapted - mu)
            x = w.mean(axis=0)
        own = mu + (1 - 0.3 * a) ** personal * (told - mu)
        np.testing.assert_allclose(models(world, "common"), np.tile(told, (4, 1)), atol=2e-4)
        np.testing.assert_allclose(models(world, "personal"), own, atol=2e-4)


def test_products_with_the_hessian_are_those_of_autograd() -> None:
    """Of logistic regression, on the same samples: a batch has all of them."""
    found: list[tuple[np.ndarray, ...]] = []

    async def product(self: PerFedAvg, params: Vector, change: Vector) -> Vector:
        curved = await real(self, params, change)
        if self.name == "client-0":
            found.append(tuple(each.numpy() for each in (params, change, curved)))
        return curved

    real, monkey = PerFedAvg.hessian_product, pytest.MonkeyPatch()
    monkey.setattr(PerFedAvg, "hessian_product", product)
    try:
        with ran(
            DIGITS, *META[:1], "protocol.local_steps=2", "run.iterations=1", "training.batch_size=8"
        ) as world:
            x, y = own_data(world, 0)
    finally:
        monkey.undo()

    def loss(flat: torch.Tensor) -> torch.Tensor:
        scores = x.double() @ flat[: 10 * x.shape[1]].reshape(10, -1).T + flat[-10:]
        return torch.nn.functional.cross_entropy(scores, y)

    assert len(found) == 2
    for params, change, curved in found:
        exact = torch.func.jvp(
            torch.func.grad(loss), (torch.tensor(params).double(),), (torch.tensor(change).double(),)
        )[1].numpy()
        assert np.abs(curved - exact).max() < 0.02 * np.abs(exact).max()


def test_alone_a_client_goes_on_from_its_own_model() -> None:
    alone = ("protocol.alone=true", "protocol.local_steps=2", "protocol.adaptation_rate=0.3")
    with ran(QUADRATIC, *META, *alone, "run.iterations=5") as world:
        (a, mu), w = optima(world), np.zeros((4, 3))
        for _ in range(10):
            w = w - 0.1 * (1 - 0.3 * a) * a * (w - 0.3 * a * (w - mu) - mu)
        assert world.network.counts.sent == 0
        np.testing.assert_allclose(models(world, "common"), w, atol=2e-4)


def test_a_budget_counts_both_gradients_of_a_local_step() -> None:
    with ran(
        QUADRATIC, *META, "protocol.local_steps=4", "protocol.hessian=none", "run.iterations=2"
    ) as world:
        assert {client.work.steps for client in world.clients} == {2 * (1 + 2 * 4)}
        # A step takes half a second, a message a quarter: a round 4.5 s and 0.5 s.
        assert sorted({row[0] for row in messages(world, "Assignment")})[:2] == [0.0, 5.0]


def test_the_proximal_term_of_fedprox_is_unknown() -> None:
    with pytest.raises(UserError, match=r"protocol\.mu = 1 .*unknown key"):
        make(DIGITS, "protocol.name=per-fedavg", "protocol.mu=1")
