"""pFedSim: its mixtures of backbones against numpy, and what travels."""

import numpy as np
import pytest

from protocols.federated_parts.pfedsim import PFedSimServer, directions, mixing_weights
from protocols.membership.view import Goodbye
from sim.errors import UserError
from tests.protocols.decoupled import (
    CLASSES,
    DECOUPLED,
    FEATURES,
    HEAD,
    TWO_BACKBONES,
    columns,
    initial,
    model,
    samples,
    trained,
)
from tests.protocols.worlds import churn, learner, make, messages, ran

PFEDSIM = ("protocol.name=pfedsim", "protocol.local_steps=2")


def shares(heads: np.ndarray, kind: str) -> np.ndarray:
    """w [N, N] from heads [N, K (d_z + 1)], as the authors' code computes it."""
    rows = heads[:, : CLASSES * FEATURES].astype(np.float64)
    rows = rows.reshape(len(heads), CLASSES if kind == "per-class" else 1, -1)
    rows = rows / np.linalg.norm(rows, axis=2, keepdims=True)
    cosines = np.einsum("ikd,jkd->ij", rows, rows) / rows.shape[1]
    phi = -np.log(1 - np.clip(cosines, 0.0, 0.9999))
    return phi / phi.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("warm_up", [0, 2])
@pytest.mark.parametrize("kind", ["per-class", "whole"])
def test_after_the_warm_up_everybody_gets_its_own_mixture(kind: str, warm_up: int) -> None:
    with ran(
        DECOUPLED,
        *PFEDSIM,
        f"protocol.warm_up={warm_up}",
        f"protocol.similarity={kind}",
        "run.iterations=5",
    ) as world:
        x, counts = initial(world)[0], samples(world)
        for _ in range(warm_up):
            heads = [trained(world, i, x, steps=2) for i in range(6)]
            x = np.average(heads, axis=0, weights=counts).astype(np.float32)
        backbone, head = (columns(world, 0, name) for name in ("backbone", "head"))
        rows = np.stack([trained(world, i, x, steps=2) for i in range(6)])
        for _ in range(4 - warm_up):
            weights = shares(rows[:, head], kind)
            assert weights.max() < 0.99 and weights.min() < 0.16
            rows[:, backbone] = weights @ rows[:, backbone]
            rows = np.stack([trained(world, i, row, steps=2) for i, row in enumerate(rows)])
        np.testing.assert_allclose(np.stack([model(world, i) for i in range(6)]), rows, atol=5e-5)


def test_similarities_and_what_has_none() -> None:
    heads = {
        "same": [1.0, 0.0, 0.0, 2.0, 9.0, 9.0],
        "scaled": [3.0, 0.0, 0.0, 3.0, 0.0, 0.0],
        "half": [1.0, 0.0, 1.0, 0.0, 0.0, 0.0],
        "opposite": [-1.0, 0.0, 0.0, -1.0, 0.0, 0.0],
        "nothing": [0.0] * 6,
    }
    found = {name: directions(head, 2, "per-class") for name, head in heads.items()}
    weights = mixing_weights("same", found)
    most, half = -np.log(1e-4), np.log(2.0)
    expected = {"same": most, "scaled": most, "half": half, "opposite": 0.0, "nothing": 0.0}
    for name, phi in expected.items():
        assert weights[name] == pytest.approx(phi / (2 * most + half), abs=1e-9)
    assert mixing_weights("nothing", found) == {"nothing": 1.0}


def test_backbones_go_down_and_whole_models_up() -> None:
    """MAPL's Table 7: 2 M (theta + phi) T, but for the heads on their way down."""
    with ran(DECOUPLED, *PFEDSIM, "protocol.warm_up=2", "run.iterations=6") as world:
        sent = world.network.counts.by_type
        whole = model(world, 0).size
        numbers = {
            "Assignment": whole,
            "Contribution": whole,
            "FirstPersonalTask": whole,
            "PersonalTask": whole - HEAD,
            "PersonalModel": whole,
        }
        assert set(sent) == set(numbers)
        assert sent["FirstPersonalTask"][0] == 6 and sent["PersonalModel"][0] == 24
        for kind, (count, size) in sent.items():
            assert 4 * numbers[kind] * count < size < (4 * numbers[kind] + 200) * count


def test_a_client_that_crashes_is_left_out_and_comes_back() -> None:
    text = (
        DECOUPLED + churn("crash", 3, "3.7 s") + churn("rejoin", 3, "10 s", "fresh") + churn("join", 5, "9 s")
    )
    settings = ("protocol.warm_up=1", "protocol.patience=3 s", "run.duration=30 s")
    with ran(text, *PFEDSIM, *settings) as world:
        server = world.supervisor.running["server"]
        assert sorted(server.latest) == [f"client-{i}" for i in range(6)]  # type: ignore[attr-defined]
        first = [client for _, _, client, _ in messages(world, "FirstPersonalTask")]
        assert sorted(first) == [f"client-{i}" for i in range(6)]
        assert learner(world, 3).iterations > 2


def test_backbones_must_be_alike() -> None:
    with pytest.raises(UserError, match="mixes whole models"):
        make(DECOUPLED, *PFEDSIM, TWO_BACKBONES)


def test_a_client_that_goes_as_its_round_begins_still_has_a_mixture() -> None:
    """It is chosen, and its goodbye arrives in the same instant, before its task is made up."""
    with ran(DECOUPLED, *PFEDSIM, "protocol.warm_up=0", "run.iterations=2") as world:
        server = world.supervisor.running["server"]
        assert isinstance(server, PFedSimServer)
        server._membership.on_message(Goodbye(), "client-3")
        assert "client-3" not in server.peers
        assert np.isfinite(server.mixture("client-3").numpy()).all()
