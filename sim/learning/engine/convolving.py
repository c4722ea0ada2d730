"""How a CPU convolves the images of one client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sim.learning.engine.winograd import Scratch, gains_from_winograd, winograd


def channels_last(x: Tensor) -> Iterable[Tensor]:
    """The samples [B, ...] of each client; images on a CPU channels last: it pools and convolves them faster.

    x: [N, B, ...].
    """
    if x.dim() != 5 or x.device.type != "cpu":
        return x
    return [own.to(memory_format=torch.channels_last) for own in x]


class FastConvolutions(TorchFunctionMode):
    """Within it, convolutions of images are computed in the way that measured fastest for sizes like theirs.

    Where Winograd's method gains, by that. Otherwise, with more weights than inputs, the images lie channels
    first again: weights always do, and where the images don't, a training step copies the weights three times
    (for the forward pass, for the backward pass, and into their gradient), which costs large ones more than
    the layout gains on small images.
    """

    def __init__(self) -> None:
        super().__init__()
        self._scratch = Scratch()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # torch.nn.Conv2d gives all seven arguments, in this order.
        if func is torch.conv2d and len(args) == 7:
            x, weight, bias, *how = args
            if gains_from_winograd(x, weight, bias, how):
                output = winograd(x, weight, how[1], self._scratch)
                return output if bias is None else output + bias.view(-1, 1, 1)
            # Kernels of 1x1 lie the same in both layouts.
            if x.device.type == "cpu" and weight.shape[2:] != (1, 1) and weight.numel() > x.numel():
                args = (x.contiguous(), weight, bias, *how)
        return func(*args, **(kwargs or {}))
