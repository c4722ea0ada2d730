"""SPDB: rounds in numpy with autograd's gradients, exact agreement by its multipliers, who comes and goes."""

import numpy as np
import pytest

from protocols.decentralized.spdb import SPDB
from sim.errors import UserError
from tests.protocols.decoupled import DECOUPLED, TWO_BACKBONES, columns, initial, model, trained
from tests.protocols.test_dpsgd import metropolis
from tests.protocols.worlds import churn, learner, make, ran

RING = ("protocol.name=spdb", "clients.topology=ring", 'model.initialisation="shared-backbone"')


@pytest.mark.long
@pytest.mark.parametrize(("head_steps", "local_steps"), [(1, 1), (0, 1), (2, 2)])
@pytest.mark.parametrize("theta", [0.0, 0.5])
def test_a_round_moves_heads_backbones_and_multipliers(
    theta: float, head_steps: int, local_steps: int
) -> None:
    options = (f"protocol.head_steps={head_steps}", f"protocol.local_steps={local_steps}")
    with ran(
        DECOUPLED, *RING, *options, f"protocol.dual_rate={theta}", "run.iterations=4", "run.duration=100 s"
    ) as world:
        mixing, rows = metropolis(world), np.stack(initial(world))
        backbone, head = columns(world, 0, "backbone"), columns(world, 0, "head")
        x, pushes = rows[:, backbone].astype(np.float64), np.zeros_like(rows[:, backbone], np.float64)
        for _ in range(4):
            changed = np.empty_like(x)
            for i in range(6):
                row = rows[i].copy()
                for _ in range(local_steps):
                    for _ in range(head_steps):
                        row[head] = trained(world, i, row)[head]
                    after = trained(world, i, row)
                    row[backbone] = after[backbone]
                    if not head_steps:
                        row[head] = after[head]
                rows[i, head] = row[head]
                changed[i] = row[backbone] - x[i]
            x, pushes = mixing @ x + changed - pushes, pushes + theta * (x - mixing @ x)
            rows[:, backbone] = x
        np.testing.assert_allclose(np.stack([model(world, i) for i in range(6)]), rows, atol=5e-5)
        multipliers = []
        for i in range(6):
            client = learner(world, i)
            assert isinstance(client, SPDB)
            multipliers += [each.value.numpy() for each in client.multipliers.values()]
        assert len(multipliers) == (12 if theta else 0)
        if theta:
            np.testing.assert_allclose(np.sum(multipliers, axis=0), 0.0, atol=1e-6)  # l_ij = -l_ji


def test_with_multipliers_different_clients_agree_on_the_common_optimum() -> None:
    """The same recursion on quadratics, at a constant step: D-PSGD stays apart, EXTRA does not."""
    rng = np.random.default_rng(0)
    a, mu = rng.uniform(0.5, 1.5, (5, 1)), rng.normal(size=(5, 3))
    ring = np.zeros((5, 5))
    for i in range(5):
        ring[i, [(i - 1) % 5, i, (i + 1) % 5]] = 1 / 3
    optimum = (a * mu).sum(axis=0) / a.sum()
    apart = {}
    for theta in (0.0, 0.5):
        x, pushes = np.zeros((5, 3)), np.zeros((5, 3))
        for _ in range(3000):
            x, pushes = ring @ x - 0.2 * a * (x - mu) - pushes, pushes + theta * (x - ring @ x)
        apart[theta] = np.abs(x - optimum).max()
    assert apart[0.5] < 1e-9 < 0.05 < apart[0.0]


@pytest.mark.long
def test_a_pair_that_has_missed_a_round_begins_again() -> None:
    text = DECOUPLED + churn("crash", 2, "5.1 s") + churn("rejoin", 2, "20 s", "keep")
    with ran(text, *RING, "protocol.patience=3 s", "run.duration=40 s") as world:
        names = {}
        for i in range(6):
            client = learner(world, i)
            assert isinstance(client, SPDB)
            names[i] = {peer: each.round for peer, each in client.multipliers.items()}
            assert all(client.rounds.number - number in (0, 1) for number in names[i].values())
        assert set(names[2]) == {"client-1", "client-3"}
        assert learner(world, 2).iterations > 10
        assert all(np.isfinite(model(world, i)).all() for i in range(6))


def test_only_backbones_travel() -> None:
    with ran(DECOUPLED, *RING, "run.iterations=5", "run.duration=100 s") as world:
        sent = world.network.counts.by_type
        assert set(sent) == {"RoundModel"}
        size = columns(world, 0, "backbone").stop - columns(world, 0, "backbone").start
        count, total = sent["RoundModel"]
        assert 4 * size * count < total < (4 * size + 150) * count


def test_it_needs_alike_backbones_and_a_common_start() -> None:
    with pytest.raises(UserError, match="mixes whole models"):
        make(DECOUPLED, *RING, TWO_BACKBONES)
    with pytest.raises(UserError, match=r"model.initialisation"):
        make(DECOUPLED, *RING, 'model.initialisation="independent"')
