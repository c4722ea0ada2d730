"""Swapping modules of torch inside a model for ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def replaced(
    module: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...], ours: Callable[[Any], nn.Module]
) -> nn.Module:
    """`module` with every part of these kinds swapped, in place; `ours` of it if it is one itself.

    A part that stands in several places is swapped for one that stands in all of them.
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
    for name, child in list(module._modules.items()):  # named_children names one in two places once
        if child is None:
            continue
        setattr(module, name, _replaced(child, kinds, ours, done))
    return module
