"""Replacing modules of torch inside a model by ours."""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn


def replaced(
    module: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...], ours: Callable[[Any], nn.Module]
) -> nn.Module:
    """Replace every part of these kinds inside `module` by `ours(part)`, in place.

    Returns the module, or `ours` of it if it is of these kinds itself. A part that is used in several places
    gets one replacement.
    """
    replacement = cache(ours)
    for owner in list(module.modules()):
        for name, part in owner._modules.items():  # named_children lists a part that is used twice only once
            if isinstance(part, kinds):
                setattr(owner, name, replacement(part))
    return replacement(module) if isinstance(module, kinds) else module
