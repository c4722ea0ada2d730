"""Dropout for models that are pure functions of their parameters: one parameter determines the mask."""

import torch
from torch import Tensor, nn

_MASK = 0xFFFFFFFF


class Dropout(nn.Dropout):
    """torch.nn.Dropout with a mask that is a function of the parameter `draw`, a whole number below 2^24.

    The engine sets `draw` before each training step, from the client and the step, and to 0 after the last
    step. Each call within a step uses the next number, so masks differ between clients and are reproducible.
    In evaluation nothing is dropped. For `isinstance`, this layer is a `torch.nn.Dropout`.
    """

    untrained = ("draw",)
    """Parameters that no optimizer changes."""
    draws = ("draw",)
    """Parameters that the engine sets."""

    draw: Tensor  # for the type checker, as in batch norms

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.register_parameter("draw", nn.Parameter(torch.zeros(())))

    def reset(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Set `draw` to 0."""
        parameters["draw"].fill_(0.0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        draw = self.draw.detach()
        self._parameters["draw"] = draw + 1  # type: ignore[assignment]  # as in batch norms
        positions = torch.arange(x.numel(), device=x.device)
        bits = _hash_bits(positions * 0x9E3779B1 + _hash_bits(draw.long()))
        kept = (bits >= int(self.p * (1 << 32))).view(x.shape)
        scale = 1 - self.p if self.p < 1 else 1.0
        return x.mul_(kept).div_(scale) if self.inplace else x * kept / scale


def _hash_bits(numbers: Tensor) -> Tensor:
    """Return 32 pseudorandom bits of int64 numbers: the last step of MurmurHash3 (Appleby)."""
    bits = numbers & _MASK
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & _MASK
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & _MASK
    return bits ^ (bits >> 16)


def replace_dropouts(module: nn.Module) -> nn.Module:
    """Replace torch's dropout layers inside `module` by `Dropout`, in place; returns the module.

    A subclass of torch's class may have a different forward pass, and is not replaced.
    """
    for part in module.modules():
        if type(part) is nn.Dropout:
            part.__class__ = Dropout
            part.register_parameter("draw", nn.Parameter(torch.zeros(())))
    return module


def restore_dropouts(module: nn.Module) -> None:
    """Turn each `Dropout` inside `module` into torch's class again, in place."""
    for part in module.modules():
        if type(part) is Dropout:
            del part._parameters["draw"]
            part.__class__ = nn.Dropout  # type: ignore[assignment]  # a superclass
