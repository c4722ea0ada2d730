"""Replacing modules of torch inside a model by ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def replaced(
    module: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...], ours: Callable[[Any], nn.Module]
) -> nn.Module:
    """Replace every part of these kinds inside `module` by `ours(part)`, in place.

    Returns the module, or `ours` of it if it is of these kinds itself. A part that is used in several places
    gets one replacement.
    """
    return _replaced(module, kinds, ours, {})


def _replaced(
    module: nn.Module,
    kinds: type[nn.Module] | tuple[type[nn.Module], ...],
    ours: Callable[[Any], nn.Module],
    done: dict[int, nn.Module],
) -> nn.Module:
    if id(module) in done:
        return done[id(module)]
    if isinstance(module, kinds):
        done[id(module)] = ours(module)
        return done[id(module)]
    done[id(module)] = module
    for name, child in list(
        module._modules.items()
    ):  # named_children lists a part that is used twice only once
        if child is None:
            continue
        setattr(module, name, _replaced(child, kinds, ours, done))
    return module
