"""meta-L2C: its weights and the encoder's gradient against autograd, its rounds, and the graph it learns."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from protocols.decentralized.meta_l2c import (
    MetaL2CAsynchronous,
    MetaL2CBase,
    attention,
    encoder_slope,
    sketch_update,
)
from protocols.framework.client import Client
from protocols.framework.vectors import Vector
from sim.core.simulation import Simulation
from sim.errors import UserError
from tests.protocols.worlds import DIGITS, churn, learner, make, params, ran

L2C = ("protocol.name=meta-l2c", "data.validation_share=0.25", "protocol.local_steps=2")
ENCODER = {"hidden": 4, "codes": 3, "temperature": 0.5}
SIZE = 6


def problem(seed: int, n: int = 4, width: int = 17) -> tuple[torch.Tensor, ...]:
    """phi, signs, theta, and n updates."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=4 * SIZE + 4 + 3 * 4)
    signs = rng.choice([-1.0, 1.0], size=width)
    return tuple(
        torch.tensor(each) for each in (phi, signs, rng.normal(size=width), rng.normal(size=(n, width)))
    )


def expected(phi: torch.Tensor, signs: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    """The weights [n] for the first client, written out."""
    units = updates / updates.norm(dim=1, keepdim=True) * signs
    groups = [units[:, start::SIZE].sum(dim=1) for start in range(SIZE)]
    sketches = torch.stack(groups, dim=1)
    first, biases, last = phi[: 4 * SIZE].reshape(4, SIZE), phi[4 * SIZE : 4 * SIZE + 4], phi[4 * SIZE + 4 :]
    codes = torch.tanh(sketches @ first.T + biases) @ last.reshape(3, 4).T
    logits = (codes @ codes[0]) / 0.5
    return logits.exp() / logits.exp().sum()


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_a_softmax_over_products_of_codes(seed: int) -> None:
    phi, signs, _, updates = problem(seed)
    found = attention(phi, signs, *updates, size=SIZE, **ENCODER)
    torch.testing.assert_close(torch.stack(found), expected(phi, signs, updates))
    assert torch.stack(found).sum().item() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
def test_the_encoders_gradient_is_that_of_the_loss_of_the_mixed_model(seed: int) -> None:
    """Through the whole chain, for a loss that is not linear."""
    phi, signs, theta, updates = problem(seed)
    optimum = torch.linspace(-1, 1, len(theta), dtype=theta.dtype)

    def loss(model: torch.Tensor) -> torch.Tensor:
        return (model - optimum).abs().pow(3).sum()

    leaf = phi.clone().requires_grad_()
    [exact] = torch.autograd.grad(loss(theta + expected(leaf, signs, updates) @ updates), leaf)
    gradient = torch.func.grad(loss)(theta + expected(phi, signs, updates) @ updates)
    slope = encoder_slope(phi, signs, gradient, *updates, size=SIZE, **ENCODER)
    torch.testing.assert_close(slope, exact / exact.norm())


def test_sketches_keep_inner_products_on_average() -> None:
    rng = np.random.default_rng(1)
    one, other = torch.tensor(rng.normal(size=(2, 50)))
    other = other + one
    exact = (one @ other / one.norm() / other.norm()).item()
    found = [
        (sketch_update(one, signs, 16) @ sketch_update(other, signs, 16)).item()
        for signs in torch.tensor(rng.choice([-1.0, 1.0], size=(3000, 50)))
    ]
    assert np.mean(found) == pytest.approx(exact, abs=0.02)
    assert torch.equal(sketch_update(torch.zeros(50), torch.ones(50), 16), torch.zeros(16))


def client(world: Simulation, index: int) -> MetaL2CBase:
    found = learner(world, index)
    assert isinstance(found, MetaL2CBase)
    return found


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_an_iteration_mixes_updates_by_these_weights(mode: str) -> None:
    seen: list[tuple[np.ndarray, ...]] = []

    async def aggregate(self: MetaL2CBase, received: Mapping[str, Vector]) -> None:
        before, phi, signs, own = (each.numpy() for each in (self.params, self.phi, self.signs, self.update))
        others = [each.numpy() for each in received.values()]
        await real(self, received)
        seen.append((before, self.params.numpy(), phi, signs, self.phi.numpy(), own, *others))

    real, monkey = MetaL2CBase.aggregate, pytest.MonkeyPatch()
    monkey.setattr(MetaL2CBase, "aggregate", aggregate)
    options = ("protocol.encoder_rate=0", f"protocol.mode={mode}", "protocol.sketch=6", "protocol.hidden=4")
    try:
        with ran(DIGITS, *L2C, *options, "protocol.codes=3", "protocol.temperature=0.5", "run.iterations=3"):
            pass
    finally:
        monkey.undo()
    assert len(seen) >= 15
    for before, after, phi, signs, phi_after, own, *others in seen:
        width = len(before)
        updates = np.stack([own, *[other[:width] for other in others]]).astype(np.float64)
        weights = expected(*map(torch.tensor, (phi.astype(np.float64), signs.astype(np.float64), updates)))
        np.testing.assert_allclose(after, before + weights.numpy() @ updates, atol=1e-5)
        mean = np.mean([phi, *[other[width:] for other in others]], axis=0)
        np.testing.assert_allclose(phi_after, mean, atol=1e-5)
    assert max(len(row) for row in seen) == 6 + 5, "all of the other five"


CLUSTERS = (
    "data.partition.samples_per_client=120",
    "training.batch_size=16",
    "training.learning_rate=0.2",
    "devices.step_time=31.25 ms",
)


def test_those_with_the_same_labels_weigh_more() -> None:
    """In rounds. Without, weights of .085 inside and .051 across were measured, which tells little."""
    options = ("protocol.temperature=0.1", "protocol.local_steps=6")
    with ran(DIGITS, *L2C, *CLUSTERS, *options) as world:
        assert world.clusters is not None
        inside, across = [], []
        for i in range(6):
            for peer, share in client(world, i).weights().items():
                same = world.clusters[int(peer[-1])] == world.clusters[i]
                (inside if same else across).append(float(share))
        assert np.mean(inside) > 3 * np.mean(across)


def test_only_the_neighbours_with_the_largest_weights_are_kept() -> None:
    options = ("protocol.kept=0.4", "protocol.sparse_after=4", "run.iterations=8", "run.duration=100 s")
    with ran(DIGITS, *L2C, *options) as world:
        for i in range(6):
            assert len(client(world, i).dropped) == 3 and len(client(world, i).weights()) == 2
            assert not client(world, i).weights().keys() & client(world, i).dropped.keys()


def test_where_one_that_was_kept_leaves_the_best_of_the_others_takes_its_place() -> None:
    """Who is gone is chosen by nobody, and one that was not kept and comes back has another chance."""
    comings = churn("leave", 0, "2.2 s") + churn("leave", 1, "9 s") + churn("rejoin", 1, "14 s")
    few = ("protocol.kept=0.4", "protocol.sparse_after=4", "run.duration=20 s", "protocol.mode=asynchronous")
    with ran(DIGITS + comings, *L2C, *few) as world:
        for i in range(2, 6):
            of = client(world, i)
            assert "client-0" not in of.dropped and of.iterations > 8
            mixed = [peer for peer in of.peers if peer not in of.dropped]
            assert "client-1" in mixed and 2 <= len(mixed) <= 3


def test_who_has_finished_sends_updates_of_zeros() -> None:
    slow = "devices.override=[{clients=[0], slowdown=4}]"
    with ran(
        DIGITS, *L2C, slow, "run.budget.steps=20", "run.duration=500 s", "protocol.patience=100 s"
    ) as world:
        assert {one.work.steps for one in world.clients} == {20}
        assert np.isfinite(params(world)).all()
        width = params(world).shape[1]
        assert not client(world, 1).shared_vector().numpy()[:width].any()


def test_without_rounds_it_goes_on_in_churn() -> None:
    text = DIGITS + churn("crash", 0, "3 s") + churn("join", 5, "4 s")
    with ran(text, *L2C, "protocol.mode=asynchronous", "run.duration=20 s") as world:
        assert all(client(world, i).iterations > 5 for i in range(1, 6))
        assert set(client(world, 5).weights()) <= {f"client-{i}" for i in range(5)}


def test_it_needs_samples_that_are_held_back() -> None:
    with pytest.raises(UserError, match=r"data.validation_share.*must be more than 0"):
        make(DIGITS, "protocol.name=meta-l2c")


def test_all_begin_with_the_same_encoder() -> None:
    world = make(DIGITS, *L2C)
    try:
        made = [one.fresh() for one in world.clients[:2]]
        assert isinstance(made[0], MetaL2CBase) and isinstance(made[1], MetaL2CBase)
        np.testing.assert_array_equal(made[0].phi.numpy(), made[1].phi.numpy())
        np.testing.assert_array_equal(np.abs(made[0].signs.numpy()), 1.0)
    finally:
        world.close()


def test_without_rounds_a_row_of_weights_is_of_one_softmax_over_all_peers() -> None:
    """Client 0 is slow: a share of an iteration in which few took part says nothing beside one of many."""
    slow = "devices.override=[{clients=[0], slowdown=7}]"
    options = ("protocol.mode=asynchronous", "run.duration=20 s", "protocol.temperature=1e6", slow)
    with ran(DIGITS, *L2C, *options) as world:
        rows = [client(world, i).weights() for i in range(6)]
        for row in rows:  # with that temperature all codes are alike
            assert row == pytest.approx(dict.fromkeys(row, 1 / 6), rel=1e-5) and len(row) == 5


def test_what_arrived_in_a_life_before_is_forgotten() -> None:
    """Client 0 is away from 3.1 s to 6.1 s, and comes back with its state."""
    mixed: list[tuple[float, float]] = []  # when, and of what time

    def noting(simulation: Simulation) -> None:
        client = simulation.clients[0]
        client.fresh = partial(noted, client.fresh)

    def noted(fresh: Callable[[], Client]) -> Client:
        made = fresh()
        assert isinstance(made, MetaL2CAsynchronous)
        aggregate, train = made.aggregate, made.train
        arrived: dict[str, float] = {}

        async def trained(*arguments: Any, **named: Any) -> Vector:
            update = await train(*arguments, **named)
            arrived.update({peer: each.time for peer, each in made.arrived.items()})
            return update

        async def aggregated(received: Mapping[str, Vector]) -> None:
            mixed.extend([(made.now, arrived[peer]) for peer in received])
            await aggregate(received)

        made.train, made.aggregate = trained, aggregated  # type: ignore[method-assign]
        return made

    text = DIGITS + churn("crash", 0, "3.1 s") + churn("rejoin", 0, "6.1 s")
    slow = ("devices.override=[{clients=[0], slowdown=2}]", "protocol.mode=asynchronous", "run.duration=16 s")
    with ran(text, *L2C, *slow, prepare=noting):
        after = [time for now, time in mixed if now > 6.1]
        assert after and min(after) > 5.0
