"""Federated averaging beside Flower's aggregation and torch's own training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.protocols.worlds import DIGITS, learner, ran

flower = pytest.importorskip("flwr.server.strategy.aggregate", reason="flwr is not installed: make peers")

LOCAL_STEPS, ROUNDS, LEARNING_RATE = 3, 4, 0.1


def trained_by_torch(parameters: list[np.ndarray], x: torch.Tensor, y: torch.Tensor) -> list[np.ndarray]:
    """Weights and biases after the local steps on all samples of one client."""
    model = torch.nn.Linear(x.shape[1], 10)
    with torch.no_grad():
        for own, given in zip(model.parameters(), parameters, strict=True):
            own.copy_(torch.from_numpy(given))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for _ in range(LOCAL_STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [own.detach().numpy() for own in model.parameters()]


def test_the_global_model_is_flowers() -> None:
    """Clients of unequal size, whole batches, four rounds: the same but for the rounding of float32."""
    unequal = '{ kind = "dirichlet", alpha = 0.3 }'
    text = DIGITS.replace('{ kind = "permuted-clusters", clusters = 2, samples_per_client = 8 }', unequal)
    settings = ["protocol.name=fedavg", f"protocol.local_steps={LOCAL_STEPS}", "training.batch_size=2000"]
    with ran(text, *settings) as world:
        data = world.engine.data.train
        assert data.counts.max() > 3 * data.counts.min()
        flat = learner(world, 0).compute.initial().numpy()
        shared = [flat[:640].reshape(10, 64), flat[640:]]
        owned = [data.gather(np.array([i]), np.arange(n)[None]) for i, n in enumerate(data.counts)]
        for _ in range(ROUNDS):  # of 2 s each, in a run of 8 s
            results = [(trained_by_torch(shared, x[0], y[0]), len(y[0])) for x, y in owned]
            shared = flower.aggregate(results)
        expected = np.concatenate([part.ravel() for part in shared])
        ours = world.supervisor.running["server"].params.numpy()  # type: ignore[attr-defined]
    assert abs(expected - flat).max() > 0.05, "it has learned something"
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)
