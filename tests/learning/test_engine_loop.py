"""Convolutions in the loop way: how images lie in memory, and that the numbers don't depend on it."""

import pytest
import torch
from torch import nn

from sim.learning.architecture import Architecture
from sim.learning.engine.backends.kernels import ModelKernel
from sim.learning.objectives import cross_entropy


def chain() -> Architecture:
    """A convolution with 216 weights, one of 1x1 with 4,096, and one of 3x3 with 36,864; pooling between."""
    with torch.device("meta"):
        module = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 512, 1),
            nn.MaxPool2d(2),
            nn.Conv2d(512, 8, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8, 5),
        )
    return Architecture(module, "chain", (3, 8, 8))


def training_layouts(batch: int) -> list[bool]:
    """Of the three convolutions' outputs in training with so many samples: whether channels are last."""
    architecture, seen = chain(), []
    for part in architecture.training_module.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(
                lambda _module, _inputs, output: seen.append(output.stride()[1] == 1 and output.shape[1] > 1)
            )
    flat = architecture.initial(torch.Generator().manual_seed(0))[None]
    x = torch.randn(1, batch, 3, 8, 8)
    ModelKernel(architecture, cross_entropy, "loop").gradients(
        flat, x, torch.zeros(1, batch, dtype=torch.int64)
    )
    return seen


def test_a_convolution_with_more_weights_than_inputs_goes_back_to_channels_first() -> None:
    # Its inputs are 512 x 2 x 2 numbers per sample: 18 samples are 36,864.
    assert training_layouts(17) == [True, True, False]
    assert training_layouts(18) == [True, True, True]


@pytest.mark.parametrize("batch", [4, 21])
def test_gradient_and_outputs_are_those_of_the_plain_module(batch: int) -> None:
    architecture = chain()
    generator = torch.Generator().manual_seed(1)
    flat = architecture.initial(generator)
    x = torch.randn(batch, *architecture.input_shape, generator=generator)
    y = torch.randint(5, (batch,), generator=generator)
    module = architecture.module.to_empty(device="cpu")
    module.load_state_dict(architecture.unflatten(flat))
    outputs = module(x)
    loss = nn.functional.cross_entropy(outputs, y)
    loss.backward()
    expected = torch.cat([part.grad.reshape(-1) for part in module.parameters() if part.grad is not None])
    kernel = ModelKernel(chain(), cross_entropy, "loop")
    torch.testing.assert_close(kernel.gradients(flat[None], x[None], y[None])[0], expected)
    torch.testing.assert_close(kernel.outputs(flat[None], x[None])[0], outputs.detach())
    torch.testing.assert_close(kernel.losses(flat[None], x[None], y[None])[0], loss.detach())
    moved = flat[None].clone()
    kernel.descend(moved, x[None], y[None], 0.5)
    torch.testing.assert_close(moved[0], flat - 0.5 * expected)
