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
    # Up to 5 times 13 * 13 tiles, in parts of 2 images then; even and odd sizes of the output.
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


def test_work_is_cut_up_and_its_memory_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = operands(5, 4, 3, (20, 20), torch.float64)  # 100 tiles an image: 3 images and 2
    scratch, taken = Scratch(), []
    take = scratch.take

    def noted(name: str, like: Tensor, *shape: int) -> Tensor:
        taken.append((name, shape, memory := take(name, like, *shape)))
        return memory

    monkeypatch.setattr(scratch, "take", noted)
    found = winograd(x, weight, (1, 1), scratch)
    tiles = [(shape, memory.data_ptr()) for name, shape, memory in taken if name == "tiles"]
    assert [shape for shape, _ in tiles] == [(4, 4, 3, 10, 10, 4), (4, 4, 2, 10, 10, 4)]
    assert tiles[0][1] == tiles[1][1]
    error = torch.randn(5, 3, 20, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad(torch.conv2d(x, weight, None, 1, 1), (x, weight), error)
    torch.testing.assert_close(torch.autograd.grad(found, (x, weight), error), expected)


def test_operands_and_errors_may_lie_in_any_way() -> None:
    x, weight = operands(2, 3, 4, (6, 8), torch.float64)
    across = winograd(x.mT, weight.mT, (1, 1), Scratch())
    torch.testing.assert_close(across, torch.conv2d(x, weight, None, 1, 1).mT)
    found, expected = (
        torch.autograd.grad(y.sum(), (x, weight)) for y in (across, torch.conv2d(x, weight, None, 1, 1))
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("size", [(6, 6), (5, 6)])  # whole tiles, and cut off
def test_what_follows_may_change_the_output_in_place(size: tuple[int, int]) -> None:
    x, weight = operands(2, 3, 4, size, torch.float64)
    found = torch.autograd.grad(winograd(x, weight, (1, 1), Scratch()).relu_().sum(), (x, weight))
    expected = torch.autograd.grad(torch.conv2d(x, weight, None, 1, 1).relu().sum(), (x, weight))
    torch.testing.assert_close(found, expected)


def test_second_derivatives_are_those_of_the_convolution() -> None:
    x, weight = operands(2, 3, 4, (5, 6), torch.float64)

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        return winograd(x, weight, (1, 0), Scratch())

    assert torch.autograd.gradgradcheck(convolve, (x, weight))
    found, expected = [], []
    for into, output in ((found, convolve(x, weight)), (expected, torch.conv2d(x, weight, None, 1, (1, 0)))):
        (slope,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        into.extend(torch.autograd.grad(slope.square().sum(), (x, weight)))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("batch", "channels", "outputs", "size", "trained", "gains"),
    [
        # What the transforms cost beside the multiplications: 33 (1 / c + 1 / k) + 24 / tiles < 1.
        (16, 128, 128, 4, True, True),  # 64 tiles
        (12, 128, 128, 4, True, False),  # 48 tiles: 33 / 64 + 24 / 48 > 1
        (64, 64, 64, 32, True, False),  # 33 / 32 > 1
        (16, 64, 128, 32, True, True),
        (16, 128, 64, 32, True, True),
        (8, 512, 512, 4, True, True),
        (4, 512, 512, 4, True, False),
        # In tiles that are half outside there are 20.25 multiplications to save, not 36: .21 instead of 1.
        (64, 128, 128, 3, True, False),
        # The forward pass alone: 65 (1 / c + 1 / k) + 40 / tiles < 1.
        (64, 128, 128, 16, False, False),
        (64, 256, 256, 16, False, True),
        (16, 256, 256, 4, False, False),
    ],
)
def test_where_it_gains(
    batch: int, channels: int, outputs: int, size: int, trained: bool, gains: bool
) -> None:
    x = torch.empty(batch, channels, size, size)
    weight = torch.empty(outputs, channels, 3, 3, requires_grad=trained)
    assert gains_from_winograd(x, weight, None, PLAIN) is gains


def test_without_a_gradient_to_come_only_the_forward_pass_counts() -> None:
    x, weight = torch.empty(16, 256, 4, 4), torch.empty(256, 256, 3, 3, requires_grad=True)
    assert gains_from_winograd(x, weight, None, PLAIN)
    with torch.no_grad():
        assert not gains_from_winograd(x, weight, None, PLAIN)


@pytest.mark.parametrize(
    "how",
    [
        ((2, 2), (1, 1), (1, 1), 1),
        ((1, 1), (1, 1), (2, 2), 1),
        ((1, 1), (1, 1), (1, 1), 2),
        ((1, 1), "same", (1, 1), 1),
        ((1, 1), 1, (1, 1), 1),
        ((1, 1), (1,), (1, 1), 1),
    ],
)
def test_other_forms_are_left_to_torch(how: tuple[Any, ...]) -> None:
    x, weight = torch.empty(64, 256, 8, 8), torch.empty(256, 256, 3, 3)
    assert gains_from_winograd(x, weight, None, PLAIN)
    assert not gains_from_winograd(x, weight, None, how)


def test_other_operands_are_left_to_torch() -> None:
    x, weight, bias = torch.empty(64, 256, 8, 8), torch.empty(256, 256, 3, 3), torch.empty(256)
    assert gains_from_winograd(x, weight, bias, PLAIN)
    for other_x, other_weight, other_bias in (
        (x[0], weight, None),
        (x.to("meta"), weight, None),
        (x, torch.empty(256, 256, 5, 5), None),
        (x, torch.empty(256, 128, 3, 3), None),
        (x.double(), weight, None),
        (x.bfloat16(), weight.bfloat16(), None),
        (x.int(), weight.int(), None),
        (x, weight, bias[:1]),
        (x, weight, bias.double()),
    ):
        assert not gains_from_winograd(other_x, other_weight, other_bias, PLAIN)
    with torch.autocast("cpu", torch.bfloat16):
        assert not gains_from_winograd(x, weight, None, PLAIN)


@pytest.mark.parametrize("shape", [(0, 256, 8, 8), (64, 256, 2, 8), (64, 256, 8, 1)])
def test_outputs_without_a_number_are_left_to_torch(shape: tuple[int, ...]) -> None:
    weight = torch.empty(256, 256, 3, 3)
    assert not gains_from_winograd(torch.empty(shape), weight, None, ((1, 1), (0, 0), (1, 1), 1))


def test_transforms_of_functions_are_left_to_torch() -> None:
    x, weight, seen = torch.zeros(64, 256, 8, 8), torch.zeros(256, 256, 3, 3), []

    def loss(weight: Tensor) -> Tensor:
        seen.append(gains_from_winograd(x, weight, None, PLAIN))
        return torch.conv2d(x, weight, None, 1, 1).sum()

    torch.func.grad(loss)(weight)
    torch.func.vmap(loss)(weight[None])
    assert seen == [False, False]
