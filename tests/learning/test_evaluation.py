"""The observer's measures against a direct computation, one client and one sample at a time."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_squared_error
from torch import Tensor

from sim.learning import evaluation
from sim.learning.engine import ClientData
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.engine.graph.samples import Subset
from sim.learning.evaluation import finite_rows, measure_models
from sim.learning.metrics import distance_to_optimum
from sim.learning.objectives import cross_entropy, squared_error
from tests.device import DEVICE
from tests.learning.engines import (
    CLASSES,
    MODELS_AND_WAYS,
    SHAPES,
    client_data,
    generator,
    only_tests,
    own_samples,
    plain_module,
    small,
)
from tests.learning.sections import architecture

TEST_COUNTS = [7, 4, 0, 7, 1]
LABEL_MAPS = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [0, 1, 2]]


def accuracy_and_loss(
    kernel: ModelKernel, rows: Tensor, subset: Subset, clients: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    measured = measure_models("classification", kernel, rows, subset, clients)
    return measured["accuracy"], measured["loss"]


def data_for(model: str) -> ClientData:
    return client_data([3] * 5, shape=SHAPES[model], test=TEST_COUNTS, label_maps=LABEL_MAPS)


def models(name: str, count: int) -> Tensor:
    return torch.stack([small(name).initial(generator(seed)) for seed in range(count)]).to(DEVICE)


def directly(model: str, flat: Tensor, data: ClientData, client: int) -> tuple[float, float]:
    x, y = own_samples(data, client, "test")
    scores = plain_module(model, flat)(x).detach().double().cpu().numpy()
    correct = [int(np.argmax(row)) == int(label) for row, label in zip(scores, y.tolist(), strict=True)]
    losses = [math.log(np.exp(row - row[label]).sum()) for row, label in zip(scores, y.tolist(), strict=True)]
    return float(np.mean(correct)), float(np.mean(losses))


@pytest.mark.parametrize(("model", "backend"), [pair for pair in MODELS_AND_WAYS if pair[0] != "point"])
@pytest.mark.parametrize("chunk_bytes", [2**27, 1_000])
def test_accuracy_and_loss(
    model: str, backend: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients in any order, with test sets of their own size and labels of their own."""
    monkeypatch.setattr(evaluation, "_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(evaluation, "_SAMPLES_IN_LOOP", 3 if chunk_bytes < 2**20 else 64)
    data = data_for(model)
    rows, clients = models(model, 4), [3, 1, 0, 4]
    accuracy, loss = accuracy_and_loss(
        ModelKernel(small(model), cross_entropy, backend), rows, data.test, clients
    )
    expected = [directly(model, flat, data, client) for flat, client in zip(rows, clients, strict=True)]
    assert accuracy.tolist() == [pair[0] for pair in expected]
    np.testing.assert_allclose(loss, [pair[1] for pair in expected], rtol=1e-5)
    assert accuracy.dtype == loss.dtype == np.float64


def test_chunks_really_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Counting(ModelKernel):
        def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
            calls.append((x.shape[0], x.shape[1]))
            return super().outputs(flat, x)

    three = 3 * 2 * 4 * 4  # samples of 4 floats, of two clients
    monkeypatch.setattr(evaluation, "_CHUNK_BYTES", three)
    monkeypatch.setattr(evaluation, "_SAMPLES_IN_LOOP", 1)  # and as many on a GPU
    monkeypatch.setattr(evaluation, "clients_at_once", lambda device, bytes_of_each: 3 * 2)
    name = "logistic-regression"
    kernel = Counting(small(name), cross_entropy, "vmap")
    accuracy_and_loss(kernel, models(name, 3), data_for(name).test, [0, 1, 3])
    assert calls == [(1, 4), (2, 3), (2, 3), (2, 1)]


@pytest.mark.parametrize(("model", "backend"), [pair for pair in MODELS_AND_WAYS if pair[0] != "point"])
@pytest.mark.parametrize("at_once", [2, 128])
def test_samples_that_all_share_are_there_once(
    model: str, backend: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_CLIENTS", at_once)
    apart = data_for(model)
    maps = [np.roll(np.arange(CLASSES), shift) for shift in (0, 1, 2)]
    data = only_tests(apart.test.x, apart.test.y, [np.array([5, 2, 0, 3])] * 3, maps)
    shapes = []

    class Counting(ModelKernel):
        def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
            shapes.append((len(flat), x.shape[0], x.shape[1]))
            return super().outputs(flat, x)

    rows, clients = models(model, 3), [2, 0, 1]
    accuracy, loss = accuracy_and_loss(
        Counting(small(model), cross_entropy, backend), rows, data.test, clients
    )
    cut = [1, 1, 1] if backend == "loop" else [2, 1] if at_once == 2 else [3]
    blocks = cut if DEVICE == "cpu" else [3]
    assert shapes == [(block, 1, 4) for block in blocks]
    expected = [directly(model, flat, data, client) for flat, client in zip(rows, clients, strict=True)]
    assert accuracy.tolist() == [pair[0] for pair in expected]
    np.testing.assert_allclose(loss, [pair[1] for pair in expected], rtol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_equal_models_are_measured_alike_wherever_they_are(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a block of one, which does not know that others have the same samples."""
    monkeypatch.setattr(evaluation, "_CLIENTS", 3)
    x, y = torch.randn(50, *small("mlp").input_shape).to(DEVICE), torch.randint(CLASSES, (50,)).to(DEVICE)
    data = only_tests(x, y, [np.arange(50)] * 4)
    kernel = ModelKernel(small("mlp"), cross_entropy, "dense", precision)
    _, loss = accuracy_and_loss(kernel, models("mlp", 1).repeat(4, 1), data.test, range(4))
    assert len(set(loss.tolist())) == 1


def test_a_client_without_test_samples_has_no_accuracy() -> None:
    name = "logistic-regression"
    kernel = ModelKernel(small(name), cross_entropy, "vmap")
    accuracy, loss = accuracy_and_loss(kernel, models(name, 2), data_for(name).test, [2, 0])
    assert np.isnan(accuracy).tolist() == np.isnan(loss).tolist() == [True, False]


def test_a_guess_and_a_perfect_model() -> None:
    """A model of zeros has loss log K; one that knows the label from the input has accuracy 1."""
    name = "logistic-regression"
    x = torch.eye(4)[:CLASSES]
    y = torch.arange(CLASSES)
    data = only_tests(x, y, [np.arange(CLASSES)] * 2, [np.array([0, 1, 2]), np.array([1, 2, 0])])
    perfect = torch.cat([20 * torch.eye(CLASSES, 4).flatten(), torch.zeros(CLASSES)])
    kernel = ModelKernel(small(name), cross_entropy, "vmap")
    accuracy, loss = accuracy_and_loss(kernel, torch.stack([perfect, perfect]), data.test, [0, 1])
    assert accuracy.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(loss, [0, 20], atol=1e-6)
    _, loss = accuracy_and_loss(kernel, torch.zeros(1, perfect.numel()), data.test, [0])
    np.testing.assert_allclose(loss, math.log(CLASSES), rtol=1e-6)


def test_distance_to_the_optimum() -> None:
    """The single test row of a quadratic client is (a, mu)."""
    test = torch.tensor([[2.0, 1.0, 1.0], [1.0, 0.0, -3.0]])
    data = only_tests(test, torch.zeros(2, dtype=torch.int64), [np.array([1]), np.array([0])])
    rows = torch.tensor([[4.0, 5.0], [3.0, 1.0], [0.0, -3.0]])
    assert distance_to_optimum(rows, data.test, [1, 0, 0]).tolist() == [5.0, 5.0, 0.0]


@pytest.mark.parametrize(("model", "backend"), [pair for pair in MODELS_AND_WAYS if pair[0] != "point"])
def test_a_model_that_is_no_number_has_no_accuracy(model: str, backend: str) -> None:
    rows = models(model, 3)
    rows[1] = math.nan
    clients = [0, 1, 3]
    accuracy, loss = accuracy_and_loss(
        ModelKernel(small(model), cross_entropy, backend), rows, data_for(model).test, clients
    )
    assert np.isnan(accuracy).tolist() == np.isnan(loss).tolist() == [False, True, False]


def test_rows_are_finite_however_large_their_sum() -> None:
    largest = torch.finfo(torch.float32).max
    rows = torch.ones(6, 5)
    rows[1, 2], rows[2, 4], rows[4, 0] = math.nan, math.inf, -math.inf
    rows[3] = largest
    rows[5, :2] = torch.tensor([math.inf, -math.inf])
    assert finite_rows(rows).tolist() == [True, False, False, True, False, False]
    assert finite_rows(rows[[0, 3]]).tolist() == [True, True]


@pytest.mark.parametrize("backend", ["vmap", "loop"])
@pytest.mark.parametrize("members", [1, 2])
def test_the_squared_error_of_a_regression_is_scikit_learns(backend: str, members: int) -> None:
    """Of one model of each client, and of the mean outputs of two."""
    model, draws = architecture("mlp", {"hidden": [4]}, (3,), 2), generator(0)
    x, y = torch.randn(9, 3, generator=draws), torch.randn(9, 2, generator=draws)
    test_rows = [np.arange(4), np.arange(2, 9)]
    data = only_tests(x, y, test_rows)
    rows = torch.stack([torch.stack([model.initial(draws) for _ in range(members)]) for _ in range(2)])
    shares = torch.tensor([[0.25, 0.75], [0.5, 0.5]])[:, :members]
    shares = shares / shares.sum(dim=1, keepdim=True)
    found = measure_models(
        "regression", ModelKernel(model, squared_error, backend), rows, data.test, [0, 1], shares
    )
    for client, own in enumerate(test_rows):
        pairs = zip(rows[client], shares[client], strict=True)
        outputs = torch.stack([model.forward(flat, x[own]) * share for flat, share in pairs]).sum(dim=0)
        expected = mean_squared_error(y[own].numpy(), outputs.numpy())
        assert found["loss"][client] == pytest.approx(expected, rel=1e-5)
