"""Weighted samples, and the loss of each: all clients together against autograd, one after the other."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sim.learning.engine import Engine, Optimizer, Vector
from sim.learning.engine.graph import batch_operations as operations_module
from sim.learning.engine.graph.batch_operations import Gradient, Loss, Losses
from sim.learning.engine.graph.sampler import BatchSampler, GradientOrLossJob, TrainJob
from tests.learning.engines import (
    MODELS_AND_WAYS,
    SHAPES,
    Jobs,
    client_data,
    drawn,
    generator,
    new_engine,
    own_samples,
    plain_loss,
    plain_module,
    torch_optimizer,
)

COUNTS = [9, 6, 3, 11, 1]  # clients 2 and 4 have fewer samples than a batch
CLIENTS = range(len(COUNTS))
BATCH_SIZE = 4
RATE = 0.05
# With an epsilon as large as usual gradients: Adam would otherwise turn rounding into steps of full size.
OPTIMIZERS = [Optimizer(), Optimizer("sgd", momentum=0.9), Optimizer("adam", epsilon=0.01)]


def engine_for(model: str, backend: str = "auto") -> Engine:
    return new_engine(client_data(COUNTS, shape=SHAPES[model]), backend=backend)


def weights_of(client: int) -> Tensor:
    """A weight of each of a client's samples, some of them 0."""
    weights = torch.rand(COUNTS[client], generator=generator(client + 10)) * 3
    weights[::4] = 0
    return weights


def plain_losses(model: str, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Of each sample by itself."""
    return torch.stack([plain_loss(model, module, x[n : n + 1], y[n : n + 1]) for n in range(len(y))])


def plain_gradient(model: str, at: Vector, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    module = plain_module(model, at.tensor())
    (plain_losses(model, module, x, y) * weights).mean().backward()
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_gradients_with_weights_are_autograds(model: str, backend: str) -> None:
    engine = engine_for(model, backend)
    jobs = Jobs(engine, model, batch_size=BATCH_SIZE)
    at = [jobs.initial(client) for client in CLIENTS]
    got = []
    for client in CLIENTS:
        operation = engine.intern(Gradient(jobs.kernel, jobs.sampler(client), "by sample"))
        job = GradientOrLossJob(client, engine.draw_key(client, "train"), client)
        got.append(engine.gradient(operation, at[client], job, engine.vector(weights_of(client))))
    for client in CLIENTS:
        x, y = own_samples(engine.data, client)
        (chosen,) = drawn(engine, client, client, 1, BATCH_SIZE)
        expected = plain_gradient(model, at[client], x[chosen], y[chosen], weights_of(client)[chosen])
        np.testing.assert_allclose(got[client].numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("model", "backend"), MODELS_AND_WAYS)
def test_losses_of_samples_are_those_of_each_by_itself(model: str, backend: str) -> None:
    engine = engine_for(model, backend)
    jobs = Jobs(engine, model, batch_size=BATCH_SIZE)
    of = [jobs.initial(client) for client in CLIENTS]
    plain, weighted, means = [], [], []
    for client in CLIENTS:
        sampler = BatchSampler(engine.data.train, COUNTS[client], "all")
        job = GradientOrLossJob(client, 0, 0)
        weights = engine.vector(weights_of(client))
        plain.append(engine.losses(engine.intern(Losses(jobs.kernel, sampler)), of[client], job))
        operation = engine.intern(Losses(jobs.kernel, sampler, "by position"))
        weighted.append(engine.losses(operation, of[client], job, weights))
        mean = engine.intern(Loss(jobs.kernel, sampler, "by position"))
        means.append(engine.loss(mean, of[client], job, weights))
    for client in CLIENTS:
        module = plain_module(model, of[client].tensor())
        expected = plain_losses(model, module, *own_samples(engine.data, client)).detach()
        np.testing.assert_allclose(plain[client].numpy(), expected, rtol=1e-4, atol=1e-6)
        expected = expected * weights_of(client)
        np.testing.assert_allclose(weighted[client].numpy(), expected, rtol=1e-4, atol=1e-6)
        assert float(means[client]) == pytest.approx(float(expected.mean()), rel=1e-4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "momentum", "adam"])
@pytest.mark.parametrize("backend", ["vmap", "loop", "dense"])
def test_training_with_weights_is_torchs(backend: str, optimizer: Optimizer) -> None:
    """Clients of different numbers of samples and steps, in one call, with pulls and weights at once."""
    engine = engine_for("mlp", backend)
    jobs = Jobs(engine, "mlp", optimizer, BATCH_SIZE)
    starts, steps, got = [jobs.initial(client) for client in CLIENTS], [3, 5, 2, 4, 3], []
    anchor = jobs.initial(9)
    for client in CLIENTS:
        operation = engine.training(jobs.kernel, optimizer, jobs.sampler(client), "by sample")
        pulled = client % 2
        key = engine.draw_key(client, "train")
        job = TrainJob(client, key, client, steps[client], RATE, 0, (0.3,) * pulled)
        weights = engine.vector(weights_of(client))
        got.append(
            engine.train(operation, starts[client], job, anchors=[anchor] * pulled, weights=weights)[0]
        )
    for client in CLIENTS:
        module = plain_module("mlp", starts[client].tensor())
        stepper = torch_optimizer(optimizer, RATE)(list(module.parameters()))
        x, y = own_samples(engine.data, client)
        for chosen in drawn(engine, client, client, steps[client], BATCH_SIZE):
            stepper.zero_grad()
            losses = plain_losses("mlp", module, x[chosen], y[chosen])
            flat = nn.utils.parameters_to_vector(module.parameters())
            pull = 0.15 * (flat - anchor.tensor().cpu()).square().sum() if client % 2 else torch.zeros(())
            ((losses * weights_of(client)[chosen]).mean() + pull).backward()
            stepper.step()
        expected = nn.utils.parameters_to_vector(module.parameters()).detach()
        np.testing.assert_allclose(got[client].numpy(), expected, rtol=1e-3, atol=1e-5)


def test_weighted_training_of_all_clients_is_one_call() -> None:
    """Also where they have different numbers of samples, and so weights of different lengths."""
    counts = [9, 6, 11]
    engine = new_engine(client_data(counts), backend="vmap")
    jobs = Jobs(engine, batch_size=BATCH_SIZE)
    made = []
    for client, count in enumerate(counts):
        operation = engine.training(jobs.kernel, Optimizer(), jobs.sampler(client), "by sample")
        job = TrainJob(client, engine.draw_key(client, "train"), 0, 2, RATE, 0, ())
        made.append(
            engine.train(operation, jobs.initial(client), job, weights=engine.vector(torch.ones(count)))[0]
        )
    engine.flush()
    assert (engine.statistics.jobs, engine.statistics.batches) == (3, 1)
    for client, params in enumerate(made):
        plain = jobs.train(client, jobs.initial(client), 2, learning_rate=RATE)[0]
        np.testing.assert_allclose(params.numpy(), plain.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_gradient_on_all_samples_is_made_in_pieces(weighted: bool, monkeypatch: Any) -> None:
    engine = engine_for("mlp")
    jobs = Jobs(engine, "mlp")
    at, sampler = jobs.initial(0), BatchSampler(engine.data.train, 9, "all")
    weights = weights_of(0) if weighted else torch.ones(9)
    handle = engine.vector(weights) if weighted else None
    monkeypatch.setattr(operations_module, "_SAMPLES_AT_ONCE", 4)  # 4, 4 and 1
    operation = Gradient(jobs.kernel, sampler, "by position" if weighted else None)
    gradient = engine.gradient(operation, at, GradientOrLossJob(0, 0, 0), handle)
    losses = engine.losses(Losses(jobs.kernel, sampler), at, GradientOrLossJob(0, 0, 0))
    x, y = own_samples(engine.data, 0)
    np.testing.assert_allclose(
        gradient.numpy(), plain_gradient("mlp", at, x, y, weights), rtol=1e-4, atol=1e-6
    )
    module = plain_module("mlp", at.tensor())
    np.testing.assert_allclose(losses.numpy(), plain_losses("mlp", module, x, y).detach(), rtol=1e-5)
