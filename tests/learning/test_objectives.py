"""Objectives: values and gradients against closed forms."""

import torch
from torch.func import grad

from sim.learning.objectives import cross_entropy, quadratic, squared_error
from tests.learning.sections import architecture


def test_cross_entropy_gradient() -> None:
    """For logistic regression: the mean over the batch of (softmax - one-hot) x^T."""
    model = architecture("logistic-regression", {}, (3,), 5)
    generator = torch.Generator().manual_seed(0)
    flat = model.initial(generator)
    x, y = torch.randn(4, 3, generator=generator), torch.tensor([0, 1, 1, 4])
    error = model.forward(flat, x).softmax(dim=1) - torch.nn.functional.one_hot(y, 5)
    expected = torch.cat([(error.T @ x / 4).flatten(), error.mean(dim=0)])
    torch.testing.assert_close(grad(lambda p: cross_entropy(model, p, x, y))(flat), expected)


def test_quadratic_value_and_gradient() -> None:
    model = architecture("point", {}, (3,), 0)
    rows = torch.tensor([[1.0, 0.0, 0.0], [3.0, 2.0, 4.0]])  # a = 1 around (0, 0), a = 3 around (2, 4)
    point = torch.tensor([1.0, 2.0])
    labels = torch.zeros(2, dtype=torch.int64)
    assert quadratic(model, point, rows, labels) == (1 / 2 * 5 + 3 / 2 * 5) / 2
    assert grad(lambda p: quadratic(model, p, rows, labels))(point).tolist() == [
        (1 * 1 + 3 * -1) / 2,
        (1 * 2 + 3 * -2) / 2,
    ]


def test_squared_error_and_its_gradient() -> None:
    """Of a linear model with T outputs: the mean of squares, and 2 / (B T) times (error^T x, error)."""
    model = architecture("logistic-regression", {}, (3,), 2)
    generator = torch.Generator().manual_seed(0)
    flat = model.initial(generator)
    x, y = torch.randn(5, 3, generator=generator), torch.randn(5, 2, generator=generator)
    error = model.forward(flat, x) - y
    torch.testing.assert_close(squared_error(model, flat, x, y), error.square().sum() / 10)
    expected = torch.cat([(error.T @ x).flatten(), error.sum(dim=0)]) / 5
    torch.testing.assert_close(grad(lambda p: squared_error(model, p, x, y))(flat), expected)
