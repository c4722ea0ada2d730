"""Making modules of torch inside a model ours."""

from collections.abc import Callable
from typing import Any

from torch import nn


def converted(
    module: nn.Module, kinds: tuple[type[nn.Module], ...], convert: Callable[[Any], None]
) -> nn.Module:
    """Have `convert` make every part of exactly these kinds one of ours, in place; returns the module.

    The part stays the object that it was, with its hooks and wherever it is used. A class derived from one of
    the kinds may have a forward pass of its own, and stays what it is.
    """
    for part in module.modules():
        if type(part) in kinds:
            convert(part)
    return module
