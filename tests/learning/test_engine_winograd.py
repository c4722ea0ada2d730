"""Winograd's convolution against torch's: the numbers, the gradients, and when it takes the other's place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sim.learning.engine.winograd import Scratch, gains_from_winograd, winograd

PLAIN = ((1, 1), (1, 1), (1, 1), 1)


def operands(
    batch: int, channels: int, outputs: int, size: tuple[int, int], dtype: torch.dtype, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, channels, *size, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(outputs, channels, 3, 3, generator=generator, dtype=dtype, requires_grad=True)
    return x, weight


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 5),
    channels=st.integers(1, 4),
    outputs=st.integers(1, 4),
    size=st.tuples(st.integers(3, 22), st.integers(3, 22)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    last=st.booleans(),
)
def test_it_is_the_convolution_with_its_gradients(
    batch: int, channels: int, outputs: int, size: tuple[int, int], padding: tuple[int, int], last: bool
) -> None:
    # Up to 5 times 14 * 14 tiles: several parts of at most 256 and one, and odd sizes of the output.
    x, weight = operands(batch, channels, outputs, size, torch.float64)
    given_x = x.contiguous(memory_format=torch.channels_last) if last else x
    found = winograd(given_x, weight, padding, Scratch())
    expected = torch.conv2d(x, weight, None, 1, padding)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected)
    error = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(found, (x, weight), error), torch.autograd.grad(expected, (x, weight), error)
    )


def test_its_rounding_is_that_of_the_direct_sum_up_to_a_small_factor() -> None:
    x, weight = operands(16, 64, 64, (8, 8), torch.float32)
    exact = torch.conv2d(x.double(), weight.double(), None, 1, 1)
    direct = torch.conv2d(x, weight, None, 1, 1)
    ours = winograd(x, weight, (1, 1), Scratch())
    error = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    exact_gradients = torch.autograd.grad(exact, (x, weight), error.double())
    for own, plain, true in zip(
        (ours, *torch.autograd.grad(ours, (x, weight), error)),
        (direct, *torch.autograd.grad(direct, (x, weight), error)),
        (exact, *exact_gradients),
        strict=True,
    ):
        assert (own - true).norm() < 4 * (plain - true).norm()
        assert (own - true).norm() < 2e-6 * true.norm()


def test_scratch_memory_of_another_convolution_changes_nothing() -> None:
    scratch = Scratch()
    x, weight = operands(2, 3, 4, (6, 6), torch.float32)
    larger = winograd(*operands(3, 5, 6, (10, 10), torch.float32), (1, 1), scratch)
    first = winograd(x, weight, (1, 1), scratch)
    again = winograd(*operands(1, 8, 8, (4, 4), torch.float64), (1, 1), scratch)
    assert torch.equal(first, winograd(x, weight, (1, 1), Scratch()))
    gradients = torch.autograd.grad(first.sum(), (x, weight))
    alone = torch.autograd.grad(winograd(x, weight, (1, 1), Scratch()).sum(), (x, weight))
    assert all(torch.equal(own, other) for own, other in zip(gradients, alone, strict=True))
    assert larger.dtype == torch.float32
    assert again.dtype == torch.float64


def test_a_second_derivative_is_refused() -> None:
    x, weight = operands(1, 2, 2, (4, 4), torch.float32)
    (gradient,) = torch.autograd.grad(
        winograd(x, weight, (1, 1), Scratch()).square().sum(), x, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("batch", "channels", "outputs", "size", "kernel", "how", "gains"),
    [
        (16, 64, 64, 4, 3, PLAIN, True),
        (15, 64, 64, 4, 3, PLAIN, False),  # 60 tiles
        (16, 64, 64, 3, 3, PLAIN, True),  # as many: the outermost are half empty
        (64, 64, 64, 4, 3, ((1, 1), (0, 0), (1, 1), 1), True),  # one tile each
        (63, 64, 64, 4, 3, ((1, 1), (0, 0), (1, 1), 1), False),
        (16, 63, 64, 4, 3, PLAIN, False),
        (16, 64, 63, 4, 3, PLAIN, False),
        (16, 64, 64, 8, 5, PLAIN, False),
        (16, 64, 64, 8, 3, ((2, 2), (1, 1), (1, 1), 1), False),
        (16, 64, 64, 8, 3, ((1, 1), (1, 1), (2, 2), 1), False),
        (16, 64, 64, 8, 3, ((1, 1), (1, 1), (1, 1), 2), False),
        (16, 64, 64, 8, 3, ((1, 1), "same", (1, 1), 1), False),
    ],
)
def test_when_it_gains(
    batch: int, channels: int, outputs: int, size: int, kernel: int, how: tuple[Any, ...], gains: bool
) -> None:
    x, weight = torch.empty(batch, channels, size, size), torch.empty(outputs, channels, kernel, kernel)
    assert gains_from_winograd(x, weight, how) is gains


def test_it_does_not_gain_where_products_are_rounded_or_images_are_single() -> None:
    x, weight = torch.empty(16, 64, 8, 8), torch.empty(64, 64, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert not gains_from_winograd(x, weight, PLAIN)
    assert not gains_from_winograd(x[0], weight, PLAIN)
    assert not gains_from_winograd(x.to("meta"), weight, PLAIN)
